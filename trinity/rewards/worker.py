"""The processes in which algebra runs: started when first needed, killed when it takes too long."""

import asyncio
import multiprocessing
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

from pebble import ProcessExpired, ProcessPool

from trinity.rewards.grade import GraderClosedError

_WALL_FACTOR = 5.0
_ANSWERS_FAULT = (-signal.SIGPROF, -signal.SIGSEGV, -signal.SIGABRT)


@dataclass(eq=False, slots=True)
class _Started:
    """A pool of processes, what it was asked and has not answered, and whether it was closed on purpose."""

    pool: ProcessPool
    under_way: set[Future[bool]] = field(default_factory=set)
    closed: bool = False

    def ask(self, function: Callable[..., bool], cpu_seconds: float, *texts: str) -> "Future[bool]":
        """Raises BrokenProcessPool where the pool is at its end."""
        try:
            future: Future[bool] = self.pool.schedule(
                function, args=(cpu_seconds, *texts), timeout=_WALL_FACTOR * cpu_seconds
            )
        except RuntimeError as error:
            raise BrokenProcessPool("the pool takes no more questions") from error
        self.under_way.add(future)
        future.add_done_callback(self.under_way.discard)
        return future

    def end(self) -> None:
        """Kill the processes. What was not answered fails with BrokenProcessPool."""
        with ExitStack() as stack:
            stack.callback(self._give_up)
            for step in (self.pool.join, self.pool.stop):  # once more, where an interrupt ends the first time
                stack.callback(step)
            self.pool.stop()
            self.pool.join()  # kills

    def _give_up(self) -> None:
        for future in tuple(self.under_way):  # a pool that was stopped never answers
            with suppress(InvalidStateError):
                future.set_exception(BrokenProcessPool("the pool was ended"))


class AlgebraWorkers:
    """A pool of processes for `trinity.rewards.algebra`.

    They are forked from a server process that never saw torch (forking beside its threads deadlocks) and has
    the parser loaded, so that a killed worker is replaced within milliseconds. This process never loads it.

    Args:
        workers: how many processes.
        cpu_seconds: how much CPU time one question may take; then the kernel ends the process. Five times as
            much wall time is the stop for a process that does not run at all.
    """

    def __init__(self, workers: int, cpu_seconds: float) -> None:
        self._workers = workers
        self._cpu_seconds = cpu_seconds
        self._lock = threading.Lock()
        self._started: _Started | None = None

    async def equal(self, reference: str, answer: str) -> bool | None:
        """Whether two LaTeX texts are equal; None if algebra ran out of time, memory or stack.

        Raises GraderClosedError where `close` comes first.
        """
        for _ in range(2):  # a worker that someone else killed says nothing about the answer
            started = self._start()
            try:
                return await asyncio.wrap_future(started.ask(_equal, self._cpu_seconds, reference, answer))
            except (ProcessExpired, TimeoutError, BrokenProcessPool) as error:
                if self._is_final(started, error):
                    return None
        raise RuntimeError(f"the algebra worker died twice on {answer[:80]!r}")

    def readable(self, reference: str) -> bool:
        """Whether a reference can be parsed. Blocks; for loading time. Raises as `equal` does."""
        for _ in range(2):
            started = self._start()
            try:
                return started.ask(_readable, self._cpu_seconds, reference).result()
            except (ProcessExpired, TimeoutError, BrokenProcessPool) as error:
                if self._is_final(started, error):
                    return False
        raise RuntimeError(f"the algebra worker died twice on the reference {reference[:80]!r}")

    def _start(self) -> _Started:
        with self._lock:
            if self._started is None:
                context = multiprocessing.get_context("forkserver")
                # __main__ is named, too: else each worker would import it anew, torch and all.
                context.set_forkserver_preload(["__main__", "trinity.rewards.preload"])
                self._started = _Started(ProcessPool(self._workers, initializer=_prepare, context=context))
            return self._started

    def _is_final(self, started: _Started, error: Exception) -> bool:
        """Whether it is the question that ended its worker."""
        if started.closed:
            raise GraderClosedError from error
        if isinstance(error, BrokenProcessPool) and self._started is started:
            self._end(started)  # others may wait for it, too: they all ask the next one
        return isinstance(error, TimeoutError) or (
            isinstance(error, ProcessExpired) and error.exitcode in _ANSWERS_FAULT
        )

    def close(self) -> None:
        """End the processes. A later question starts them again.

        Questions under way have no answer: who waits for one gets GraderClosedError.
        """
        started = self._started
        if started is not None:
            started.closed = True
            self._end(started)

    def _end(self, started: _Started) -> None:
        try:
            started.end()
        finally:
            if self._started is started:
                self._started = None


# What runs in the processes; algebra is loaded there alone.


def _prepare() -> None:
    from trinity.rewards import algebra

    algebra.prepare_worker()


def _equal(cpu_seconds: float, reference: str, answer: str) -> bool:
    from trinity.rewards import algebra

    return algebra.answer_in(cpu_seconds, reference, answer)


def _readable(cpu_seconds: float, reference: str) -> bool:
    from trinity.rewards import algebra

    return algebra.readable(cpu_seconds, reference)
