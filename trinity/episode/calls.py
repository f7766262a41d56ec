"""The calls of all trajectories under way: identical ones are made once, and no model gets too many."""

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Literal

from trinity.pool.base import Completion, DecodeParameters, Message, Pool

_Key = tuple[int, DecodeParameters, tuple[tuple[str, str], ...]]


@dataclass(slots=True)
class _Flight:
    """A call under way, and those who wait for another's. "abandoned": whoever made it was cancelled."""

    waiting: list[asyncio.Future[Completion | Literal["abandoned"]]] = field(default_factory=list)

    def land(self, outcome: Completion | Literal["abandoned"] | Exception) -> None:
        for future in self.waiting:
            if future.done():
                continue
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)


class Calls:
    """A pool's calls, as trajectories make them; for one event loop.

    A request (agent, messages, decode parameters) that is under way already is not made again: whoever asks
    gets the same completion, at no cost and marked as shared, or the same error. At most `pool.limits[agent]`
    calls of an agent are in flight, in the order in which they were asked for.

    Args:
        pool: answers.
        share: how many processes share the limits; each takes its part, and at least 1.
    """

    def __init__(self, pool: Pool, share: int = 1) -> None:
        self._pool = pool
        self._flights: dict[_Key, _Flight] = {}
        self._free = [
            nullcontext() if limit is None else asyncio.Semaphore(max(1, limit // share))
            for limit in pool.limits
        ]

    async def complete(self, agent: int, messages: Sequence[Message], decode: DecodeParameters) -> Completion:
        """Ask one agent. Raises what the pool raises."""
        key = agent, decode, tuple((message["role"], message["content"]) for message in messages)
        while (flight := self._flights.get(key)) is not None:
            future: asyncio.Future[Completion | Literal["abandoned"]]
            future = asyncio.get_running_loop().create_future()
            flight.waiting.append(future)
            found = await future
            if found != "abandoned":
                return replace(found, cost=0.0, source="shared")
        flight = self._flights[key] = _Flight()
        outcome: Completion | Literal["abandoned"] | Exception = "abandoned"
        try:
            async with self._free[agent]:
                outcome = await self._pool.complete(agent, messages, decode)
                return outcome
        except Exception as error:
            outcome = error
            raise
        finally:
            del self._flights[key]
            flight.land(outcome)
