"""Decisions on a thread of their own, handed over in batches."""

import asyncio
import time
from bisect import insort
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeVar

Request = TypeVar("Request")
Result = TypeVar("Result")

_BATCH_SECONDS = 0.02
_MOST_AT_ONCE = 64


@dataclass(order=True, slots=True)
class _Waiting(Generic[Request, Result]):
    rank: tuple[int, int]
    request: Request = field(compare=False)
    future: asyncio.Future[Result] = field(compare=False)


class DecisionThread(Generic[Request, Result]):
    """Serves requests of one event loop, one after another, on one thread.

    The loop stays free for LLM calls meanwhile. A hand-over between threads costs about as much as a decision
    of a small model, so that each hand-over serves as many requests as are waiting, up to 20 ms of work.

    Args:
        decide: request -> result; runs on the thread.
    """

    def __init__(self, decide: Callable[[Request], Result]) -> None:
        self._decide = decide
        self._waiting: list[_Waiting[Request, Result]] = []
        self._arrivals = count()
        self._serving: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="decisions")

    async def submit(self, request: Request, urgency: int = 0) -> Result:
        """The result of one request. Raises what `decide` raised for it.

        The more urgent goes first, and of equally urgent ones the one that came first.
        """
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        insort(self._waiting, _Waiting((-urgency, next(self._arrivals)), request, future))
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve())
        return await future

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            taken, self._waiting = self._waiting[:_MOST_AT_ONCE], self._waiting[_MOST_AT_ONCE:]
            # A cancelled trajectory no longer waits for its decision.
            taken = [waiting for waiting in taken if not waiting.future.done()]
            requests = [waiting.request for waiting in taken]
            outcomes = await loop.run_in_executor(self._thread, self._decide_some, requests)
            for waiting, outcome in zip(taken, outcomes, strict=False):
                if waiting.future.done():
                    continue
                if isinstance(outcome, Exception):
                    waiting.future.set_exception(outcome)
                else:
                    waiting.future.set_result(outcome)
            for waiting in taken[len(outcomes) :]:
                insort(self._waiting, waiting)

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
