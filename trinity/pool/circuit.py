"""Calls that fail: tried again, and a run that waits while a model is down."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from trinity.errors import UserError
from trinity.pool.base import Completion, InfrastructureError, RetrySettings

Say = Callable[[str], None]


def _to_stderr(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


@dataclass(eq=False)
class _Call:
    """When a call first failed."""

    failed_at: float | None = None


class Circuit:
    """One model's calls, with patience.

    A call that fails is tried again, up to the settings' attempts. Then it fails for good, unless nobody has
    reached the model since this call first failed: then the model is down, not the request, and the call
    goes on. After `pause_after` seconds of that a call that is alone with it fails; where others fail, too,
    the run pauses: one call at a time probes the model, the others wait. It ends with a UserError after
    `give_up_after` more.

    Args:
        agent: the model's name, for messages.
        settings: attempts and waits.
        clock: seconds, for tests.
        sleep: waits, for tests.
        say: tells the user.
    """

    def __init__(
        self,
        agent: str,
        settings: RetrySettings,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        say: Say = _to_stderr,
    ) -> None:
        self._agent = agent
        self._settings = settings
        self._clock = clock
        self._sleep = sleep
        self._say = say
        self._failing_since: float | None = None
        self._failing: set[_Call] = set()
        self._paused = False
        self._probe = asyncio.Lock()
        self._wait = wait_random_exponential(multiplier=settings.first_wait, max=settings.longest_wait)

    async def call(self, request: Callable[[], Awaitable[Completion]]) -> Completion:
        """Make a request until it is answered.

        Raises InfrastructureError if it could not be had, UserError if the model stayed down.
        """
        call = _Call()
        retrying = AsyncRetrying(
            stop=lambda state: self._is_over(state, call),
            wait=self._pause_before,
            retry=retry_if_exception_type(InfrastructureError),
            sleep=self._sleep,
            reraise=True,
        )
        async for attempt in retrying:
            with attempt:
                return await self._attempt(call, request)
        raise AssertionError("tenacity raises or goes on")

    async def _attempt(self, call: _Call, request: Callable[[], Awaitable[Completion]]) -> Completion:
        if not self._paused:
            return await self._counted(call, request)
        async with self._probe:
            if self._paused:
                await self._sleep(self._settings.probe_every)
            return await self._counted(call, request)

    async def _counted(self, call: _Call, request: Callable[[], Awaitable[Completion]]) -> Completion:
        try:
            completion = await request()
        except InfrastructureError as error:
            self._failed(call, error)
            raise
        self._reached()
        return completion

    def _reached(self) -> None:
        if self._paused:
            self._say(f"{self._agent} is back; the run goes on.")
        self._paused, self._failing_since = False, None
        self._failing.clear()

    def _failed(self, call: _Call, error: InfrastructureError) -> None:
        now = self._clock()
        if error.answered:
            self._reached()
            return
        if self._failing_since is None:
            self._failing_since = now
        call.failed_at = now if call.failed_at is None else call.failed_at
        self._failing.add(call)
        down = now - self._failing_since
        if self._paused and down >= self._settings.pause_after + self._settings.give_up_after:
            raise UserError(
                f"{self._agent} has not answered for {down / 60:.0f} minutes ({error.cause}): wait until it "
                "is back and go on with --ckpt_path, or take it out of the pool."
            )
        if not self._paused and down >= self._settings.pause_after and len(self._failing) > 1:
            self._paused = True
            self._say(
                f"{self._agent} has answered nothing for {down / 60:.1f} minutes ({error.cause}); the run is "
                f"paused and asks it again every {self._settings.probe_every:.0f} s."
            )

    def _is_over(self, state: RetryCallState, call: _Call) -> bool:
        if state.attempt_number < self._settings.attempts:
            return False
        since = self._failing_since
        throughout = since is not None and call.failed_at is not None and since <= call.failed_at
        if not throughout or since is None:
            return not self._paused
        alone = len(self._failing) == 1
        return alone and self._clock() - since >= self._settings.pause_after

    def _pause_before(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        asked = error.retry_after if isinstance(error, InfrastructureError) else None
        if self._paused:
            return 0.0
        return max(self._wait(state), asked or 0.0)
