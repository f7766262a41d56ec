"""Cache, budget, pace and patience around a pool, in this order."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from trinity.errors import UserError
from trinity.pool.base import (
    Completion,
    DecodeParameters,
    InfrastructureError,
    Message,
    Pool,
    Price,
    RetrySettings,
)
from trinity.pool.budget import Budget, BudgetReachedError, Meter
from trinity.pool.cache import CompletionCache
from trinity.pool.reliable import ReliablePool

DECODE = DecodeParameters(max_tokens=100)


def asking(text: str) -> list[Message]:
    return [{"role": "user", "content": text}]


class Counting(Pool):
    """Counts; fails as often as told; can be held."""

    agents = ("a", "b")

    def __init__(
        self, fails: int = 0, retry: RetrySettings | None = None, price: Price | None = None
    ) -> None:
        self.made: list[str] = []
        self.fails = fails
        self._retry = retry
        self._price = price
        self.gate: asyncio.Event | None = None
        self.closed = False

    @property
    def retry(self) -> RetrySettings | None:
        return self._retry

    @property
    def prices(self) -> Sequence[Price | None]:
        return [self._price] * 2

    async def complete(self, agent: int, messages: Sequence[Message], decode: DecodeParameters) -> Completion:
        self.made.append(messages[-1]["content"])
        if self.gate is not None:
            await self.gate.wait()
        if self.fails > 0:
            self.fails -= 1
            raise InfrastructureError("a", "status 500")
        return Completion(f"{agent}: {messages[-1]['content']}", 10, 20, 0.25)

    async def aclose(self) -> None:
        self.closed = True


@pytest.fixture
def store(tmp_path) -> CompletionCache:
    return CompletionCache(tmp_path / "c.sqlite")


async def test_an_answer_is_paid_for_once(store):
    pool = Counting()
    first = await ReliablePool(pool, store).complete(0, asking("x"), DECODE)
    second = await ReliablePool(pool, store).complete(0, asking("x"), DECODE)
    assert first == second
    assert [(c.source, c.cost) for c in (first, second)] == [("call", 0.25), ("cache", 0.0)]
    await ReliablePool(pool, store).complete(1, asking("x"), DECODE)
    assert pool.made == ["x", "x"]


async def test_a_replay_calls_nobody(store):
    pool = Counting()
    await ReliablePool(pool, store).complete(0, asking("x"), DECODE)
    replay = ReliablePool(pool, store, replay=True)
    assert (await replay.complete(0, asking("x"), DECODE)).text == "0: x"
    with pytest.raises(UserError, match="holds no answer of a to 'y'"):
        await replay.complete(0, asking("y"), DECODE)
    assert pool.made == ["x"]


async def test_failures_are_retried_and_not_kept(store):
    pool = Counting(fails=2, retry=RetrySettings(3, first_wait=0.0, longest_wait=0.0, pause_after=0.0))
    assert (await ReliablePool(pool, store).complete(0, asking("x"), DECODE)).text == "0: x"
    assert len(pool.made) == 3
    pool.fails = 3
    with pytest.raises(InfrastructureError):
        await ReliablePool(pool, store).complete(0, asking("y"), DECODE)
    assert len(list(store.rows())) == 1


async def test_a_pool_without_patience_is_asked_once():
    pool = Counting(fails=1)
    with pytest.raises(InfrastructureError):
        await ReliablePool(pool).complete(0, asking("x"), DECODE)
    assert len(pool.made) == 1


async def test_hits_are_free_of_any_budget(store):
    await ReliablePool(Counting(), store).complete(0, asking("x"), DECODE)
    meter = Meter(Budget(calls=1))
    pool = ReliablePool(Counting(), store, meter=meter)
    for _ in range(5):
        await pool.complete(0, asking("x"), DECODE)
    assert meter.spent.calls == 0
    await pool.complete(0, asking("y"), DECODE)
    with pytest.raises(BudgetReachedError):
        await pool.complete(0, asking("z"), DECODE)


@pytest.mark.parametrize(
    ("price", "fit"),
    # 1.0 dollars. By its price a call may cost .3: three fit, and then what they cost in fact, .75, lets no
    # fourth leave. Without a price the dearest call so far says .25: four fit.
    [(Price(prompt=0.0, completion=3000.0), 3), (None, 4)],
)
async def test_dollars_are_reserved_before_a_call_leaves(price: Price | None, fit: int):
    counting = Counting(price=price)
    meter = Meter(Budget(usd=1.0))
    pool = ReliablePool(counting, meter=meter)
    calls = (pool.complete(0, asking(str(n)), DECODE) for n in range(20))
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(result, Completion) for result in results) == fit == len(counting.made)
    assert meter.spent.usd <= 1.0


async def test_an_answer_under_way_is_kept_though_nobody_waits_any_more(store, capsys):
    counting = Counting()
    counting.gate = asyncio.Event()
    pool = ReliablePool(counting, store)
    task = asyncio.create_task(pool.complete(0, asking("x"), DECODE))
    while not counting.made:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    asyncio.get_running_loop().call_later(0.01, counting.gate.set)
    await pool.aclose()
    assert counting.closed
    assert [row["completion"]["text"] for row in store.rows()] == ["0: x"]
    assert "Waiting for 1 answers under way" in capsys.readouterr().err


async def test_a_late_failure_of_a_call_nobody_waits_for_is_no_noise(recwarn: pytest.WarningsRecorder, store):
    counting = Counting(fails=1)
    counting.gate = asyncio.Event()
    pool = ReliablePool(counting, store)
    task = asyncio.create_task(pool.complete(0, asking("x"), DECODE))
    while not counting.made:
        await asyncio.sleep(0)
    task.cancel()
    counting.gate.set()
    await asyncio.gather(task, return_exceptions=True)
    await pool.aclose()
    assert list(store.rows()) == []


@pytest.mark.parametrize("name", ["agents", "limits"])
def test_it_looks_like_its_pool(name: str):
    look: Callable[[Pool], object] = lambda pool: getattr(pool, name)  # noqa: E731
    assert look(ReliablePool(Counting())) == look(Counting())
