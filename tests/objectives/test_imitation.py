"""Oracle labels and the head that learns them."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from trinity.data import TaskDataModule
from trinity.episode.policy import probabilities
from trinity.episode.roles import Role
from trinity.episode.rollout import EpisodeSettings
from trinity.errors import UserError
from trinity.module import CoordinatorModule
from trinity.objectives.base import Plan
from trinity.objectives.imitation import Imitation, target
from trinity.pool.base import Completion, DecodeParameters, InfrastructureError, Message, Pool
from trinity.rewards.rewards import Rewards
from trinity.tasks.synthetic import SyntheticTasks
from trinity.tasks.task import Task

Make = Callable[..., CoordinatorModule]


@pytest.mark.parametrize(
    ("solved", "wanted"),
    [
        ({0: 3, 1: 2}, [1.0, 0.0, 0.0]),
        ({0: 2, 2: 2, 1: 1}, [0.5, 0.0, 0.5]),
        ({0: 1, 1: 1, 2: 1}, [1 / 3] * 3),
        ({}, []),
        ({0: 0, 1: 0}, []),
    ],
)
def test_the_agents_that_solve_it_most_often_share_the_target(
    solved: dict[int, int], wanted: list[float]
) -> None:
    assert target(solved, 3) == pytest.approx(wanted)


def adam(groups: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(groups, lr=0.02)


@pytest.fixture
def module(make_module: Make) -> CoordinatorModule:
    module = make_module(optimizer=adam)
    module.configure_model()
    return module


def test_it_learns_whom_to_ask_and_leaves_the_scales(module: CoordinatorModule) -> None:
    data = TaskDataModule(SyntheticTasks(train=60, validation=3, test=60), minibatch=20)
    objective, optimizer = Imitation(), module.configure_optimizers()
    first = objective.step(module, optimizer, data.minibatch(0), 0)  # type: ignore[arg-type]
    assert first.ledger.trajectories == 20 * 2, "greedy answers are asked for once"
    # The two agents know two of the three kinds of question; text is nobody's.
    assert first.metrics["imitation/labelled"] + first.metrics["imitation/unsolved"] == 20
    for step in range(1, 60):
        last = objective.step(module, optimizer, data.minibatch(step), step)  # type: ignore[arg-type]
    assert last.ledger.trajectories == 0, "all tasks are labelled, and paid for, once"
    assert last.metrics["imitation/loss"] < first.metrics["imitation/loss"] / 2
    assert last.metrics["imitation/accuracy"] > 0.8
    assert torch.equal(module.theta()[160:], torch.ones(192))

    module.coordinator.load(module.theta()[None])
    hits = Counter[str]()
    for task in data.splits.test:
        agents, roles = module.coordinator.decide(0, [task.query])
        assert int(roles.argmax()) == Role.WORKER
        hits[task.domain] += int(agents.argmax()) == {"math": 0, "choice": 1}.get(task.domain, -1)
    assert hits["math"] + hits["choice"] > 36


class Lucky(Pool):
    """Right in one of three samples; at temperature 0 there is no luck."""

    agents = ("a", "b")

    def __init__(self) -> None:
        self.asked: list[tuple[int, str]] = []

    async def complete(self, agent: int, messages: Sequence[Message], decode: DecodeParameters) -> Completion:
        self.asked.append((agent, decode.sample))
        return Completion(f"\\boxed{{{77 if decode.sample.split('/')[1:2] == [f'label-{agent}'] else 0}}}")


@pytest.mark.parametrize(("temperature", "wanted"), [(0.0, 1), (0.7, 3)])
def test_a_label_takes_three_samples_or_one_greedy_answer(
    make_module: Make, temperature: float, wanted: int
) -> None:
    """And that is what is planned, and what the log says."""
    pool = Lucky()
    module = make_module(
        pool=pool, optimizer=adam, episode=EpisodeSettings(decode=DecodeParameters(temperature=temperature))
    )
    module.configure_model()
    task = Task("t", "math", "What is 77 * 1 + 0?", "77", "math", "boxed")
    objective = Imitation()
    update = objective.step(module, module.configure_optimizers(), [task], 0)  # type: ignore[arg-type]
    samples = [f"0/label-{i}/0" for i in range(3)] if temperature else [""]
    assert sorted(pool.asked) == [(agent, sample) for agent in range(2) for sample in samples]
    assert objective.state()["targets"] == {"t": [0.5, 0.5] if temperature else []}
    assert update.metrics["imitation/samples"] == wanted
    plan = Plan(steps=1, minibatch=1, n=9, population=1, agents=2, training_tasks=1, temperature=temperature)
    assert objective.planned(plan) == update.ledger.trajectories == len(pool.asked) == 2 * wanted


def test_labels_are_kept_and_not_paid_for_twice(module: CoordinatorModule, data: TaskDataModule) -> None:
    objective, optimizer = Imitation(), module.configure_optimizers()
    tasks = data.splits.train
    objective.step(module, optimizer, tasks, 0)  # type: ignore[arg-type]
    resumed = Imitation()
    resumed.load_state(objective.state())
    again = resumed.step(module, optimizer, tasks, 1)  # type: ignore[arg-type]
    assert again.ledger.trajectories == 0
    labels = objective.state()["targets"]
    assert set(labels) == {task.id for task in tasks}
    assert all(isinstance(x, float) for target in labels.values() for x in target)


class Flaky(Pool):
    """Its second agent is down until told otherwise; the first one knows nothing."""

    agents = ("a", "b")
    down = True

    async def complete(self, agent: int, messages: Sequence[Message], decode: DecodeParameters) -> Completion:
        if agent == 1 and self.down and "77" in messages[-1]["content"]:
            raise InfrastructureError("b", "down")
        return Completion("no idea")


def test_a_task_that_could_not_be_labelled_is_tried_again(make_module: Make, data: TaskDataModule) -> None:
    pool = Flaky()
    module = make_module(pool=pool, optimizer=adam)
    module.configure_model()
    objective, optimizer = Imitation(), module.configure_optimizers()
    task = data.splits.train[0]
    lost = type(task)("lost", "math", "What is 77 * 1 + 0?", "77", "math", "boxed")
    before = module.theta()
    update = objective.step(module, optimizer, [task, lost], 0)  # type: ignore[arg-type]
    assert update.ledger.failures == {("b", "down"): 1}
    assert set(objective.state()["targets"]) == {task.id}
    assert torch.equal(module.theta(), before), "a task that nobody solves teaches nothing"
    pool.down = False
    objective.step(module, optimizer, [task, lost], 1)  # type: ignore[arg-type]
    assert set(objective.state()["targets"]) == {task.id, "lost"}


def test_many_lost_labels_stop_the_run(make_module: Make) -> None:
    module = make_module(pool=Flaky(), optimizer=adam, rewards=Rewards())
    module.configure_model()
    tasks = TaskDataModule(SyntheticTasks(train=12, validation=3, test=3), minibatch=3).splits.train
    lost = [type(tasks[0])(f"l{i}", "math", f"What is 77 * {i} + 0?", "1", "math", "boxed") for i in range(8)]
    with pytest.raises(UserError, match="lost to infrastructure failures"):
        Imitation().step(module, module.configure_optimizers(), lost, 0)  # type: ignore[arg-type]


def test_the_papers_learning_rate_leaves_sampled_choices_uniform(
    make_module: Make, data: TaskDataModule
) -> None:
    """As configs/optimizers/sft_paper.yaml says: for sampled choices, not for argmax."""
    module = make_module(optimizer=lambda groups: torch.optim.Adam(groups, lr=1e-6))
    module.configure_model()
    objective, optimizer = Imitation(), module.configure_optimizers()
    for step in range(300):
        objective.step(module, optimizer, data.minibatch(step), step)  # type: ignore[arg-type]
    module.coordinator.load(module.theta()[None])
    agents, _ = module.coordinator.decide(0, [data.splits.train[0].query])
    assert probabilities(agents) == pytest.approx([0.5, 0.5], abs=0.01)


def test_an_evolution_strategy_is_refused(make_module: Make, data: TaskDataModule) -> None:
    module = make_module()
    module.configure_model()
    with pytest.raises(UserError, match="needs an optimizer that follows gradients"):
        Imitation().step(module, module.configure_optimizers(), data.minibatch(0), 0)  # type: ignore[arg-type]
