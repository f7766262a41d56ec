"""Identical calls are made once, and no agent gets too many at a time."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from trinity.episode.calls import Bill, Calls
from trinity.errors import UserError
from trinity.pool.base import Completion, DecodeParameters, InfrastructureError, Message, Paid, Pool

GREEDY = DecodeParameters()


def asking(text: str) -> list[Message]:
    return [{"role": "system", "content": "s"}, {"role": "user", "content": text}]


class Held(Pool):
    """Answers when it is told to."""

    agents = ("a", "b")

    def __init__(self, limits: Sequence[int | None] = (None, None)) -> None:
        self._limits = limits
        self.made: list[tuple[int, str, DecodeParameters]] = []
        self.held: list[asyncio.Future[Completion]] = []

    @property
    def limits(self) -> Sequence[int | None]:
        return self._limits

    async def complete(self, agent: int, messages: Sequence[Message], decode: DecodeParameters) -> Completion:
        self.made.append((agent, messages[-1]["content"], decode))
        self.held.append(asyncio.get_running_loop().create_future())
        return await self.held[-1]

    def answer(self, index: int, text: str = "yes") -> None:
        self.held[index].set_result(Completion(text, 10, 5, 0.25))


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


def start(
    calls: Calls, text: str, agent: int = 0, decode: DecodeParameters = GREEDY
) -> asyncio.Task[Completion]:
    return asyncio.create_task(calls.complete(agent, asking(text), decode))


async def test_identical_requests_in_flight_are_made_once() -> None:
    pool = Held()
    calls = Calls(pool)
    asked = [start(calls, "same") for _ in range(4)]
    await settle()
    assert len(pool.made) == 1
    pool.answer(0)
    first, *others = await asyncio.gather(*asked)
    assert (first.cost, first.source) == (0.25, "call")
    assert [(c.cost, c.source) for c in others] == [(0.0, "shared")] * 3
    assert all(other == first for other in others), "who paid is no part of what was said"


async def test_other_requests_are_other_calls() -> None:
    pool = Held()
    calls = Calls(pool)
    warm = replace(GREEDY, temperature=0.7)
    asked = [start(calls, "x"), start(calls, "y"), start(calls, "x", agent=1), start(calls, "x", decode=warm)]
    await settle()
    assert len(pool.made) == 4
    for index in range(4):
        pool.answer(index, str(index))
    assert [c.text for c in await asyncio.gather(*asked)] == ["0", "1", "2", "3"]


async def test_what_has_come_back_is_asked_again() -> None:
    pool = Held()
    calls = Calls(pool)
    for index in range(2):
        asked = start(calls, "same")
        await settle()
        pool.answer(index, str(index))
        assert (await asked).text == str(index)
    assert len(pool.made) == 2


@pytest.mark.parametrize("error", [InfrastructureError("a", "timeout"), UserError("no such model")])
async def test_an_error_reaches_all_who_asked(error: Exception) -> None:
    pool = Held()
    calls = Calls(pool)
    asked = [start(calls, "same") for _ in range(3)]
    await settle()
    pool.held[0].set_exception(error)
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert [(type(each), str(each)) for each in found] == [(type(error), str(error))] * 3
    again = start(calls, "same")
    await settle()
    pool.answer(1)
    assert (await again).source == "call"


async def test_a_cancelled_asker_does_not_take_the_others_with_it() -> None:
    pool = Held()
    calls = Calls(pool)
    first, second, third = (start(calls, "same") for _ in range(3))
    await settle()
    first.cancel()
    await settle()
    assert len(pool.made) == 2, "one of the others asks anew"
    pool.answer(1)
    assert {(await second).source, (await third).source} == {"call", "shared"}
    assert first.cancelled()


async def test_a_cancelled_waiter_hurts_nobody() -> None:
    pool = Held()
    calls = Calls(pool)
    first, second = (start(calls, "same") for _ in range(2))
    await settle()
    second.cancel()
    pool.answer(0)
    assert (await first).text == "yes"


async def test_each_agent_has_its_own_limit_and_order_is_kept() -> None:
    pool = Held((2, None))
    calls = Calls(pool)
    asked = [start(calls, str(i)) for i in range(5)] + [start(calls, str(i), agent=1) for i in range(3)]
    await settle()
    assert [text for agent, text, _ in pool.made if agent == 0] == ["0", "1"]
    assert [text for agent, text, _ in pool.made if agent == 1] == ["0", "1", "2"]
    pool.answer(1)
    await settle()
    assert [text for agent, text, _ in pool.made if agent == 0] == ["0", "1", "2"]
    while not all(task.done() for task in asked):
        for future in pool.held:
            if not future.done():
                future.set_result(Completion("yes"))
        await settle()
    assert [text for agent, text, _ in pool.made if agent == 0] == ["0", "1", "2", "3", "4"]


async def test_all_agents_together_have_a_limit_and_none_holds_up_another() -> None:
    pool = Held((1, None))
    calls = Calls(pool, concurrency=2)
    asked = [start(calls, "x"), start(calls, "y"), start(calls, "x", agent=1), start(calls, "y", agent=1)]
    await settle()
    # The first agent's second call waits for its own place, and takes none of the common ones meanwhile.
    assert [(agent, text) for agent, text, _ in pool.made] == [(0, "x"), (1, "x")]
    pool.answer(1)
    await settle()
    assert [(agent, text) for agent, text, _ in pool.made][2:] == [(1, "y")]
    pool.answer(0)
    await settle()
    for index in (2, 3):
        pool.answer(index)
    assert len(await asyncio.gather(*asked)) == 4


async def test_a_shared_call_takes_one_place() -> None:
    pool = Held((1, None))
    calls = Calls(pool)
    asked = [start(calls, "same"), start(calls, "same"), start(calls, "other")]
    await settle()
    pool.answer(0)
    await settle()
    assert [text for _, text, _ in pool.made] == ["same", "other"]
    pool.answer(1)
    await asyncio.gather(*asked)


async def test_a_failed_call_frees_its_place() -> None:
    pool = Held((1, None))
    calls = Calls(pool)
    first, second = start(calls, "x"), start(calls, "y")
    await settle()
    pool.held[0].set_exception(InfrastructureError("a", "timeout"))
    await settle()
    pool.answer(1)
    assert (await second).text == "yes"
    with pytest.raises(InfrastructureError):
        await first


@pytest.mark.parametrize(("limit", "share", "allowed"), [(7, 2, 3), (1, 4, 1), (4, 1, 4)])
async def test_processes_share_the_limits(limit: int, share: int, allowed: int) -> None:
    pool = Held((limit, None))
    calls = Calls(pool, share=share)
    asked = [start(calls, str(i)) for i in range(8)]
    await settle()
    assert len(pool.made) == allowed
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)


class Knowing(Held):
    """Knows the answer to one request."""

    def known(self, agent: int, messages: Sequence[Message], decode: DecodeParameters) -> Completion | None:
        known = Completion("of old", 7, 3, source="cache")
        return known if messages[-1]["content"] == "old" else None


async def test_an_answer_that_is_known_waits_for_no_place() -> None:
    pool = Knowing(limits=(1, 1))
    calls = Calls(pool, concurrency=1)
    slow = [start(calls, "new"), start(calls, "newer")]
    await settle()
    assert (await start(calls, "old")).text == "of old", "though the only place is taken"
    assert [text for _, text, _ in pool.made] == ["new"]
    pool.answer(0)
    await settle()
    pool.answer(1)
    await asyncio.gather(*slow)


async def test_a_failure_is_paid_for_by_whoever_made_the_call() -> None:
    pool = Held()
    calls = Calls(pool)
    asked = [start(calls, "same") for _ in range(3)]
    await settle()
    pool.held[0].set_exception(InfrastructureError("a", "empty", answered=True, paid=Paid(0.5, 8, 70, 30)))
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert [each.paid for each in found if isinstance(each, InfrastructureError)] == [
        Paid(0.5, 8, 70, 30), Paid(), Paid(),
    ]  # fmt: skip


async def test_an_asker_accounts_for_its_calls() -> None:
    pool = Held()
    bill = Bill()
    ask = Calls(pool).asker(1, GREEDY, bill)
    asked = asyncio.ensure_future(ask("rules", "texts"))
    await settle()
    pool.answer(0, "SAME")
    assert (await asked, [completion.paid.usd for completion in bill.completions]) == ("SAME", [0.25])
    asked = asyncio.ensure_future(ask("rules", "other texts"))
    await settle()
    pool.held[1].set_exception(InfrastructureError("b", "empty", paid=Paid(0.5, 8)))
    with pytest.raises(InfrastructureError):
        await asked
    assert bill.lost == Paid(0.5, 8)
