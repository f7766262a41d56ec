"""The policy gradient, against finite differences of an exact J, and one step of REINFORCE."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from trinity.data import TaskDataModule
from trinity.episode.policy import probabilities
from trinity.episode.roles import Role
from trinity.episode.rollout import Draw, EpisodeSettings, Trajectory
from trinity.episode.scheduler import Graded, Job
from trinity.episode.transcript import Transcript
from trinity.errors import UserError
from trinity.evaluation.baselines import SchedulePolicy
from trinity.module import CoordinatorModule
from trinity.objectives.reinforce import Baseline, Reinforce, accumulate, advantages
from trinity.optimizers.sep_cma import SepCMAES
from trinity.settings import BlockScales, SVFSettings
from trinity.tasks.task import Task

Make = Callable[..., CoordinatorModule]
BASELINES: tuple[Baseline, ...] = ("task", "batch")


def every_trajectory(module: CoordinatorModule, task: Task) -> list[Graded]:
    """One for each sequence of choices in two turns; those that end early are equal, and stand once."""
    roles = [role for role in Role if module.episode.offered[role]]
    steps = list(product(module.episode.places(2), roles))
    found: dict[tuple[Any, ...], Graded] = {}
    for schedule in product(steps, repeat=2):
        [result] = module.run(SchedulePolicy(2, schedule), [Job(task, 0, Draw(0, "test", 0))], "argmax")
        assert isinstance(result, Graded)
        found[tuple((turn.agent, turn.role) for turn in result.trajectory.turns)] = result
    return list(found.values())


def probability(module: CoordinatorModule, theta: Tensor, task: Task, path: Trajectory) -> float:
    module.coordinator.load(theta[None])
    transcript, total = Transcript(task.query), 1.0
    for turn in path.turns:
        agents, roles = module.coordinator.decide(0, transcript.segments(module.episode.router_view))
        masked = np.where(module.episode.offered, roles, -np.inf)
        if module.episode.agents is not None:
            agents = np.where(np.isin(np.arange(2), module.episode.agents), agents, -np.inf)
        total *= float(probabilities(agents)[turn.agent])
        if module.episode.named_role(transcript) is None:
            total *= float(probabilities(masked)[turn.role])
        transcript.turns.append(turn)
    return total


EPISODES = [
    EpisodeSettings(max_turns=2),
    EpisodeSettings(max_turns=2, roles=("worker", "verifier"), router_view="workers"),
    EpisodeSettings(max_turns=2, verifier_first="end"),
    EpisodeSettings(max_turns=2, agents=[1]),
]


@pytest.mark.parametrize("episode", EPISODES)
@pytest.mark.parametrize("svf", [True, False])
def test_the_gradient_agrees_with_finite_differences(
    make_module: Make, data: TaskDataModule, episode: EpisodeSettings, svf: bool
) -> None:
    module = make_module(episode=episode, svf=SVFSettings(enabled=svf))
    module.configure_model()
    start = module.initial_theta + 0.1 * torch.randn(
        module.layout.n, generator=torch.Generator().manual_seed(1)
    )
    with torch.no_grad():
        for block, value in module.layout.unpack(start).items():
            module.blocks()[block].copy_(value)
    tasks = data.splits.train[:2]
    paths = [(task, graded) for task in tasks for graded in every_trajectory(module, task)]

    def j(theta: Tensor) -> float:
        return sum(probability(module, theta, task, g.trajectory) * g.reward for task, g in paths)

    total = sum(probability(module, start, task, g.trajectory) for task, g in paths)
    assert total == pytest.approx(len(tasks)), "the probabilities of all trajectories of a task add up to 1"
    weights = [probability(module, start, task, g.trajectory) * g.reward for task, g in paths]
    gradients = module.gradients()
    accumulate(gradients, [g.trajectory for _, g in paths], weights, {t.id: t.query for t in tasks}, episode)
    gradient = -module.layout.pack(gradients.gradients())
    for name, block in module.layout.unpack(gradient).items():
        assert block.abs().max() > 1e-4, name

    for seed, name in [*product(range(2), module.layout.unpack(start))]:
        direction = torch.randn(module.layout.n, generator=torch.Generator().manual_seed(seed))
        direction *= torch.cat([torch.full((b.size,), float(b.name == name)) for b in module.layout.blocks])
        direction += 5 * gradient * (direction != 0)  # so that the derivative is no tiny number
        direction /= direction.norm()
        step = 0.02
        difference = (j(start + step * direction) - j(start - step * direction)) / (2 * step)
        assert float(gradient @ direction) == pytest.approx(difference, rel=0.02, abs=2e-5), name


def test_a_role_that_a_thinker_named_is_no_choice(make_module: Make, data: TaskDataModule) -> None:
    module = make_module(episode=EpisodeSettings(max_turns=2, thinker_names_role=True))
    module.configure_model()
    task = data.splits.train[0]
    first, second = (
        g.trajectory
        for g in every_trajectory(module, task)
        if [t.role for t in g.trajectory.turns[:2]] == [Role.THINKER, Role.WORKER]
        and [t.agent for t in g.trajectory.turns[:2]] in ([0, 0], [0, 1])
    )
    named = _with_text(first, f"plan\nNEXT ROLE: {second.turns[1].role.name}")

    def role_gradient(path: Trajectory) -> Tensor:
        found = module.gradients()
        accumulate(found, [path], [1.0], {task.id: task.query}, module.episode)
        return found.gradients()["head.weight"][2:]

    free, fixed = role_gradient(first), role_gradient(named)
    assert not torch.equal(free, fixed)
    only_thinker = Trajectory(0, task.id, first.turns[:1], "turns", None)
    torch.testing.assert_close(fixed, role_gradient(only_thinker))


def _with_text(path: Trajectory, text: str) -> Trajectory:
    thinker = replace(path.turns[0], completion=replace(path.turns[0].completion, text=text))
    return replace(path, turns=(thinker, *path.turns[1:2]))


@pytest.mark.parametrize("baseline", BASELINES)
def test_the_expected_step_agrees_with_finite_differences_under_either_baseline(
    make_module: Make, data: TaskDataModule, baseline: Baseline
) -> None:
    """Over every joint outcome of two tasks with two one-turn trajectories each, by their probabilities."""
    module = make_module(episode=EpisodeSettings(max_turns=1))
    module.configure_model()
    start = module.initial_theta + 0.1 * torch.randn(
        module.layout.n, generator=torch.Generator().manual_seed(1)
    )
    with torch.no_grad():
        for block, value in module.layout.unpack(start).items():
            module.blocks()[block].copy_(value)
    tasks = [next(t for t in data.splits.train if t.domain == domain) for domain in ("math", "text")]
    outcomes = [every_trajectory(module, task) for task in tasks]
    assert len({sum(one.reward for one in found) for found in outcomes}) == 2, "one task is easier"

    def chances(theta: Tensor) -> list[list[float]]:
        return [
            [probability(module, theta, task, one.trajectory) for one in found]
            for task, found in zip(tasks, outcomes, strict=True)
        ]

    def j(theta: Tensor) -> float:
        pairs = zip(chances(theta), outcomes, strict=True)
        return sum(p * one.reward for ps, found in pairs for p, one in zip(ps, found, strict=True)) / 2

    at = [list(zip(found, ps, strict=True)) for found, ps in zip(outcomes, chances(start), strict=True)]
    weights = {id(one): 0.0 for found in outcomes for one in found}
    for joint in product(at[0], at[0], at[1], at[1]):
        chance = math.prod(p for _, p in joint)
        kept = [one for one, _ in joint]
        for one, advantage in zip(kept, advantages(kept, baseline), strict=True):
            weights[id(one)] += chance * advantage / len(kept)
    everything = [one for found in outcomes for one in found]
    gradients = module.gradients()
    accumulate(
        gradients,
        [one.trajectory for one in everything],
        [weights[id(one)] for one in everything],
        {task.id: task.query for task in tasks},
        module.episode,
    )
    gradient = -module.layout.pack(gradients.gradients())
    for name, block in module.layout.unpack(gradient).items():
        direction = torch.zeros_like(gradient)
        inside = torch.cat([torch.full((b.size,), b.name == name) for b in module.layout.blocks])
        direction[inside] = block.flatten() / block.norm()
        step = 0.02
        difference = (j(start + step * direction) - j(start - step * direction)) / (2 * step)
        assert abs(difference) > 1e-4, name
        assert float(gradient @ direction) == pytest.approx(difference, rel=0.02), name


def test_a_trajectory_is_measured_by_the_others_on_its_task(graded: Callable[..., Graded]) -> None:
    easy = [graded(0, "easy", reward) for reward in (1, 1, 0, 1)]
    hard = [graded(0, "hard", reward) for reward in (0, 1)]
    mixed = [easy[0], hard[0], *easy[1:], hard[1]]
    assert advantages(mixed, "task") == pytest.approx([1 / 3, -1.0, 1 / 3, -1.0, 1 / 3, 1.0])
    # Four of six are right: without a right one 3 / 5, without a wrong one 4 / 5.
    assert advantages(mixed, "batch") == pytest.approx([0.4, -0.8, 0.4, -0.8, 0.4, 0.4])


def test_the_only_trajectory_of_a_task_is_measured_by_those_of_others(graded: Callable[..., Graded]) -> None:
    """Never by itself, which would leave it without an advantage: as a gradient, biased towards none."""
    kept = [graded(0, "alone", 1), graded(0, "other", 0), graded(0, "other", 1)]
    assert advantages(kept, "task") == pytest.approx([0.5, -1.0, 1.0])
    assert advantages(kept[:1], "task") == advantages(kept[:1], "batch") == [1.0]


def step_of_a_coin(
    graded: Callable[..., Graded], pays: dict[str, tuple[int, int]], baseline: Baseline
) -> tuple[float, float]:
    """Exact mean and variance of the estimate where a policy with one parameter x tosses a coin.

    It says 1 with probability sigmoid(x) = 0.6, whatever the task; task t pays `pays[t][said]`. Two
    trajectories a task: all their joint outcomes are enumerated.
    """
    p, names = 0.6, [task for task in pays for _ in range(2)]
    mean = square = 0.0
    for said in product((0, 1), repeat=len(names)):
        chance = math.prod(p if one else 1 - p for one in said)
        kept = [graded(0, task, pays[task][one]) for task, one in zip(names, said, strict=True)]
        found = advantages(kept, baseline)
        # d log π / dx is said - p.
        estimate = sum(a * (one - p) for a, one in zip(found, said, strict=True)) / len(said)
        mean, square = mean + chance * estimate, square + chance * estimate**2
    return mean, square - mean**2


def test_the_tasks_own_baseline_has_less_variance_where_tasks_differ_in_difficulty(
    graded: Callable[..., Graded],
) -> None:
    """An easy task, an impossible one, and one that only the right word solves."""
    pays = {"easy": (1, 1), "impossible": (0, 0), "open": (0, 1)}
    found = {baseline: step_of_a_coin(graded, pays, baseline) for baseline in BASELINES}
    # J = (1 + 0 + p) / 3, and dp/dx = p (1 - p).
    assert [mean for mean, _ in found.values()] == pytest.approx([0.24 / 3] * 2), "both are unbiased"
    assert found["task"][1] < found["batch"][1]


def test_the_batchs_baseline_has_less_variance_where_tasks_are_alike(graded: Callable[..., Graded]) -> None:
    """It is the mean of more trajectories: what the other one pays for being the task's own."""
    found = {b: step_of_a_coin(graded, dict.fromkeys("abc", (0, 1)), b) for b in BASELINES}
    assert [mean for mean, _ in found.values()] == pytest.approx([0.24] * 2), "both are unbiased"
    assert found["batch"][1] < found["task"][1]


