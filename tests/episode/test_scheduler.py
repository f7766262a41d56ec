import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from trinity import keyed
from trinity.episode.calls import Bill, Calls
from trinity.episode.policy import Logits, Position
from trinity.episode.roles import Role
from trinity.episode.rollout import Draw, EpisodeSettings, Rollout
from trinity.episode.scheduler import Failure, Graded, Job, run_jobs
from trinity.errors import UserError
from trinity.objectives.ledger import account
from trinity.pool.base import Completion, DecodeParameters, InfrastructureError, Message, Paid, Pool

CANDIDATES, TASKS = 4, 6


@dataclass(frozen=True)
class Question:
    id: str
    query: str
    answer_format: str = "line"


@dataclass(frozen=True)
class Mark:
    reward: int


def digest(*parts: object) -> float:
    return keyed.uniform("test", *(repr(part) for part in parts))


class KeyedPolicy:
    """Logits that depend on candidate and transcript, as a coordinator's do."""

    async def logits(self, position: Position, segments: Sequence[str]) -> tuple[Logits, Logits]:
        numbers = [digest(position.candidate, tuple(segments), i) for i in range(6)]
        return 3 * np.array(numbers[:3]), 3 * np.array(numbers[3:])


@dataclass
class ShuffledPool(Pool):
    """Answers by (agent, messages) alone, but lets go of what waits in an order drawn from `order`."""

    order: int
    fails: Callable[[int, str], Exception | None] = lambda agent, text: None
    agents = ("a", "b", "c")
    waiting: list[tuple[str, asyncio.Future[None]]] = field(default_factory=list)
    let_go: list[str] = field(default_factory=list)
    calls: int = 0
    most: int = 0
    per_agent: int | None = None
    asked: list[tuple[int, str]] = field(default_factory=list)

    @property
    def limits(self) -> Sequence[int | None]:
        return [self.per_agent] * 3

    async def complete(self, agent: int, messages: Sequence[Message], decode: DecodeParameters) -> Completion:
        text = "\n".join(message["content"] for message in messages)
        loop = asyncio.get_running_loop()
        self.calls += 1
        self.asked.append((agent, text))
        future = loop.create_future()
        self.waiting.append((hashlib.sha256(f"{agent}{text}".encode()).hexdigest(), future))
        self.most = max(self.most, len(self.waiting))
        loop.call_soon(self._release)
        await future
        error = self.fails(agent, text)
        if error is not None:
            raise error
        verdict = "ACCEPT" if digest(agent, text, "v") < 0.5 else "REVISE"
        return Completion(f"{digest(agent, text):.6f}\nVERDICT: {verdict}", cost=0.1)

    def _release(self) -> None:
        index = int(keyed.uniform("release", self.order, len(self.let_go)) * len(self.waiting))
        name, future = self.waiting.pop(index)
        self.let_go.append(name)
        if not future.done():
            future.set_result(None)


async def grade(task: Question, answer: str | None, bill: Bill) -> Mark:
    return Mark(0 if answer is None else int(digest(task.id, answer) < 0.5))


def jobs(independent: bool = False) -> list[Job[Question]]:
    tasks = [Question(f"t{i}", f"question {i}") for i in range(TASKS)]
    draws = [Draw(0, "train", 1, candidate if independent else None) for candidate in range(CANDIDATES)]
    return [Job(task, c, draws[c]) for c in range(CANDIDATES) for task in tasks]


async def run(
    pool: ShuffledPool, concurrency: int = 100, grading: Any = grade, todo: list[Job[Question]] | None = None
) -> list[Graded | Failure]:
    rollout = Rollout(
        KeyedPolicy(), Calls(pool, concurrency), EpisodeSettings(), lambda text, tokens: text, "sample"
    )
    return await run_jobs(rollout, jobs() if todo is None else todo, grading)


async def test_results_do_not_depend_on_arrival_order() -> None:
    pools = [ShuffledPool(order) for order in range(4)]
    results = [await run(pool) for pool in pools]
    assert all(result == results[0] for result in results[1:])
    assert len({tuple(pool.let_go) for pool in pools}) == len(pools), "the orders differed"
    rewards = [result.reward for result in results[0] if isinstance(result, Graded)]
    assert 0 < sum(rewards) < len(rewards) == CANDIDATES * TASKS
    assert len({result.trajectory.turns for result in results[0] if isinstance(result, Graded)}) > 6


@pytest.mark.parametrize("concurrency", [1, 2, 7])
async def test_results_do_not_depend_on_concurrency(concurrency: int) -> None:
    few, many = ShuffledPool(0), ShuffledPool(1)
    assert await run(few, concurrency) == await run(many, 100)
    assert 0 < few.most <= concurrency
    assert many.most > 7


def fitness(results: list[Graded | Failure]) -> list[float]:
    found: list[float] = account(results, 0.0).fitness(CANDIDATES).tolist()
    return found


def transcripts(results: list[Graded | Failure]) -> list[list[tuple[int, Role, str]]]:
    return [
        [(turn.agent, turn.role, turn.completion.text) for turn in result.trajectory.turns]
        for result in results
        if isinstance(result, Graded)
    ]


async def test_shuffled_latencies_and_any_concurrency_give_the_same_generation() -> None:
    alone = await run(ShuffledPool(0), concurrency=1)
    assert 0 < sum(fitness(alone)) < CANDIDATES
    for order in range(3):
        for per_agent in (None, 1, 5):
            crowded = await run(ShuffledPool(order, per_agent=per_agent), concurrency=500)
            assert fitness(crowded) == fitness(alone)
            assert transcripts(crowded) == transcripts(alone)


