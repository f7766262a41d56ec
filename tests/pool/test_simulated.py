"""The simulated pool, asked as the episode asks and graded as the run grades."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from scipy import stats

from trinity.episode.prompts import build_messages
from trinity.episode.roles import Role
from trinity.episode.transcript import Transcript, Turn
from trinity.episode.verdict import Verdict, parse_judgement
from trinity.errors import UserError
from trinity.pool.base import Completion, DecodeParameters
from trinity.pool.simulated import SimulatedAgent, SimulatedPool
from trinity.rewards.rewards import Rewards
from trinity.tasks.synthetic import DOMAINS, SyntheticTasks
from trinity.tasks.task import Task

SKILL = {"math": 0.8, "choice": 0.3, "text": 0.5}
ALWAYS, NEVER = dict.fromkeys(DOMAINS, 1.0), dict.fromkeys(DOMAINS, 0.0)
DECODE = DecodeParameters()
Said = Sequence[tuple[Role, str]]


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return SyntheticTasks(seed=5, train=900, validation=1, test=1).load().train


@pytest.fixture(scope="module")
def rewards() -> Iterator[Rewards]:
    with Rewards() as rewards:
        yield rewards


def agent(skill: dict[str, float], bonus: float = 0.0, accuracy: float = 0.5) -> SimulatedAgent:
    return SimulatedAgent("sim", skill, bonus, accuracy)


async def ask(pool: SimulatedPool, role: Role, task: Task, said: Said = (), who: int = 0) -> Completion:
    turns = [Turn(0, part, Completion(text), text) for part, text in said]
    return await pool.complete(who, build_messages(role, task, Transcript(task.query, turns)), DECODE)


async def right(rewards: Rewards, task: Task, answer: Completion) -> bool:
    return (await rewards.grade(task, answer.text)).reward == 1


def plausible(count: int, of: int, rate: float) -> bool:
    """Whether a binomial count lies within its central 1 - 1e-4."""
    return bool(stats.binom.ppf(5e-5, of, rate) <= count <= stats.binom.ppf(1 - 5e-5, of, rate))


async def test_a_right_answer_is_always_graded_right_and_a_wrong_one_never(
    tasks: list[Task], rewards: Rewards
) -> None:
    able, unable = SimulatedPool([agent(ALWAYS)], ceiling=1.0), SimulatedPool([agent(NEVER)])
    for task in tasks:
        assert await right(rewards, task, await ask(able, Role.WORKER, task)), task.query
        assert not await right(rewards, task, await ask(unable, Role.WORKER, task)), task.query


@pytest.mark.parametrize("domain", DOMAINS)
async def test_workers_are_right_as_often_as_their_skill_says(
    tasks: list[Task], rewards: Rewards, domain: str
) -> None:
    pool = SimulatedPool([agent(SKILL)])
    inside = [task for task in tasks if task.domain == domain]
    hits = sum([await right(rewards, task, await ask(pool, Role.WORKER, task)) for task in inside])
    assert plausible(hits, len(inside), SKILL[domain])


async def test_a_domain_without_a_skill_is_never_solved(tasks: list[Task], rewards: Rewards) -> None:
    pool = SimulatedPool([agent({"math": 1.0})])
    assert not any(
        [await right(rewards, t, await ask(pool, Role.WORKER, t)) for t in tasks if t.domain == "text"]
    )


async def test_agents_err_independently_of_one_another(tasks: list[Task], rewards: Rewards) -> None:
    pool = SimulatedPool([agent(dict.fromkeys(DOMAINS, 0.5)), agent(dict.fromkeys(DOMAINS, 0.5))])
    both = 0
    for task in tasks:
        one, other = [
            await right(rewards, task, await ask(pool, Role.WORKER, task, who=who)) for who in (0, 1)
        ]
        both += one and other
    assert plausible(both, len(tasks), 0.25)


async def test_the_same_request_gets_the_same_answer_whatever_was_asked_before(tasks: list[Task]) -> None:
    forwards, backwards = SimulatedPool([agent(SKILL)], seed=3), SimulatedPool([agent(SKILL)], seed=3)
    first = [await ask(forwards, Role.WORKER, task) for task in tasks[:60]]
    second = [await ask(backwards, Role.WORKER, task) for task in reversed(tasks[:60])]
    assert first == second[::-1]
    other = SimulatedPool([agent(SKILL)], seed=4)
    assert first != [await ask(other, Role.WORKER, task) for task in tasks[:60]]


async def test_another_try_after_a_longer_transcript_is_another_draw(
    tasks: list[Task], rewards: Rewards
) -> None:
    pool = SimulatedPool([agent(dict.fromkeys(DOMAINS, 0.5))])
    changed = 0
    for task in tasks[:300]:
        first = await ask(pool, Role.WORKER, task)
        again = await ask(pool, Role.WORKER, task, [(Role.WORKER, first.text)])
        changed += await right(rewards, task, first) != await right(rewards, task, again)
    assert plausible(changed, 300, 0.5)


@pytest.mark.parametrize(("bonus", "skill", "wanted"), [(0.3, 0.4, 0.7), (0.5, 0.7, 0.9), (0.0, 0.4, 0.4)])
async def test_a_plan_adds_its_authors_bonus_up_to_the_ceiling(
    tasks: list[Task], rewards: Rewards, bonus: float, skill: float, wanted: float
) -> None:
    pool = SimulatedPool([agent(NEVER, bonus), agent(dict.fromkeys(DOMAINS, skill))], ceiling=0.9)
    hits = 0
    for task in tasks:
        plan = await ask(pool, Role.THINKER, task)
        hits += await right(
            rewards, task, await ask(pool, Role.WORKER, task, [(Role.THINKER, plan.text)], who=1)
        )
    assert plausible(hits, len(tasks), wanted)


async def test_of_several_plans_the_best_counts_once(tasks: list[Task], rewards: Rewards) -> None:
    planners = [agent(NEVER, 0.3), agent(NEVER, 0.1), agent(dict.fromkeys(DOMAINS, 0.2))]
    pool = SimulatedPool(planners)
    hits = 0
    for task in tasks:
        said = [(Role.THINKER, (await ask(pool, Role.THINKER, task, who=who)).text) for who in (0, 1, 0)]
        hits += await right(rewards, task, await ask(pool, Role.WORKER, task, said, who=2))
    assert plausible(hits, len(tasks), 0.5)


async def test_a_plan_only_helps_as_a_thinkers_turn(tasks: list[Task], rewards: Rewards) -> None:
    pool = SimulatedPool([agent(NEVER, 1.0)])
    for task in tasks[:60]:
        plan = await ask(pool, Role.THINKER, task)
        answer = await ask(pool, Role.WORKER, task, [(Role.WORKER, plan.text)])
        assert not await right(rewards, task, answer)


async def test_a_plan_states_no_answer(tasks: list[Task], rewards: Rewards) -> None:
    pool = SimulatedPool([agent(ALWAYS, 0.2)])
    for task in tasks[:90]:
        assert not await right(rewards, task, await ask(pool, Role.THINKER, task))


@pytest.mark.parametrize("skill", [ALWAYS, NEVER], ids=["right answers", "wrong answers"])
@pytest.mark.parametrize("accuracy", [0.0, 0.65, 1.0])
async def test_verdicts_are_right_as_often_as_the_accuracy_says(
    tasks: list[Task], rewards: Rewards, skill: dict[str, float], accuracy: float
) -> None:
    pool = SimulatedPool([agent(skill), agent(NEVER, accuracy=accuracy)], ceiling=1.0)
    sound = 0
    for task in tasks[:450]:
        answer = await ask(pool, Role.WORKER, task)
        said = [(Role.THINKER, "a plan"), (Role.WORKER, answer.text)]
        judgement = parse_judgement((await ask(pool, Role.VERIFIER, task, said, who=1)).text)
        sound += (judgement.verdict is Verdict.ACCEPT) == await right(rewards, task, answer)
    assert plausible(sound, 450, accuracy)


async def test_a_verifier_judges_the_newest_worker_answer(tasks: list[Task]) -> None:
    pool = SimulatedPool([agent(ALWAYS, accuracy=1.0), agent(NEVER)], ceiling=1.0)
    for task in tasks[:60]:
        good, bad = [(Role.WORKER, (await ask(pool, Role.WORKER, task, who=who)).text) for who in (0, 1)]
        for said, verdict in (([bad, good], Verdict.ACCEPT), ([good, bad], Verdict.REVISE)):
            found = await ask(pool, Role.VERIFIER, task, [*said, (Role.VERIFIER, "No.\nVERDICT: REVISE")])
            assert parse_judgement(found.text).verdict is verdict


@pytest.mark.parametrize("said", [(), [(Role.THINKER, "a plan")]])
async def test_a_verifier_with_nothing_to_check_asks_for_more(tasks: list[Task], said: Said) -> None:
    pool = SimulatedPool([agent(ALWAYS, accuracy=1.0)])
    found = await ask(pool, Role.VERIFIER, tasks[0], said)
    assert parse_judgement(found.text).verdict is Verdict.REVISE


async def test_references_are_never_seen(tasks: list[Task]) -> None:
    pool = SimulatedPool([agent(SKILL, 0.1)])
    for task in tasks[:90]:
        blind = replace(task, id="x", domain="unknown", reference="nothing", grader="code")
        for role in Role:
            assert await ask(pool, role, task) == await ask(pool, role, blind)


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("query", ["Who wrote Emma?", "", "What is 2 + 2?"])
async def test_unknown_questions_are_refused(query: str, role: Role) -> None:
    task = Task("t", "math", query, "4", "math", "boxed")
    with pytest.raises(UserError, match=r"only knows the synthetic tasks.*real pool"):
        await ask(SimulatedPool([agent(ALWAYS)]), role, task)


async def test_the_question_is_read_from_the_query_not_from_the_turns() -> None:
    task = Task("t", "math", "Who wrote Emma?", "Austen", "text", "line")
    with pytest.raises(UserError, match="Emma"):
        await ask(SimulatedPool([agent(ALWAYS)]), Role.WORKER, task, [(Role.WORKER, "Compute 12 * 13 + 14.")])


async def test_tokens_are_counted_and_cost_nothing(tasks: list[Task]) -> None:
    pool = SimulatedPool([agent(ALWAYS)])
    first = await ask(pool, Role.WORKER, tasks[0])
    later = await ask(pool, Role.WORKER, tasks[0], [(Role.WORKER, first.text)])
    assert 0 < first.completion_tokens < 50
    assert later.prompt_tokens > first.prompt_tokens > 30
    assert (first.cost, first.finish_reason) == (0.0, "stop")


def test_agents_have_their_names_in_order() -> None:
    pool = SimulatedPool([replace(agent(SKILL), name=name) for name in ("b", "a")])
    assert list(pool.agents) == ["b", "a"]


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (agent({"math": 1.5}), "1.5"),
        (agent(SKILL, bonus=-0.1), "-0.1"),
        (agent(SKILL, accuracy=2.0), "2.0"),
        (agent({"maths": 0.5}), "maths.*math, choice, text"),
    ],
)
def test_impossible_agents_are_refused(wrong: SimulatedAgent, named: str) -> None:
    with pytest.raises(UserError, match=f"sim.*{named}"):
        SimulatedPool([wrong])


def test_an_impossible_ceiling_is_refused() -> None:
    with pytest.raises(UserError, match=r"ceiling.*97"):
        SimulatedPool([agent(SKILL)], ceiling=97)
