"""Work that many ask for at a time is done once."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

ResultT = TypeVar("ResultT")


@dataclass(slots=True)
class _Work(Generic[ResultT]):
    """What is under way, and how many wait for it."""

    task: asyncio.Task[ResultT]
    waiting: int = 0


class Once(Generic[ResultT]):
    """Results by key: work under way is shared, a result is remembered, a failure is not.

    Everybody who waits gets the result, or the same exception. Who is cancelled takes nothing from the
    others; the work is cancelled with the last who waits for it. Work is shared within one event loop.

    Args:
        remembered: how many results; beyond that the oldest is forgotten.
    """

    def __init__(self, remembered: int) -> None:
        self._remembered = remembered
        self._results: dict[Hashable, ResultT] = {}
        self._under_way: dict[Hashable, _Work[ResultT]] = {}

    async def get(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
        """The key's result; `work` is called where it is neither known nor under way.

        Raises what the work raises.
        """
        if key in self._results:
            return self._results[key]
        under_way = self._under_way.get(key)
        if under_way is None or under_way.task.get_loop() is not asyncio.get_running_loop():
            under_way = self._begin(key, work)
        under_way.waiting += 1
        try:
            await asyncio.wait([under_way.task])
        finally:
            under_way.waiting -= 1
            if not under_way.waiting and not under_way.task.done():
                self._ended(key, under_way)  # nobody who comes now may join what is being cancelled
                under_way.task.cancel()
        return under_way.task.result()

    def forget(self) -> None:
        """Forget all results."""
        self._results.clear()

    def _begin(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, ResultT]]) -> _Work[ResultT]:
        under_way = _Work(asyncio.create_task(work()))
        self._under_way[key] = under_way

        def done(task: asyncio.Task[ResultT]) -> None:
            self._ended(key, under_way)
            # To ask for the exception is to have seen it: nobody may be left who would.
            if not task.cancelled() and task.exception() is None:
                self._remember(key, task.result())

        under_way.task.add_done_callback(done)
        return under_way

    def _ended(self, key: Hashable, under_way: _Work[ResultT]) -> None:
        if self._under_way.get(key) is under_way:
            del self._under_way[key]

    def _remember(self, key: Hashable, result: ResultT) -> None:
        self._results[key] = result
        if len(self._results) > self._remembered:
            del self._results[next(iter(self._results))]
