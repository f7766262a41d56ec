import asyncio

import pytest

from tests.pool.test_circuit import Time
from trinity.pool.base import Pace
from trinity.pool.pacing import Pacer


async def departures(pacer: Pacer, clock: Time, tokens: list[int]) -> list[float]:
    """When each of these requests leaves, asked for one after another."""
    left = []
    for count in tokens:
        await pacer.admit(count)
        left.append(clock.now)
    return left


async def test_requests_leave_evenly():
    clock = Time()
    pacer = Pacer(Pace(requests_per_minute=30), 1, lambda: clock.now, clock.sleep)
    assert await departures(pacer, clock, [0] * 4) == [0, 2, 4, 6]


async def test_tokens_are_counted_and_corrected():
    clock = Time()
    pacer = Pacer(Pace(tokens_per_minute=600), 1, lambda: clock.now, clock.sleep)
    assert await departures(pacer, clock, [100, 10, 10]) == [0, 10, 11]
    pacer.settle(expected=10, actual=110)
    assert await departures(pacer, clock, [0]) == [22]


async def test_processes_share_a_pace():
    clock = Time()
    pacer = Pacer(Pace(requests_per_minute=30), 2, lambda: clock.now, clock.sleep)
    assert await departures(pacer, clock, [0] * 3) == [0, 4, 8]


async def test_no_pace_waits_for_nothing():
    clock = Time()
    pacer = Pacer(Pace(), 1, lambda: clock.now, clock.sleep)
    assert await departures(pacer, clock, [10**9] * 3) == [0, 0, 0]


@pytest.mark.parametrize("rate", [7, 60, 1000])
async def test_many_at_once_keep_to_the_pace(rate):
    clock = Time()
    started: list[float] = []

    async def sleep(seconds: float) -> None:
        started.append(clock.now + seconds)

    pacer = Pacer(Pace(requests_per_minute=rate), 1, lambda: clock.now, sleep)
    await asyncio.gather(*(pacer.admit(1) for _ in range(rate + 1)))
    assert max(started) == pytest.approx(60.0)


async def test_a_request_that_was_cancelled_before_it_left_takes_no_tokens():
    clock = Time()
    pacer = Pacer(Pace(tokens_per_minute=60), 1, lambda: clock.now, clock.sleep)
    await pacer.admit(10)

    async def interrupted(seconds: float) -> None:
        raise asyncio.CancelledError

    pacer._sleep = interrupted
    with pytest.raises(asyncio.CancelledError):
        await pacer.admit(1000)
    pacer._sleep = clock.sleep
    assert await departures(pacer, clock, [0]) == [10]
