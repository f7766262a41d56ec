"""Decisions on a thread of their own, handed over in batches."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Request = TypeVar("Request")
Result = TypeVar("Result")

_BATCH_SECONDS = 0.02


class DecisionThread(Generic[Request, Result]):
    """Serves requests of one event loop, one after another in their order, on one thread.

    The loop stays free for LLM calls meanwhile. A hand-over between threads costs about as much as a decision
    of a small model, so that each hand-over serves as many requests as are waiting, up to 20 ms of work.

    Args:
        decide: request -> result; runs on the thread.
    """

    def __init__(self, decide: Callable[[Request], Result]) -> None:
        self._decide = decide
        self._waiting: deque[tuple[asyncio.Future[Result], Request]] = deque()
        self._serving: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="decisions")

    async def submit(self, request: Request) -> Result:
        """The result of one request. Raises what `decide` raised for it."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((future, request))
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve())
        return await future

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            requests = [request for _, request in self._waiting]
            outcomes = await loop.run_in_executor(self._thread, self._decide_some, requests)
            for outcome in outcomes:
                future, _ = self._waiting.popleft()
                # A cancelled trajectory no longer waits for its decision.
                if future.done():
                    continue
                if isinstance(outcome, Exception):
                    future.set_exception(outcome)
                else:
                    future.set_result(outcome)

    def _decide_some(self, requests: Sequence[Request]) -> list[Result | Exception]:
        """The first requests' outcomes: at least one, and more while time is left."""
        outcomes: list[Result | Exception] = []
        deadline = time.monotonic() + _BATCH_SECONDS
        for request in requests:
            try:
                outcomes.append(self._decide(request))
            except Exception as error:
                outcomes.append(error)
            if time.monotonic() >= deadline:
                break
        return outcomes

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=True, cancel_futures=True)
