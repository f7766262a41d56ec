import asyncio

import pytest

from trinity.errors import UserError
from trinity.pool.base import Completion, Paid
from trinity.pool.budget import Budget, BudgetReachedError, Meter, Spent

CALL = Spent(usd=0.1, calls=1, tokens=100)


async def spend(meter: Meter, most: Spent, completion: Completion | None) -> None:
    await meter.reserve(lambda: most)
    await asyncio.sleep(0)
    await meter.settle(most, Paid() if completion is None else completion.paid)


@pytest.mark.parametrize(
    ("budget", "calls"),
    [(Budget(calls=7), 7), (Budget(tokens=1000), 10), (Budget(usd=0.55), 5), (Budget(usd=1, calls=3), 3)],
)
async def test_no_more_calls_leave_than_fit(budget, calls):
    """However many ask at the same time."""
    meter = Meter(budget)
    used = Completion("x", 60, 40, 0.1)
    results = await asyncio.gather(*(spend(meter, CALL, used) for _ in range(50)), return_exceptions=True)
    assert sum(result is None for result in results) == calls
    assert {type(result) for result in results if result is not None} == {BudgetReachedError}
    assert meter.spent.calls == calls


async def test_what_is_reserved_but_not_used_is_free_again():
    """Calls that turn out cheap let others through; a call never passes on the hope that they will."""
    meter = Meter(Budget(usd=1.0))
    dear = Spent(usd=0.9, calls=1)
    cheap = Completion("x", cost=0.01)
    await asyncio.gather(*(spend(meter, dear, cheap) for _ in range(10)))
    assert meter.spent.usd == pytest.approx(0.1)
    with pytest.raises(BudgetReachedError, match=r"0.1 of 1 usd.*raise budget.usd"):
        await asyncio.gather(*(spend(meter, Spent(usd=0.95, calls=1), cheap) for _ in range(3)))


async def test_a_call_without_an_answer_costs_nothing():
    meter = Meter(Budget(calls=1))
    await spend(meter, CALL, None)
    await spend(meter, CALL, Completion("x"))
    with pytest.raises(BudgetReachedError):
        await spend(meter, CALL, None)


async def test_processes_share_a_budget():
    meter = Meter(Budget(calls=10), share=3)
    results = await asyncio.gather(
        *(spend(meter, CALL, Completion("x")) for _ in range(9)), return_exceptions=True
    )
    assert sum(result is None for result in results) == 3


def test_trajectories_are_counted_before_they_are_played():
    meter = Meter(Budget(trajectories=100))
    meter.count_trajectories(60)
    with pytest.raises(BudgetReachedError, match="60 of 100 trajectories"):
        meter.count_trajectories(60)
    meter.count_trajectories(40)


def test_what_was_spent_goes_on_whatever_the_number_of_processes():
    meter, later = Meter(Budget(), share=2), Meter(Budget(), share=4)
    meter.spent = Spent(1.5, 4, 40, 6)
    assert meter.total == Spent(3.0, 8, 80, 12)
    later.total = meter.total.at_least(Spent(4.0, 2, 80, 0))
    assert later.spent == Spent(1.0, 2, 20, 3)


@pytest.mark.parametrize("limit", [{"usd": 0}, {"calls": -1}])
def test_a_budget_of_nothing_is_refused(limit):
    with pytest.raises(UserError, match="must be above 0"):
        Budget(**limit)