async def test_identical_requests_in_flight_are_made_once() -> None:
    pool = ShuffledPool(0)
    found = await run(pool, concurrency=500)
    turns = [turn for result in found if isinstance(result, Graded) for turn in result.trajectory.turns]
    shared = sum(turn.completion.source == "shared" for turn in turns)
    assert shared > 0
    assert len(turns) == pool.calls + shared
    costs = sum(result.paid.usd for result in found if isinstance(result, Graded))
    assert costs == pytest.approx(0.1 * pool.calls), "each call is paid for once"


async def test_an_agents_limit_holds_whatever_the_concurrency() -> None:
    pool = ShuffledPool(0, per_agent=2)
    await run(pool, concurrency=500)
    assert pool.most <= 3 * 2


async def test_nobody_waits_for_the_slowest() -> None:
    slow = asyncio.Event()

    class Slow(ShuffledPool):
        async def complete(
            self, agent: int, messages: Sequence[Message], decode: DecodeParameters
        ) -> Completion:
            if "question 0" in messages[-1]["content"]:
                await slow.wait()
            return await super().complete(agent, messages, decode)

    finished: list[str] = []

    async def note(task: Question, answer: str | None, bill: Bill) -> Mark:
        finished.append(task.id)
        if len(finished) == CANDIDATES * (TASKS - 1):
            slow.set()  # reached only if all the others play to their end meanwhile
        return Mark(1)

    found = await run(Slow(0), grading=note)
    assert len(found) == CANDIDATES * TASKS
    assert "t0" not in finished[: CANDIDATES * (TASKS - 1)]


async def test_results_do_not_depend_on_what_else_runs() -> None:
    together = await run(ShuffledPool(0), todo=jobs(independent=True))
    alone = [(await run(ShuffledPool(1), todo=[job]))[0] for job in jobs(independent=True)]
    assert together == alone


async def test_results_stand_in_the_order_of_the_jobs() -> None:
    found = await run(ShuffledPool(2))
    assert [(result.candidate, result.task_id) for result in found] == [
        (job.candidate, job.task.id) for job in jobs()
    ]


async def test_an_infrastructure_failure_is_a_result_without_a_reward() -> None:
    def fails(agent: int, text: str) -> Exception | None:
        return InfrastructureError("b", "timeout") if "question 3" in text else None

    found = await run(ShuffledPool(0, fails))
    lost = [result for result in found if isinstance(result, Failure)]
    assert lost == [Failure(candidate, "t3", "b", "timeout") for candidate in range(CANDIDATES)]
    healthy = await run(ShuffledPool(0))
    assert [r for r in found if isinstance(r, Graded)] == [r for r in healthy if r.task_id != "t3"]


async def test_a_failure_has_the_cost_of_the_turns_before_it() -> None:
    def fails(agent: int, text: str) -> Exception | None:
        return InfrastructureError("x", "timeout") if text.count("=== Turns so far") else None

    found = await run(ShuffledPool(0, fails))
    lost = [result for result in found if isinstance(result, Failure)]
    shared = sum(result.paid.usd == 0 for result in lost)
    assert lost and sum(result.paid.usd for result in lost) == pytest.approx(0.1 * (len(lost) - shared))
    assert shared < len(lost)


async def test_a_user_error_surfaces_as_itself_and_ends_the_rest() -> None:
    def fails(agent: int, text: str) -> Exception | None:
        return UserError("no such model") if "question 3" in text else None

    pool = ShuffledPool(0, fails)
    with pytest.raises(UserError, match=r"^no such model$"):
        await run(pool, concurrency=2)
    assert pool.calls < 5 * CANDIDATES * TASKS / 2
    assert asyncio.all_tasks() == {asyncio.current_task()}, "nothing is left running"


async def test_many_user_errors_at_once_surface_as_one() -> None:
    with pytest.raises(UserError, match=r"^all wrong$"):
        await run(ShuffledPool(0, lambda agent, text: UserError("all wrong")))


async def test_a_user_error_of_a_grader_surfaces_as_itself() -> None:
    async def refuse(task: Question, answer: str | None, bill: Bill) -> Mark:
        raise UserError("no such grader")

    with pytest.raises(UserError, match=r"^no such grader$"):
        await run(ShuffledPool(0), grading=refuse)


async def test_the_whole_last_answer_is_graded_and_none_where_no_worker_spoke() -> None:
    asked: dict[str, list[str | None]] = {}

    async def note(task: Question, answer: str | None, bill: Bill) -> Mark:
        asked.setdefault(task.id, []).append(answer)
        return Mark(1)

    found = await run(ShuffledPool(0), grading=note)
    graded = [result for result in found if isinstance(result, Graded)]
    for task_id, answers in asked.items():
        told = [result.trajectory.answer for result in graded if result.task_id == task_id]
        assert sorted(map(str, told)) == sorted(map(str, answers))
    assert sum(map(len, asked.values())) == len(graded) == CANDIDATES * TASKS


async def test_no_jobs_give_no_results() -> None:
    assert await run(ShuffledPool(0), todo=[]) == []


async def test_a_judge_that_fails_is_paid_for_by_whoever_asked_it() -> None:
    """Equal answers wait for one question to the judge, and all fail with it; it cost what it cost, once."""
    failure = InfrastructureError("judge", "empty", paid=Paid(0.5, 8))

    async def judging(task: Question, answer: str | None, bill: Bill) -> Mark:
        if task.id == "t3":
            bill.lost += failure.paid if not asked else Paid()
            asked.append(task.id)
            raise failure
        return Mark(1)

    asked: list[str] = []
    pool = ShuffledPool(0)
    found = await run(pool, grading=judging)
    assert sum(isinstance(result, Failure) for result in found) == CANDIDATES == len(asked)
    assert sum(result.paid.usd for result in found) == pytest.approx(0.1 * pool.calls + 0.5)
