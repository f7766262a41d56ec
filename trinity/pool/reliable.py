"""A pool whose calls are kept, paced, retried and counted."""

import asyncio
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trinity.errors import UserError
from trinity.pool.base import (
    Completion,
    DecodeParameters,
    InfrastructureError,
    Message,
    Pace,
    Paid,
    Pool,
    RequestRefusedError,
)
from trinity.pool.budget import Meter, Spent
from trinity.pool.cache import Store, request_of
from trinity.pool.circuit import Circuit
from trinity.pool.pacing import Pacer

_LAST_WAIT = 120.0
_PLAIN_QUESTION: list[Message] = [{"role": "user", "content": "Reply with the word OK."}]
_CHARACTERS_A_TOKEN = 3.0  # on the safe side for English; other scripts take more tokens


class ReliablePool(Pool):
    """What stands between trajectories and a pool: the cache first, then budget, pace, and patience.

    Args:
        pool: answers.
        store: keeps what it answered; None keeps nothing.
        replay: never call the pool: what the store lacks is a UserError.
        meter: keeps to a budget; None has none.
    """

    def __init__(
        self,
        pool: Pool,
        store: Store | None = None,
        *,
        replay: bool = False,
        meter: Meter | None = None,
    ) -> None:
        self._pool = pool
        self._store = store
        self._replay = replay
        self._meter = meter
        self._pacers = [Pacer(pace) for pace in pool.paces]
        retry = pool.retry
        self._circuits = [Circuit(name, retry) if retry is not None else None for name in pool.agents]
        # What a simulated pool needs none of, at its tens of thousands of calls a minute.
        self._is_plain = (
            store is None
            and not any(self._circuits)
            and all(pace == Pace() for pace in pool.paces)
            and (meter is None or not meter.is_limited)
        )
        self._dearest: list[float | None] = [None] * len(pool.agents)
        self._answers = [False] * len(pool.agents)
        self._under_way: set[asyncio.Task[Completion]] = set()

    def share_with(self, processes: int) -> None:
        """Keep to this process's part of paces and budget from now on."""
        self._pacers = [Pacer(pace, processes) for pace in self._pool.paces]
        if self._meter is not None:
            self._meter.share = processes

    @property
    def agents(self) -> Sequence[str]:
        """The pool's."""
        return self._pool.agents

    @property
    def limits(self) -> Sequence[int | None]:
        """The pool's."""
        return self._pool.limits

    def identity(self, agent: int, decode: DecodeParameters) -> dict[str, Any]:
        """The pool's."""
        return self._pool.identity(agent, decode)

    def check(self) -> None:
        """The pool's, unless it is never called.

        Raises UserError, too, where dollars are limited and some model's calls can't be told in dollars.
        """
        if self._replay:
            super().check()
            return
        self._pool.check()
        if self._meter is None or not self._meter.limits_usd:
            return
        unknown = [n for n, told in zip(self.agents, self._pool.states_cost, strict=True) if not told]
        if unknown:
            raise UserError(
                f"budget.usd can't be kept: the server of {', '.join(unknown)} may not state what a call "
                "costs; give the model a price {prompt, completion} (zeros if it is free), or limit "
                "budget.tokens or budget.calls instead."
            )

    def known(self, agent: int, messages: Sequence[Message], decode: DecodeParameters) -> Completion | None:
        """What the store holds. Raises UserError where nothing else may answer."""
        if self._store is None:
            return None
        key, _ = request_of(self._pool, agent, messages, decode)
        found = self._store.get(key)
        if found is None and self._replay:
            raise UserError(
                f"The cache to replay holds no answer of {self.agents[agent]} to "
                f"{messages[-1]['content'][:60]!r}…: replay the config and seed that were recorded, or set "
                "cache.mode to read_write."
            )
        return found

    async def complete(self, agent: int, messages: Sequence[Message], decode: DecodeParameters) -> Completion:
        """See `Pool.complete`. Raises UserError, too, where the budget or the patience is used up."""
        if self._is_plain:
            completion = await self._pool.complete(agent, messages, decode)
            if self._meter is not None:
                self._meter.count(completion.paid)
            return completion
        return self.known(agent, messages, decode) or await self._called(agent, messages, decode)

    async def _called(self, agent: int, messages: Sequence[Message], decode: DecodeParameters) -> Completion:
        most = self._most(agent, messages, decode)
        if self._meter is not None:
            most = await self._meter.reserve(lambda: self._most(agent, messages, decode))
        bill: list[Paid] = []
        try:
            completion = await self._patiently(agent, messages, decode, most.tokens, bill)
            self._dearest[agent] = max(self._dearest[agent] or 0.0, completion.cost)
        except InfrastructureError as error:
            error.paid = Paid.total(bill)
            raise
        finally:
            if self._meter is not None:
                await self._meter.settle(most, Paid.total(bill))
        if not completion.is_priced and self._meter is not None and self._meter.limits_usd:
            raise UserError(
                f"budget.usd can't be kept: the server of {self.agents[agent]} stated no cost for a call; "
                "give the model a price {prompt, completion}, and go on with --ckpt_path."
            )
        return completion

    async def _patiently(
        self,
        agent: int,
        messages: Sequence[Message],
        decode: DecodeParameters,
        expected: int,
        bill: list[Paid],
    ) -> Completion:
        """One answer, after as many attempts as it takes; what was paid for each is added to the bill."""
        pacer, circuit = self._pacers[agent], self._circuits[agent]

        async def request() -> Completion:
            await pacer.admit(expected)
            paid = Paid()
            try:
                completion = await self._made(agent, messages, decode)
                paid = completion.paid
            except InfrastructureError as error:
                paid = error.paid
                raise
            finally:
                pacer.settle(expected, paid.tokens)
                bill.append(paid)
            return completion

        completion = await (request() if circuit is None else circuit.call(request))
        return replace(completion, wasted=completion.wasted + Paid.total(bill[:-1]))

    async def _made(self, agent: int, messages: Sequence[Message], decode: DecodeParameters) -> Completion:
        """One request. Whoever waits for it may be cancelled; what is asked for is paid for, and kept."""
        store = self._store
        if store is None:
            return await self._taken(agent, messages, decode)

        async def kept() -> Completion:
            try:
                completion = await self._taken(agent, messages, decode)
            except InfrastructureError as error:
                if error.paid.calls:
                    store.waste(error.paid)
                raise
            store.put(*request_of(self._pool, agent, messages, decode), completion)
            if completion.wasted.calls:
                store.waste(completion.wasted)
            return completion

        task = asyncio.ensure_future(kept())
        self._under_way.add(task)
        task.add_done_callback(self._landed)
        return await asyncio.shield(task)

    async def _taken(self, agent: int, messages: Sequence[Message], decode: DecodeParameters) -> Completion:
        """One request, and whether a refusal is its own fault.

        A refused request has an empty answer if the model takes others. It is asked a plain question to find
        out, unless it has answered something since the last refusal: so a model that was never right, or that
        is locked in the middle of a run, gives no second empty answer. Raises UserError for such a model.
        """
        try:
            completion = await self._pool.complete(agent, messages, decode)
        except RequestRefusedError as refused:
            if self._answers[agent]:
                self._answers[agent] = False
                return refused.completion
            asked = await self._pool.complete(agent, _PLAIN_QUESTION, decode)
            return replace(refused.completion, wasted=asked.paid)
        self._answers[agent] = True
        return completion

    def _landed(self, task: "asyncio.Task[Completion]") -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # where nobody waits any more, nobody asks for it either

    def _most(self, agent: int, messages: Sequence[Message], decode: DecodeParameters) -> Spent:
        """What a call may take at most, as far as it can be known before it."""
        prompt = int(sum(len(message["content"]) for message in messages) / _CHARACTERS_A_TOKEN) + 16
        longest = int(self._pool.identity(agent, decode).get("max_tokens", decode.max_tokens))
        price, known = self._pool.prices[agent], self._dearest[agent]
        if price is not None:  # which may lie below what the server states
            known = max(price.of(prompt, longest), known or 0.0)
        return Spent(usd=math.inf if known is None else known, calls=1, tokens=prompt + longest)

    async def aclose(self) -> None:
        """Wait for answers under way, which are paid for and kept, then close the pool's connections."""
        try:
            if self._under_way:
                count = len(self._under_way)
                notice = f"Waiting for {count} answers under way, to keep them (Ctrl-C: drop them)."
                print(notice, file=sys.stderr)
                await asyncio.wait(self._under_way, timeout=_LAST_WAIT)
        finally:
            await self._pool.aclose()
