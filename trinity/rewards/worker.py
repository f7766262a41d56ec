"""The processes in which algebra runs: started when first needed, killed when it takes too long."""

import asyncio
import multiprocessing
import signal
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool

from pebble import ProcessExpired, ProcessPool

from trinity.rewards import algebra

_WALL_FACTOR = 5.0
_ANSWERS_FAULT = (-signal.SIGPROF, -signal.SIGSEGV, -signal.SIGABRT)


class AlgebraWorkers:
    """A pool of processes for `trinity.rewards.algebra`.

    They are forked from a server process that never saw torch (forking beside its threads deadlocks) and has
    the parser loaded, so that a killed worker is replaced within milliseconds.

    Args:
        workers: how many processes.
        cpu_seconds: how much CPU time one question may take; then the kernel ends the process. Five times as
            much wall time is the stop for a process that does not run at all.
    """

    def __init__(self, workers: int, cpu_seconds: float) -> None:
        self._workers = workers
        self._cpu_seconds = cpu_seconds
        self._pool: ProcessPool | None = None

    async def equal(self, reference: str, answer: str) -> bool | None:
        """Whether two LaTeX texts are equal; None if algebra ran out of time, memory or stack."""
        for _ in range(2):  # a worker that someone else killed says nothing about the answer
            try:
                future = self._schedule(algebra.answer_in, reference, answer)
                return await asyncio.wrap_future(future)
            except (ProcessExpired, TimeoutError, BrokenProcessPool) as error:
                if self._is_final(error):
                    return None
        raise RuntimeError(f"the algebra worker died twice on {answer[:80]!r}")

    def readable(self, reference: str) -> bool:
        """Whether a reference can be parsed. Blocks; for loading time."""
        for _ in range(2):
            try:
                return bool(self._schedule(algebra.readable, reference).result())
            except (ProcessExpired, TimeoutError, BrokenProcessPool) as error:
                if self._is_final(error):
                    return False
        raise RuntimeError(f"the algebra worker died twice on the reference {reference[:80]!r}")

    def _schedule(self, function: Callable[..., bool], *texts: str) -> "Future[bool]":
        if self._pool is None:
            context = multiprocessing.get_context("forkserver")
            # __main__ is named, too: else each worker would import it anew, torch and all.
            context.set_forkserver_preload(["__main__", "trinity.rewards.preload"])
            self._pool = ProcessPool(self._workers, initializer=algebra.prepare_worker, context=context)
        future: Future[bool] = self._pool.schedule(
            function, args=(self._cpu_seconds, *texts), timeout=_WALL_FACTOR * self._cpu_seconds
        )
        return future

    def _is_final(self, error: Exception) -> bool:
        if isinstance(error, BrokenProcessPool):
            self.close()
        return isinstance(error, TimeoutError) or (
            isinstance(error, ProcessExpired) and error.exitcode in _ANSWERS_FAULT
        )

    def close(self) -> None:
        """End the processes. A later question starts them again."""
        if self._pool is not None:
            self._pool.stop()
            self._pool.join()
            self._pool = None