@pytest.mark.parametrize("baseline", BASELINES)
def test_a_step_takes_its_baseline_and_logs_both_variances(
    make_module: Make, data: TaskDataModule, baseline: Baseline
) -> None:
    objective = Reinforce(samples=5, baseline=baseline, max_gradient_norm=None)
    module, update = stepped(make_module, data, objective)
    kept = update.ledger.kept
    for name in BASELINES:
        values = advantages(kept, name)
        wanted = sum(value**2 for value in values) / len(values)
        assert update.metrics[f"reinforce/advantage_variance/{name}"] == pytest.approx(wanted)
    fresh = make_module()
    fresh.configure_model()
    gradients = fresh.gradients()
    weights = [value / len(kept) for value in advantages(kept, baseline)]
    queries = {task.id: task.query for task in data.minibatch(0)}
    accumulate(gradients, [one.trajectory for one in kept], weights, queries, fresh.episode)
    step = fresh.layout.pack(gradients.gradients())
    torch.testing.assert_close(module.theta() - module.initial_theta, -step, atol=1e-6, rtol=1e-4)


def stepped(
    make_module: Make, data: TaskDataModule, objective: Reinforce, **options: Any
) -> tuple[CoordinatorModule, Any]:
    module = make_module(optimizer=lambda groups: torch.optim.SGD(groups, lr=1.0), **options)
    module.configure_model()
    optimizer = module.configure_optimizers()
    update = objective.step(module, optimizer, data.minibatch(0), 0)  # type: ignore[arg-type]
    return module, update


