"""An OpenRouter on loopback, for the real LiteLLM client: right answers, and faults as they are ordered."""

import asyncio
import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import web

from trinity.pool.base import DecodeParameters
from trinity.pool.simulated import SimulatedPool

Fault = Callable[[str, int, dict[str, Any]], str | None]
"""(request's hash, how often it was made before, its body) -> the name of a fault, or None."""

FAULTS = (
    "429", "429 with Retry-After", "429 until a date", "500", "502 HTML", "503", "408", "empty content",
    "null content", "no choices", "choices missing", "wrong JSON", "cut JSON", "half-closed", "closed",
    "error in a 200", "broken off",
)  # fmt: skip


class FakeOpenRouter:
    """Serves a simulated pool's agents under their names, in a thread of its own.

    Attributes:
        made: how often each request arrived, by hash; `answered` counts the proper answers among them.
        usd: what the proper answers cost.
        on_request: called with the count of all requests so far, in the server's thread.
    """

    def __init__(self, pool: SimulatedPool, fault: Fault = lambda *_: None, usd: float = 0.001) -> None:
        self._pool = pool
        self.fault = fault
        self._usd = usd
        self.made: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.keys: set[str] = set()
        self.on_request: Callable[[int], None] = lambda count: None
        self.base = ""
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def usd(self) -> float:
        return self._usd * self.answered.total()

    def __enter__(self) -> "FakeOpenRouter":
        self._thread.start()
        assert self._ready.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(20)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._start())
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._runner.cleanup())
        self._loop.close()

    async def _start(self) -> None:
        app = web.Application()
        app.router.add_post("/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.base = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.keys.add(request.headers.get("Authorization", ""))
        name = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        before = self.made[name]
        self.made[name] += 1
        self.on_request(self.made.total())
        fault = self.fault(name, before, body)
        if fault is not None:
            return await self._fail(fault, request)
        agent = list(self._pool.agents).index(body["model"])
        completion = await self._pool.complete(agent, body["messages"], DecodeParameters())
        self.answered[name] += 1
        return web.json_response(chat(completion.text, self._usd))

    async def _fail(self, fault: str, request: web.Request) -> web.StreamResponse:
        error = {"error": {"message": "no luck", "code": fault}}
        if fault == "429 with Retry-After":
            return web.json_response(error, status=429, headers={"Retry-After": "0"})
        if fault == "429 until a date":
            headers = {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}
            return web.json_response(error, status=429, headers=headers)
        if fault == "502 HTML":
            return web.Response(text="<html>Bad Gateway</html>", status=502, content_type="text/html")
        if fault.isdigit():
            return web.json_response(error, status=int(fault))
        if fault in ("half-closed", "closed"):
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            if fault == "half-closed":
                response.content_length = 500
                await response.prepare(request)
                await response.write(b'{"id": "gen-1", ')
            assert request.transport is not None
            request.transport.abort()
            return response
        good = chat("2", self._usd)
        bodies: dict[str, Any] = {
            "empty content": chat("", self._usd),
            "null content": chat(None, self._usd),
            "no choices": {**good, "choices": []},
            "choices missing": {name: value for name, value in good.items() if name != "choices"},
            "wrong JSON": [1, 2],
            "error in a 200": error,
            "broken off": chat("2", self._usd, finish="error"),
        }
        if fault == "cut JSON":
            return web.Response(text=json.dumps(good)[:40], content_type="application/json")
        return web.json_response(bodies[fault])


def chat(content: str | None, usd: float, finish: str = "stop") -> dict[str, Any]:
    message = {"role": "assistant", "content": content, "reasoning": "Hm."}
    return {
        "id": "gen-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": finish, "message": message}],
        "usage": {"prompt_tokens": 70, "completion_tokens": 30, "total_tokens": 100, "cost": usd},
    }


def sometimes(share: float, faults: Sequence[str] = FAULTS, most: int = 6) -> Fault:
    """Faults on this share of the requests, decided by the request and how often it was made."""

    def fault(name: str, before: int, body: dict[str, Any]) -> str | None:
        if before >= most:
            return None
        digest = hashlib.sha256(f"{name}/{before}".encode()).digest()
        if int.from_bytes(digest[:4], "big") / 2**32 >= share:
            return None
        return faults[digest[4] % len(faults)]

    return fault
