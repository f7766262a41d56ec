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
    Pace,
    Paid,
    Pool,
    Price,
    RequestRefusedError,
    RetrySettings,
)
from trinity.pool.budget import Budget, BudgetReachedError, Meter
from trinity.pool.cache import CompletionCache
from trinity.pool.pacing import Pacer
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


class Choosy(Pool):
    """Refuses some requests; raises what it is told to; thinks of costs as told."""

    agents = ("a", "b")

    def __init__(self, refuses: Callable[[str], bool] = lambda text: False, priced: bool = True) -> None:
        self.refuses = refuses
        self.made: list[str] = []
        self.failures: list[InfrastructureError] = []
        self._priced = priced

    @property
    def retry(self) -> RetrySettings:
        return RetrySettings(4, first_wait=0.0, longest_wait=0.0, pause_after=0.0)

    @property
    def states_cost(self) -> Sequence[bool]:
        return [True, self._priced]

    async def complete(self, agent: int, messages: Sequence[Message], decode: DecodeParameters) -> Completion:
        text = messages[-1]["content"]
        self.made.append(text)
        if self.failures:
            raise self.failures.pop(0)
        if self.refuses(text):
            refused = Completion("", finish_reason="refused", refusal="status 403")
            raise RequestRefusedError("a refused the call with status 403 (no): check the key.", refused)
        return Completion("yes", 10, 20, 0.25, is_priced=self._priced)


PLAIN = "Reply with the word OK."


async def test_one_refused_request_is_an_empty_answer_that_is_kept(store):
    choosy = Choosy(lambda text: text == "flagged")
    pool = ReliablePool(choosy, store, meter=Meter(Budget()))
    first = await pool.complete(0, asking("flagged"), DECODE)
    assert (first.text, first.refusal, first.finish_reason) == ("", "status 403", "refused")
    assert choosy.made == ["flagged", PLAIN], "whether it was the model that refuses has to be asked once"
    assert (first.cost, first.paid) == (0.0, Paid(0.25, 2, 10, 20))
    again = await pool.complete(0, asking("flagged"), DECODE)
    assert (again, again.source, again.paid) == (first, "cache", Paid())


async def test_a_model_that_just_answered_is_not_asked_whether_it_does(store):
    choosy = Choosy(lambda text: "flagged" in text)
    pool = ReliablePool(choosy, store)
    for text in ("fine", "flagged 1", "fine too", "flagged 2", "flagged 3"):
        await pool.complete(0, asking(text), DECODE)
    assert choosy.made == ["fine", "flagged 1", "fine too", "flagged 2", "flagged 3", PLAIN]


async def test_a_model_that_refuses_everything_ends_the_run_and_keeps_nothing(store):
    pool = ReliablePool(Choosy(lambda text: True), store)
    with pytest.raises(UserError, match="refused the call with status 403"):
        await pool.complete(0, asking("x"), DECODE)
    assert list(store.rows()) == []


async def test_a_model_that_is_locked_in_the_middle_of_a_run_ends_it(store):
    choosy = Choosy()
    pool = ReliablePool(choosy, store)
    await pool.complete(0, asking("x"), DECODE)
    choosy.refuses = lambda text: True
    results = await asyncio.gather(
        *(pool.complete(0, asking(str(n)), DECODE) for n in range(5)), return_exceptions=True
    )
    assert sum(isinstance(result, UserError) for result in results) == 4
    assert len(list(store.rows())) == 2, "the answer, and the one refusal that could have been the request's"


async def test_what_was_paid_for_nothing_counts_everywhere(store):
    """In the answer that came in the end, in the budget, and in what a resumed run finds."""
    choosy = Choosy()
    thrown = [InfrastructureError("a", "empty", answered=True, paid=Paid(0.05, 1, 7, 5)) for _ in range(2)]
    choosy.failures = [*thrown, InfrastructureError("a", "status 500")]
    meter = Meter(Budget(usd=10))
    pool = ReliablePool(choosy, store, meter=meter)
    completion = await pool.complete(0, asking("x"), DECODE)
    assert (completion.cost, completion.paid) == (0.25, Paid(0.35, 3, 24, 30))
    assert (meter.spent.usd, meter.spent.calls, meter.spent.tokens) == (pytest.approx(0.35), 3, 54)
    spent = store.spent("")
    assert (spent.usd, spent.calls, spent.tokens) == (pytest.approx(0.35), 3, 54)