def test_a_step_plays_the_batch_and_moves_head_and_scales(make_module: Make, data: TaskDataModule) -> None:
    module, update = stepped(make_module, data, Reinforce(samples=5))
    assert update.ledger.trajectories == 3 * 5
    moved = module.theta() - module.initial_theta
    assert moved[:160].abs().max() > 0
    assert update.metrics["J/population_mean"] == update.ledger.mean_reward
    # Agents and roles are uniform at the start: ln 2 + ln 3.
    assert update.metrics["reinforce/entropy"] == pytest.approx(np.log(6), abs=1e-6)
    choices = {
        tuple((t.agent, t.role) for t in g.trajectory.turns)
        for g in update.ledger.kept
        if g.task_id == update.ledger.kept[0].task_id
    }
    assert len(choices) > 1, "each trajectory has draws of its own"


def test_the_batch_is_as_large_as_an_evolution_strategys(make_module: Make, data: TaskDataModule) -> None:
    _, update = stepped(make_module, data, Reinforce())
    module = make_module()
    module.configure_model()
    strategy = module.configure_optimizers()
    assert isinstance(strategy, SepCMAES)
    assert update.ledger.trajectories == 3 * strategy.population_size


def test_long_gradients_are_scaled_to_the_limit_in_units_of_x(
    make_module: Make, data: TaskDataModule
) -> None:
    scales = BlockScales(head=4.0, svf=0.5)
    free, update = stepped(
        make_module, data, Reinforce(samples=5, max_gradient_norm=None), block_scales=scales
    )
    norm = update.metrics["reinforce/gradient_norm"]
    limit = norm / 10
    clipped, again = stepped(
        make_module, data, Reinforce(samples=5, max_gradient_norm=limit), block_scales=scales
    )
    assert again.metrics["reinforce/gradient_norm"] == pytest.approx(norm)
    whole, part = free.theta() - free.initial_theta, clipped.theta() - clipped.initial_theta
    torch.testing.assert_close(part, whole / 10, atol=1e-7, rtol=1e-4)
    # Plain gradient ascent with learning rate scale: block b moves by scale_b times its gradient.
    gradient = whole / clipped.layout.scales()
    assert float((gradient * clipped.layout.scales()).norm()) == pytest.approx(norm, rel=1e-4)


