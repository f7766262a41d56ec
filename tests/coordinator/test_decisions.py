"""The decision thread: order, batches, errors, and a loop that stays free."""

import asyncio
import threading

import pytest

from trinity.coordinator.decisions import DecisionThread


@pytest.fixture
def threads():
    made: list[DecisionThread[int, int]] = []

    def make(decide):
        made.append(DecisionThread(decide))
        return made[-1]

    yield make
    for thread in made:
        thread.close()


async def test_every_request_gets_its_own_result(threads) -> None:
    thread = threads(lambda x: x * x)
    assert await asyncio.gather(*(thread.submit(i) for i in range(500))) == [i * i for i in range(500)]


async def test_requests_are_served_in_their_order_on_one_thread(threads) -> None:
    served: list[tuple[int, str]] = []
    thread = threads(lambda x: served.append((x, threading.current_thread().name)))
    await asyncio.gather(*(thread.submit(i) for i in range(50)))
    assert [x for x, _ in served] == list(range(50))
    assert len({name for _, name in served}) == 1
    assert served[0][1] != threading.current_thread().name


async def test_the_more_urgent_goes_first_and_equals_in_their_order(threads) -> None:
    started, going_on = threading.Event(), threading.Event()
    served: list[int] = []

    def decide(x: int) -> int:
        started.set()
        going_on.wait(timeout=30)
        served.append(x)
        return x

    thread = threads(decide)
    first = asyncio.ensure_future(thread.submit(-1))
    while not started.is_set():
        await asyncio.sleep(0)
    rest = [asyncio.ensure_future(thread.submit(x, urgency=x // 10)) for x in (10, 11, 30, 20, 12, 31)]
    await asyncio.sleep(0)
    going_on.set()
    await asyncio.gather(first, *rest)
    assert served == [-1, 30, 31, 20, 10, 11, 12]


async def test_an_error_reaches_its_own_request_only(threads) -> None:
    thread = threads(lambda x: 1 // x)
    results = await asyncio.gather(*(thread.submit(i) for i in (1, 0, 1)), return_exceptions=True)
    assert results[0] == results[2] == 1
    assert isinstance(results[1], ZeroDivisionError)


async def test_the_loop_goes_on_while_a_decision_is_made(threads) -> None:
    going_on = threading.Event()
    thread = threads(lambda x: going_on.wait(timeout=30))
    waiting = asyncio.ensure_future(thread.submit(0))
    while not thread._thread._threads:
        await asyncio.sleep(0)
    going_on.set()  # reached although the thread is still deciding
    assert await waiting is True


async def test_a_cancelled_request_does_not_hold_up_the_others(threads) -> None:
    started, going_on = threading.Event(), threading.Event()

    def decide(x: int) -> int:
        started.set()
        going_on.wait(timeout=30)
        return x

    thread = threads(decide)
    first, second = (asyncio.ensure_future(thread.submit(i)) for i in (1, 2))
    while not started.is_set():
        await asyncio.sleep(0)
    first.cancel()
    going_on.set()
    assert await second == 2
    assert first.cancelled()


def test_it_serves_one_loop_after_another(threads) -> None:
    thread = threads(lambda x: x + 1)
    for _ in range(2):
        assert asyncio.run(thread.submit(1)) == 2
