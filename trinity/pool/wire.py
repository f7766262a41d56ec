"""What a server really said: LiteLLM's HTTP clients, with an ear on the bodies of responses.

LiteLLM drops what it cannot read, with the usage that stands in it, and maps statuses to others. What was
paid for and why nothing came of it can only be told from the response itself.
"""

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import httpx

_heard: ContextVar["Heard"] = ContextVar("heard")


@dataclass(slots=True)
class Heard:
    """The response to one call: its status and its body; None and empty where there was none."""

    status: int | None = None
    body: str = field(default="", repr=False)  # it may quote a key


async def _listen(response: httpx.Response) -> None:
    heard = _heard.get(None)
    if heard is not None:
        await response.aread()
        heard.status, heard.body = response.status_code, response.text


def hear() -> Heard:
    """From now on, whatever this task's next call gets is written into what is returned."""
    heard = Heard()
    _heard.set(heard)
    return heard


class Wire:
    """The HTTP clients of one pool, for the event loop that first uses them.

    Args:
        litellm: the library.
    """

    def __init__(self, litellm: Any) -> None:
        from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

        hooks = {"response": [_listen]}
        self._litellm = litellm
        # How many calls are under way is not the client's to limit.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self._session = httpx.AsyncClient(event_hooks=hooks, limits=limits)
        self._handler = AsyncHTTPHandler(event_hooks=hooks)

    def options(self, model: str) -> dict[str, Any]:
        """What `litellm.acompletion` must be given for this model, so that its response is heard.

        LiteLLM reaches OpenRouter by a handler that can be handed over, and OpenAI and what is compatible
        with it by a client that it looks for in its own module. Of other providers nothing is heard.
        """
        self._litellm.aclient_session = self._session
        return {"client": self._handler} if model.startswith("openrouter/") else {}

    async def aclose(self) -> None:
        """Close the connections."""
        if self._litellm.aclient_session is self._session:
            self._litellm.aclient_session = None
        await self._litellm.close_litellm_async_clients()
        self._litellm.in_memory_llm_clients_cache.flush_cache()
        await self._handler.close()
        await self._session.aclose()
