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
    "429", "429 with Retry-After", "429 until a date", "500", "502 HTML", "503", "408", "409", "529",
    "empty content", "null content", "no choices", "choices missing", "wrong JSON", "cut JSON",
    "cut JSON with usage", "half-closed", "closed", "empty body", "event stream", "error in a 200",
    "error in a 200 with usage", "error as a text", "broken off", "broken off, with an error",
)  # fmt: skip
"""What a repetition mends."""

PAID_FAULTS = {
    "empty content", "null content", "no choices", "choices missing", "cut JSON with usage", "event stream",
    "error in a 200 with usage", "broken off", "broken off, with an error",
}  # fmt: skip
"""Those among them that state usage: they are paid for."""

REFUSALS = (
    "400", "403", "413", "403 in a 200", "content filter", "refusal", "tool call", "reasoning only",
)  # fmt: skip
"""What a model or its provider says in place of an answer."""

FORMS = ("plain", "parts", "comments above", "byte order mark", "cost as text", "own key", "thoughts in it")
"""Spellings of one and the same answer."""


class FakeOpenRouter:
    """Serves a simulated pool's agents under their names, in a thread of its own.

    Attributes:
        made: how often each request arrived, by hash; `answered` counts the proper answers among them, and
            `thrown` the faults that are paid for.
        form: (request's hash) -> the form of its answer.
        usd: what both cost.
        on_request: called with the count of all requests so far, in the server's thread.
    """

    def __init__(self, pool: SimulatedPool, fault: Fault = lambda *_: None, usd: float = 0.001) -> None:
        self._pool = pool
        self.fault = fault
        self._usd = usd
        self.made: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.thrown: Counter[str] = Counter()
        self.form: Callable[[str], str] = lambda name: "plain"
        self.keys: set[str] = set()
        self.on_request: Callable[[int], None] = lambda count: None
        self.base = ""
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def usd(self) -> float:
        return self._usd * (self.answered.total() + self.thrown.total())

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
            self.thrown[fault] += fault in PAID_FAULTS or fault in REFUSALS[4:]
            return await self._fail(fault, request)
        self.answered[name] += 1
        return _in_form(self.form(name), await self.reply(body), self._usd)

    async def reply(self, body: dict[str, Any]) -> str:
        """What the model says."""
        if body["messages"][-1]["content"] == "Reply with the word OK.":
            return "OK"
        agent = list(self._pool.agents).index(body["model"])
        return (await self._pool.complete(agent, body["messages"], DecodeParameters())).text

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
        if fault.endswith("in a 200"):
            code = int(fault[:3]) if fault[:3].isdigit() else fault
            return web.json_response({"error": {"message": "no luck", "code": code}})
        good = chat("2", self._usd)
        silent = chat("", self._usd, reasoning=None)
        whole = {name: value for name, value in good.items() if name != "choices"}
        call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        bodies: dict[str, Any] = {
            "empty content": silent,
            "null content": chat(None, self._usd, reasoning=None),
            "no choices": {**good, "choices": []},
            "choices missing": whole,
            "wrong JSON": [1, 2],
            "error in a 200 with usage": {**whole, **error},
            "error as a text": {"error": "no luck"},
            "broken off": chat("2", self._usd, finish="error"),
            "broken off, with an error": {**good, **error},
            "content filter": chat("", self._usd, finish="content_filter"),
            "refusal": chat(None, self._usd, refusal="I can't help with that."),
            "tool call": chat(None, self._usd, finish="tool_calls", tool_calls=[call]),
            "reasoning only": chat(None, self._usd),
        }
        texts = {
            "cut JSON": json.dumps(good)[:40],
            "cut JSON with usage": json.dumps({**whole, "choices": good["choices"]})[:-40],
            "empty body": "",
            "event stream": f"data: {json.dumps(good)}\n\ndata: [DONE]\n\n",
        }
        if fault in texts:
            return web.Response(text=texts[fault], content_type="application/json")
        return web.json_response(bodies[fault])


def _in_form(form: str, text: str, usd: float) -> web.Response:
    """An answer as servers are known to spell it."""
    body = chat(text, usd)
    message, usage = body["choices"][0]["message"], body["usage"]
    if form == "parts":
        message["content"] = [{"type": "text", "text": text[:3]}, {"type": "text", "text": text[3:]}]
    elif form == "cost as text":
        usage["cost"] = f"{usd:.6f}"
    elif form == "own key":
        usage |= {"cost": 0, "is_byok": True, "cost_details": {"upstream_inference_cost": usd}}
    elif form == "thoughts in it":
        message |= {"content": f"Hm.</think>{text}", "reasoning": None}
    above = {"comments above": ": OPENROUTER PROCESSING\n\n" * 2, "byte order mark": "\ufeff"}.get(form, "")
    return web.Response(text=above + json.dumps(body), content_type="application/json")


def chat(content: str | None, usd: float, finish: str = "stop", **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, "reasoning": "Hm.", **more}
    return {
        "id": "gen-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "usage": {"prompt_tokens": 70, "completion_tokens": 30, "total_tokens": 100, "cost": usd},
        "choices": [{"index": 0, "finish_reason": finish, "message": message}],
    }


def any_form(name: str) -> str:
    """A form for each request, by its hash."""
    return FORMS[int(name[:8], 16) % len(FORMS)]


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
