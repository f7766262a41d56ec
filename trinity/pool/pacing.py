"""At most so many requests and tokens a minute."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from trinity.pool.base import Pace

_MINUTE = 60.0


class Pacer:
    """Lets requests of one model through, evenly spaced: each moves the time at which the next may leave.

    A quota counts what a server sees in any minute; even spacing keeps to it without knowing where the
    server's minutes begin.

    Args:
        pace: what is allowed.
        share: how many processes share it.
    """

    def __init__(
        self,
        pace: Pace,
        share: int = 1,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._for_request = _MINUTE * share / pace.requests_per_minute if pace.requests_per_minute else 0.0
        self._for_token = _MINUTE * share / pace.tokens_per_minute if pace.tokens_per_minute else 0.0
        self._clock = clock
        self._sleep = sleep
        self._requests_at = self._tokens_at = float("-inf")

    async def admit(self, tokens: int) -> None:
        """Wait until a request of about so many tokens may leave."""
        now = self._clock()
        at = max(now, self._requests_at, self._tokens_at)
        self._requests_at = at + self._for_request
        self._tokens_at = max(self._tokens_at, at) + tokens * self._for_token
        if at > now:
            try:
                await self._sleep(at - now)
            except BaseException:  # it never left
                self.settle(tokens, 0)
                raise

    def settle(self, expected: int, actual: int) -> None:
        """Correct what `admit` was told: later requests leave later, or sooner.

        A request that failed took what was paid for it, mostly nothing.
        """
        self._tokens_at += (actual - expected) * self._for_token
