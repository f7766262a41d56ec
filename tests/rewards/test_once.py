"""Each test has its event loop fail on anything that nobody looked at."""

import asyncio
import gc

import pytest

from trinity.rewards.once import Once


class Work:
    """Work that ends when it is told how, and counts how often it began."""

    def __init__(self):
        self.begun = 0
        self.cancelled = 0
        self._outcome = asyncio.get_running_loop().create_future()

    async def __call__(self):
        self.begun += 1
        try:
            outcome = await asyncio.shield(self._outcome)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def ends_with(self, outcome):
        self._outcome.set_result(outcome)


@pytest.fixture(autouse=True)
async def nothing_unseen():
    unseen = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: unseen.append(context["message"]))
    yield
    gc.collect()
    await asyncio.sleep(0)
    assert unseen == []


@pytest.fixture
async def work():
    return Work()


async def asking(once, work, times):
    """Tasks that all wait for the key "k"."""
    tasks = [asyncio.create_task(once.get("k", work)) for _ in range(times)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


async def test_many_at_a_time_get_the_result_of_one(work):
    once = Once(9)
    tasks = await asking(once, work, 33)
    work.ends_with(5)
    assert await asyncio.gather(*tasks) == [5] * 33
    assert work.begun == 1
    assert await once.get("k", None) == 5, "and it is remembered"


async def test_different_keys_share_nothing(work):
    once = Once(9)
    work.ends_with(5)
    await asyncio.gather(once.get("k", work), once.get("l", work))
    assert work.begun == 2


@pytest.mark.parametrize("leaves", [0, 1, 2])
async def test_who_is_cancelled_leaves_the_others_theirs(work, leaves):
    once = Once(9)
    tasks = await asking(once, work, 3)
    tasks[leaves].cancel()
    await asyncio.wait([tasks[leaves]])
    assert tasks[leaves].cancelled()
    work.ends_with(5)
    assert await asyncio.gather(*(task for task in tasks if task is not tasks[leaves])) == [5, 5]
    assert (work.begun, work.cancelled) == (1, 0)


async def test_a_failure_reaches_all_and_is_not_remembered(work):
    once = Once(9)
    tasks = await asking(once, work, 3)
    failure = OSError("no")
    work.ends_with(failure)
    assert await asyncio.gather(*tasks, return_exceptions=True) == [failure] * 3
    again = Work()
    again.ends_with(5)
    assert await once.get("k", again) == 5
    assert (work.begun, again.begun) == (1, 1)


async def test_work_is_cancelled_with_the_last_who_waits(work):
    once = Once(9)
    tasks = await asking(once, work, 2)
    for task in tasks:
        task.cancel()
    again = Work()
    again.ends_with(5)
    later = asyncio.create_task(once.get("k", again))  # comes while the first work is being cancelled
    await asyncio.wait([*tasks, later])
    assert (work.cancelled, later.result()) == (1, 5)


async def test_a_failure_after_all_have_left_is_no_news():
    async def fails_when_cancelled():
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            raise OSError("while ending") from None

    once = Once(9)
    (task,) = await asking(once, fails_when_cancelled, 1)
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    del task


async def test_the_oldest_result_is_forgotten_first(work):
    once = Once(2)
    work.ends_with(5)
    for key in ("a", "b", "c"):
        await once.get(key, work)
    await once.get("b", work)
    await once.get("c", work)
    assert work.begun == 3
    await once.get("a", work)
    assert work.begun == 4
    once.forget()
    await once.get("a", work)
    assert work.begun == 5


def test_work_of_a_loop_that_was_left_behind_is_not_waited_for():
    once = Once(9)
    left = asyncio.new_event_loop()

    async def never():
        await asyncio.get_running_loop().create_future()

    async def at_once():
        return 5

    async def begin():
        return asyncio.ensure_future(once.get("k", never))

    waiting = left.run_until_complete(begin())
    left.run_until_complete(asyncio.sleep(0))
    assert asyncio.run(asyncio.wait_for(once.get("k", at_once), 5)) == 5
    waiting.cancel()
    left.run_until_complete(asyncio.wait([waiting]))
    left.run_until_complete(asyncio.sleep(0))
    left.close()
