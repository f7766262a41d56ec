"""Retries and pauses, on a clock of the test's own."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from trinity.errors import UserError
from trinity.pool.base import Completion, InfrastructureError, RetrySettings
from trinity.pool.circuit import Circuit

DONE = Completion("2")


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def circuit(clock: Time, said: list[str]) -> Callable[..., Circuit]:
    def make(**settings: float) -> Circuit:
        chosen = RetrySettings(**settings)  # type: ignore[arg-type]
        return Circuit("m", chosen, lambda: clock.now, clock.sleep, said.append)

    return make


def failing(
    times: int, retry_after: float | None = None, answered: bool = False
) -> Callable[[], Awaitable[Completion]]:
    left = [times]

    async def request() -> Completion:
        left[0] -= 1
        if left[0] >= 0:
            raise InfrastructureError("m", "status 500", retry_after, answered=answered)
        return DONE

    return request


async def test_a_call_is_tried_again_until_it_is_answered(circuit, clock):
    assert await circuit(attempts=4).call(failing(3)) is DONE
    assert len(clock.slept) == 3
    assert all(seconds <= limit for seconds, limit in zip(clock.slept, (1, 2, 4), strict=True))


async def test_a_request_that_gets_no_usable_answer_ends_after_its_attempts(circuit, clock):
    with pytest.raises(InfrastructureError, match="status 500"):
        await circuit(attempts=3).call(failing(99, answered=True))
    assert len(clock.slept) == 2


async def test_a_request_that_alone_fails_goes_on_while_nobody_is_answered(circuit, clock, said):
    """The model may be down; when that has lasted, one request alone does not pause the run."""
    with pytest.raises(InfrastructureError, match="status 500"):
        await circuit(attempts=3, pause_after=100.0, longest_wait=10.0).call(failing(10**6))
    assert 100.0 <= clock.now <= 110.0
    assert said == []
    assert await circuit(attempts=3, pause_after=100.0).call(failing(8)) is DONE


async def test_retry_after_is_waited_for(circuit, clock):
    await circuit().call(failing(1, retry_after=17.0))
    assert clock.slept == [17.0]
    await circuit(first_wait=0.0).call(failing(1, retry_after=0.0))
    assert clock.slept[1:] == [0.0]


async def test_waits_have_jitter_and_a_longest(circuit, clock):
    with pytest.raises(InfrastructureError):
        await circuit(attempts=40, longest_wait=5.0).call(failing(99, answered=True))
    assert max(clock.slept) <= 5.0
    assert len(set(clock.slept)) > 30


async def test_what_is_no_failure_of_the_server_is_raised_at_once(circuit, clock):
    async def refused() -> Completion:
        raise UserError("status 402")

    with pytest.raises(UserError, match="402"):
        await circuit().call(refused)
    assert clock.slept == []


async def test_a_model_that_is_down_pauses_the_run_which_goes_on_when_it_is_back(circuit, clock, said):
    asked = at_once = 0
    most: dict[bool, int] = {False: 0, True: 0}  # requests at a time, by whether the run is paused

    async def down_for_20_minutes() -> Completion:
        nonlocal asked, at_once
        asked, at_once = asked + 1, at_once + 1
        most[bool(said)] = max(most[bool(said)], at_once)
        await asyncio.sleep(0)
        at_once -= 1
        if clock.now < 1200:
            raise InfrastructureError("m", "status 503")
        return DONE

    patient = circuit(pause_after=300.0, probe_every=30.0)
    answers = await asyncio.gather(*(patient.call(down_for_20_minutes) for _ in range(10)))
    assert answers == [DONE] * 10, "no call was lost"
    assert len(said) == 2
    assert "answered nothing for" in said[0] and "paused" in said[0]
    assert "back" in said[1]
    assert asked < 10 * 12 + 60
    assert most[False] == 10
    assert most[True] <= 2, "one call at a time probes; one may have been on its way"


async def test_a_pause_ends_the_run_after_its_limit(circuit, clock, said):
    patient = circuit(pause_after=60.0, probe_every=30.0, give_up_after=600.0)
    calls = (patient.call(failing(10**9)) for _ in range(5))
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert any(isinstance(result, UserError) for result in results)
    error = next(result for result in results if isinstance(result, UserError))
    assert "--ckpt_path" in str(error) and "m has not answered for" in str(error)
    assert clock.now >= 660.0


async def test_one_bad_request_among_good_ones_pauses_nothing(circuit, clock, said):
    patient = circuit(attempts=6, pause_after=0.0)
    with pytest.raises(InfrastructureError):
        await patient.call(failing(99, answered=True))
    assert await patient.call(failing(0)) is DONE
    assert said == []


async def test_failures_before_a_success_do_not_count_later(circuit, clock):
    """One request failed once, long ago; another one that fails for good is still alone."""
    patient = circuit(attempts=3, pause_after=50.0)
    await patient.call(failing(1))
    with pytest.raises(InfrastructureError):
        async with asyncio.timeout(20):
            await patient.call(failing(10**9))


async def test_a_success_in_between_shows_that_the_model_is_up(circuit, clock):
    """Two requests fail for good, while others are answered: both end after their attempts."""
    patient = circuit(attempts=3)

    async def answered() -> None:
        for _ in range(50):
            await patient.call(failing(0))
            await asyncio.sleep(0)

    results = await asyncio.gather(
        patient.call(failing(10**6)), patient.call(failing(10**6)), answered(), return_exceptions=True
    )
    assert [type(result) for result in results[:2]] == [InfrastructureError] * 2


def test_settings_out_of_range_are_refused():
    with pytest.raises(UserError, match="0 attempts"):
        RetrySettings(attempts=0)
    with pytest.raises(UserError, match="negative"):
        RetrySettings(first_wait=-1)