def test_an_entropy_bonus_pulls_towards_uniform_choices(make_module: Make, data: TaskDataModule) -> None:
    def after(bonus: float) -> float:
        module = make_module(svf=SVFSettings(enabled=False))
        module.configure_model()
        with torch.no_grad():
            module.head.weight.add_(0.3 * torch.randn(5, 32, generator=torch.Generator().manual_seed(0)))
        gradients = module.gradients()
        results = module.play(module.theta()[None], data.minibatch(0), stage="train", generation=0, copies=4)
        paths = [r.trajectory for r in results if isinstance(r, Graded)]
        queries = {t.id: t.query for t in data.minibatch(0)}
        before = accumulate(gradients, paths, [0.0] * len(paths), queries, module.episode, bonus)
        with torch.no_grad():
            module.head.weight.sub_(0.1 * gradients.gradients()["head.weight"])
        later = accumulate(module.gradients(), paths, [0.0] * len(paths), queries, module.episode)
        return later - before

    assert after(0.0) == 0.0
    assert after(1.0) > 1e-3


@pytest.mark.parametrize(
    ("options", "named"),
    [({"samples": 1}, "samples is 1"), ({"max_gradient_norm": 0.0}, "max_gradient_norm is 0.0")],
)
def test_options_that_can_not_be_are_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=named):
        Reinforce(**options)


def test_an_evolution_strategy_is_refused(make_module: Make, data: TaskDataModule) -> None:
    module = make_module()
    module.configure_model()
    optimizer: Any = module.configure_optimizers()
    with pytest.raises(UserError, match="needs an optimizer that follows gradients"):
        Reinforce().step(module, optimizer, data.minibatch(0), 0)
