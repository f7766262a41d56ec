"""The calls of all trajectories under way: identical ones are made once, and no model gets too many."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Literal

from trinity.pool.base import Completion, DecodeParameters, InfrastructureError, Message, Paid, Pool

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


@dataclass(slots=True)
class Bill:
    """Calls made for a trajectory beside its turns: what came back, and what was paid where nothing did."""

    completions: list[Completion] = field(default_factory=list)
    lost: Paid = Paid()  # noqa: RUF009 - frozen


class Calls:
    """A pool's calls, as trajectories make them; for one event loop.

    A request (agent, messages, decode parameters) that is under way already is not made again: whoever asks
    gets the same completion, at no cost and marked as shared, or the same error. At most `concurrency` calls
    are in flight, and `pool.limits[agent]` of an agent, in the order in which they were asked for. Calls are
    limited, not trajectories: these would leave places idle while the last of them play their turns.

    Args:
        pool: answers.
        concurrency: None: as many as the agents' limits allow.
        share: how many processes share the limits; each takes its part, and at least 1.
    """

    def __init__(self, pool: Pool, concurrency: int | None = None, share: int = 1) -> None:
        def places(limit: int | None) -> AbstractAsyncContextManager[None]:
            return nullcontext() if limit is None else asyncio.Semaphore(max(1, limit // share))

        self._pool = pool
        self._flights: dict[_Key, _Flight] = {}
        self._all = places(concurrency)
        self._free = [places(limit) for limit in pool.limits]

    def name(self, agent: int) -> str:
        """An agent's name."""
        return self._pool.agents[agent]

    async def complete(self, agent: int, messages: Sequence[Message], decode: DecodeParameters) -> Completion:
        """Ask one agent. Raises what the pool raises. What needs no call waits for none."""
        key = agent, decode, tuple((message["role"], message["content"]) for message in messages)
        while (flight := self._flights.get(key)) is not None:
            future: asyncio.Future[Completion | Literal["abandoned"]]
            future = asyncio.get_running_loop().create_future()
            flight.waiting.append(future)
            try:
                found = await future
            except InfrastructureError as error:
                raise error.for_another() from None
            if found != "abandoned":
                return found.from_elsewhere("shared")
        if (known := self._pool.known(agent, messages, decode)) is not None:
            return known
        flight = self._flights[key] = _Flight()
        outcome: Completion | Literal["abandoned"] | Exception = "abandoned"
        try:
            # The agent's place first: one that waits for it must not keep other agents' calls waiting.
            async with self._free[agent], self._all:
                outcome = await self._pool.complete(agent, messages, decode)
                return outcome
        except Exception as error:
            outcome = error
            raise
        finally:
            del self._flights[key]
            flight.land(outcome)

    def asker(self, agent: int, decode: DecodeParameters, bill: Bill) -> Callable[[str, str], Awaitable[str]]:
        """A function (system text, user text) -> reply of one agent, within the same limits.

        Each call is put on the bill, for whoever has to account for it.
        """

        async def ask(system: str, user: str) -> str:
            messages: list[Message] = [
                {"role": "system", "content": system},
                {"role": "user", "content": user},
            ]
            try:
                completion = await self.complete(agent, messages, decode)
            except InfrastructureError as error:
                bill.lost += error.paid
                raise
            bill.completions.append(completion)
            return completion.text

        return ask
