"""CoordinatorModule outside of a trainer."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from trinity.data import TaskDataModule
from trinity.episode.roles import Role
from trinity.episode.rollout import Draw, EpisodeSettings
from trinity.episode.scheduler import Failure, Graded, Job
from trinity.errors import UserError
from trinity.evaluation.baselines import SchedulePolicy
from trinity.module import CoordinatorModule
from trinity.optimizers.sep_cma import SepCMAES
from trinity.pool.base import Completion, DecodeParameters, InfrastructureError, Message, Pool
from trinity.pool.cache import CacheSettings
from trinity.rewards.rewards import Rewards
from trinity.settings import BlockScales, SelectionSettings, SVFSettings
from trinity.tasks.task import Task, TaskSource, TaskSplits

Make = Callable[..., CoordinatorModule]


def test_s3_theta_is_the_head_then_the_scales(make_module: Make) -> None:
    module = make_module()
    module.configure_model()
    assert [block.name for block in module.layout.blocks] == ["head.weight", "svf"]
    theta = module.theta()
    assert theta.shape == (module.layout.n,) == (5 * 32 + 192,)
    assert not theta[:160].any()
    assert (theta[160:] == 1).all()
    assert torch.equal(module.initial_theta, theta)


def test_the_optimizer_searches_theta_in_the_blocks_units(make_module: Make) -> None:
    module = make_module(block_scales=BlockScales(head=2.0, svf=0.5))
    module.configure_model()
    optimizer = module.configure_optimizers()
    assert isinstance(optimizer, SepCMAES)
    deviations = optimizer.ask() - module.theta()
    head, svf = deviations[:, :160].std(), deviations[:, 160:].std()
    assert head / svf == pytest.approx(4.0, rel=0.1)
    assert torch.equal(module.layout.scales(), torch.cat([torch.full((160,), 2.0), torch.full((192,), 0.5)]))


def test_the_runs_seed_is_the_searchs_unless_it_has_its_own(make_module: Make) -> None:
    def population(run_seed: int, **options: int) -> torch.Tensor:
        module = make_module(seed=run_seed, optimizer=partial(SepCMAES, **options))
        module.configure_model()
        optimizer = module.configure_optimizers()
        assert isinstance(optimizer, SepCMAES)
        return optimizer.ask()

    assert torch.equal(population(1), population(1))
    assert not torch.equal(population(0), population(1))
    assert torch.equal(population(0, seed=7), population(1, seed=7))


def test_the_language_model_is_no_part_of_the_state(make_module: Make) -> None:
    module = make_module()
    module.configure_model()
    assert set(module.state_dict()) == {"head.weight", "svf_scales"}
    assert sum(p.numel() for p in module.parameters()) == module.layout.n


def test_without_svf_theta_is_the_head(make_module: Make) -> None:
    module = make_module(svf=SVFSettings(enabled=False))
    module.configure_model()
    assert [block.name for block in module.layout.blocks] == ["head.weight"]


def played(module: CoordinatorModule, data: TaskDataModule, **options: object) -> list[tuple[object, ...]]:
    thetas = module.initial_theta + torch.randn(
        3, module.layout.n, generator=torch.Generator().manual_seed(0)
    )
    tasks = data.splits.train[:4]
    results = module.play(thetas, tasks, stage="train", generation=2, **options)  # type: ignore[arg-type]
    assert [r.candidate for r in results] == [*range(3)] * 4, "task by task"
    return [
        (r.task_id, r.reward, [(t.agent, t.role, t.completion.text) for t in r.trajectory.turns])
        for r in results
        if isinstance(r, Graded)
    ]


def test_concurrency_changes_nothing(make_module: Make, data: TaskDataModule) -> None:
    crowd, single = make_module(concurrency=500), make_module(concurrency=1)
    for module in (crowd, single):
        module.configure_model()
    assert played(crowd, data) == played(single, data)


def test_candidates_share_their_draws_unless_told_otherwise(make_module: Make, data: TaskDataModule) -> None:
    module = make_module()
    module.configure_model()
    same = module.initial_theta.repeat(2, 1)
    tasks = data.splits.train

    def choices(*, shared_draws: bool) -> list[list[list[tuple[int, int]]]]:
        results = module.play(same, tasks, stage="train", generation=0, shared_draws=shared_draws)
        by_candidate: list[list[list[tuple[int, int]]]] = [[], []]
        for r in results:
            assert isinstance(r, Graded)
            by_candidate[r.candidate].append([(t.agent, t.role) for t in r.trajectory.turns])
        return by_candidate

    shared = choices(shared_draws=True)
    assert shared[0] == shared[1]
    apart = choices(shared_draws=False)
    assert apart[0] != apart[1]


def test_training_samples_and_evaluation_takes_the_largest(make_module: Make, data: TaskDataModule) -> None:
    module = make_module()
    module.configure_model()
    # The zero head has no largest logit: argmax takes the first agent and role each time, sampling doesn't.
    for stage, varied in (("train", True), ("validation", False)):
        results = module.play(module.initial_theta[None], data.splits.train, stage=stage, generation=0)
        choices = {(t.agent, t.role) for r in results if isinstance(r, Graded) for t in r.trajectory.turns}
        assert (len(choices) > 1) is varied
    sampling = make_module(selection=SelectionSettings(evaluation="sample"))
    sampling.configure_model()
    results = sampling.play(sampling.initial_theta[None], data.splits.train, stage="validation", generation=0)
    assert len({t.agent for r in results if isinstance(r, Graded) for t in r.trajectory.turns}) > 1


class OneTask(TaskSource):
    def __init__(self, task: Task) -> None:
        self.task = task

    def load(self) -> TaskSplits:
        return TaskSplits([self.task], [self.task], [self.task])


@pytest.mark.parametrize(
    ("task", "named"),
    [
        (Task("a", "code", "q", "{}", "code", "code"), "cannot be read"),
        (Task("a", "math", "q", "\\frac{1}{", "math", "boxed"), "cannot be read"),
        (Task("a", "choice", "q", "E", "choice", "letter"), "cannot be read"),
    ],
)
def test_a_task_that_cannot_be_graded_is_found_before_anything_is_paid(
    make_module: Make, task: Task, named: str
) -> None:
    with pytest.raises(UserError, match=named):
        make_module().prepare(TaskDataModule(OneTask(task), minibatch=1))


class SilentPool(Pool):
    """Answers nothing but an echo of the agent asked, and counts."""

    agents = ("a", "b")

    def __init__(self) -> None:
        self.closed = False

    async def complete(self, agent: int, messages: Sequence[Message], decode: DecodeParameters) -> Completion:
        return Completion(f"Answer: {agent}")

    async def aclose(self) -> None:
        self.closed = True


def test_closing_lets_the_pool_go() -> None:
    pool = SilentPool()
    module = CoordinatorModule(pool)
    module.close()
    assert pool.closed


def test_the_paper_presets_episode_options_reach_the_rollout(make_module: Make, data: TaskDataModule) -> None:
    module = make_module(episode=EpisodeSettings(verifier_first="end", router_view="workers"))
    module.configure_model()
    theta = module.initial_theta.clone()
    weight = theta[:160].view(5, 32)
    encoded = module.coordinator.encoder.encode([data.splits.train[0].query])
    engine = module.coordinator.engine
    weight[4] = engine.hidden(encoded, engine.adapt({}))  # towards the Verifier
    results = module.play(theta[None], data.splits.train[:1], stage="validation", generation=0)
    assert isinstance(results[0], Graded)
    assert results[0].trajectory.stop == "verifier_first"
    assert results[0].reward == 0


class JudgingPool(SilentPool):
    """Its second agent judges; without an answer it is down."""

    def __init__(self, judgement: str | None) -> None:
        super().__init__()
        self.judgement = judgement

    async def complete(self, agent: int, messages: Sequence[Message], decode: DecodeParameters) -> Completion:
        if "You compare a student's answer" not in messages[0]["content"]:
            return Completion("Answer: the capital of France")
        assert agent == 1
        if self.judgement is None:
            raise InfrastructureError("b", "down")
        return Completion(self.judgement)


@pytest.mark.parametrize(
    ("judgement", "rewards"), [("VERDICT: SAME", [1]), ("VERDICT: DIFFERENT", [0]), (None, [])]
)
def test_the_pool_s_model_judges_free_form_answers(
    make_module: Make, judgement: str | None, rewards: list[int]
) -> None:
    task = Task("t", "d", "Which city?", "Paris", "text", "line")
    module = make_module(pool=JudgingPool(judgement), rewards=Rewards(judge="b"))
    module.prepare(TaskDataModule(OneTask(task), minibatch=1))
    policy, alone = SchedulePolicy(2, ((0, Role.WORKER),)), EpisodeSettings(max_turns=1)
    results = module.run(policy, [Job(task, 0, Draw(0, "evaluation", 0))], "argmax", alone)
    assert [result.reward for result in results if isinstance(result, Graded)] == rewards
    assert [result.cause for result in results if isinstance(result, Failure)] == ["down"] * (
        1 - len(rewards)
    )


class InventivePool(Pool):
    """Says something new at every call, as an LLM at a temperature above 0 does."""

    agents = ("a", "b")

    def __init__(self) -> None:
        self.calls = 0

    async def complete(self, agent: int, messages: Sequence[Message], decode: DecodeParameters) -> Completion:
        self.calls += 1
        return Completion(f"{self.agents[agent]} {self.calls}")


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_runs_of_different_seeds_share_a_cache_but_no_samples(
    make_module: Make, data: TaskDataModule, tmp_path: Path, temperature: float
) -> None:
    """In every stage: training, the best again, labels, validation, and the rows of the final table."""
    pool = InventivePool()
    tasks = data.splits.train[:2]

    def said(seed: int) -> dict[str, set[str]]:
        module = make_module(
            pool=pool,
            seed=seed,
            cache=CacheSettings(str(tmp_path / "cache.sqlite")),
            episode=EpisodeSettings(decode=DecodeParameters(temperature=temperature)),
        )
        module.configure_model()
        theta = module.initial_theta[None]
        results = {
            stage: module.play(theta, tasks, stage=stage, generation=0, **options)  # type: ignore[arg-type]
            for stage, options in {
                "train": {"shared_draws": False},
                "again": {},
                "validation": {},
                "copies": {"copies": 2},
            }.items()
        }
        results["label"] = module.play_agents(tasks, stage="label", samples=2, generation=0)
        alone, worker = replace(module.episode, max_turns=1), SchedulePolicy(2, ((1, Role.WORKER),))
        jobs = [Job(task, 0, Draw(seed, "evaluation", 0)) for task in tasks]
        results["evaluation"] = module.run(worker, jobs, "argmax", alone)
        return {
            stage: {t.completion.text for r in played if isinstance(r, Graded) for t in r.trajectory.turns}
            for stage, played in results.items()
        }

    first, paid = said(0), pool.calls
    assert said(0) == first and pool.calls == paid, "a repeated run finds its own samples"
    other = said(1)
    if temperature:
        assert not any(first[stage] & other[stage] for stage in first)
    else:
        assert other["label"] == first["label"] and other["evaluation"] == first["evaluation"]
        assert len(first["label"]) == 4, "two agents on two tasks: greedy answers have no samples"


def test_a_judge_is_one_of_the_pool(make_module: Make, data: TaskDataModule) -> None:
    with pytest.raises(UserError, match=r"rewards.judge is 'gpt', but the pool holds agent-0, agent-1"):
        make_module(rewards=Rewards(judge="gpt")).prepare(data)