async def test_a_call_that_fails_for_good_has_cost_what_its_attempts_cost(store):
    choosy = Choosy()
    choosy.failures = [InfrastructureError("a", "empty", answered=True, paid=Paid(0.05, 1, 7, 5))] * 2
    choosy.failures += [InfrastructureError("a", "x", answered=True) for _ in range(2)]
    meter = Meter(Budget(usd=10))
    with pytest.raises(InfrastructureError) as caught:
        await ReliablePool(choosy, store, meter=meter).complete(0, asking("x"), DECODE)
    assert caught.value.paid == Paid(0.1, 2, 14, 10)
    assert (meter.spent.usd, meter.spent.calls) == (pytest.approx(0.1), 2)


async def test_eight_answers_that_were_thrown_away_use_up_a_budget(store):
    choosy = Choosy()
    pool = ReliablePool(choosy, store, meter=Meter(Budget(usd=0.4)))
    for text in ("x", "y"):
        choosy.failures = [InfrastructureError("a", "empty", answered=True, paid=Paid(0.05, 1))] * 4
        with pytest.raises(InfrastructureError):
            await pool.complete(0, asking(text), DECODE)
    with pytest.raises(BudgetReachedError):
        await pool.complete(0, asking("z"), DECODE)


def test_a_dollar_budget_is_refused_before_the_first_call_where_dollars_can_t_be_told(store):
    pool = Choosy(priced=False)
    with pytest.raises(UserError, match=r"budget\.usd can't be kept: the server of b .* price"):
        ReliablePool(pool, store, meter=Meter(Budget(usd=1))).check()
    ReliablePool(pool, store, meter=Meter(Budget(calls=1, tokens=5))).check()
    ReliablePool(pool, store, replay=True, meter=Meter(Budget(usd=1))).check()
    ReliablePool(Choosy(), store, meter=Meter(Budget(usd=1))).check()


async def test_a_server_that_states_no_cost_after_all_ends_a_run_on_dollars(store):
    pool = Choosy(priced=False)
    meter = Meter(Budget(usd=1))
    with pytest.raises(UserError, match=r"the server of a stated no cost"):
        await ReliablePool(pool, store, meter=meter).complete(0, asking("x"), DECODE)
    assert (meter.spent.calls, meter.spent.tokens) == (1, 30)
    assert len(list(store.rows())) == 1, "it was paid for"
    assert (await ReliablePool(pool, store).complete(0, asking("x"), DECODE)).text == "yes"


async def test_what_a_pace_reserved_for_a_failure_is_given_back(store):
    """A failed attempt takes no tokens of the minute: the next request leaves as if it had not been."""
    choosy = Choosy()
    pool = ReliablePool(choosy, store)
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    pool._pacers[0] = Pacer(Pace(tokens_per_minute=60), clock=lambda: 0.0, sleep=sleep)
    choosy.failures = [InfrastructureError("a", "x"), InfrastructureError("a", "y")]
    await pool.complete(0, asking("x"), DECODE)
    assert slept == [], "no attempt waits for what the ones before it did not use"
    await pool.complete(0, asking("y"), DECODE)
    assert slept == [pytest.approx(30.0)], "the thirty tokens of the one answer"


async def test_a_connection_is_closed_though_the_wait_for_answers_is_interrupted(store):
    counting = Counting()
    counting.gate = asyncio.Event()
    pool = ReliablePool(counting, store)
    call = asyncio.create_task(pool.complete(0, asking("x"), DECODE))
    while not counting.made:
        await asyncio.sleep(0)
    call.cancel()
    closing = asyncio.create_task(pool.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert counting.closed
    counting.gate.set()
