from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter

from trinity.episode.rollout import EpisodeSettings
from trinity.episode.scheduler import Failure, Graded
from trinity.errors import UserError
from trinity.objectives.evolution import Evolution
from trinity.objectives.shaping import Shaping
from trinity.optimizers.sep_cma import SepCMAES
from trinity.tasks.task import Task

TASKS = [Task(f"t{i}", "d", "q", "r", "text", "line") for i in range(5)]


class Field:
    """An arena where a candidate is right on the first few tasks, the more the larger theta's sum is."""

    def __init__(self, graded: Callable[..., Graded], lost: Sequence[tuple[int, str]] = ()) -> None:
        self._graded = graded
        self._lost = set(lost)
        self.calls: list[tuple[Tensor, list[Task], dict[str, Any]]] = []

    def play(self, thetas: Tensor, tasks: Sequence[Task], **how: Any) -> list[Graded | Failure]:
        self.calls.append((thetas, list(tasks), how))
        return [
            Failure(c, task.id, "gpt", "timeout")
            if (c, task.id) in self._lost
            else self._graded(c, task.id, int(theta.sum() > 0.1 * (i - 2)))
            for c, theta in enumerate(thetas)
            for i, task in enumerate(tasks)
        ]


def strategy() -> tuple[SepCMAES, Parameter]:
    theta = Parameter(torch.zeros(6))
    return SepCMAES([theta], sigma0=0.1, seed=1), theta


def fitness_of(thetas: Tensor) -> Tensor:
    return torch.stack([(thetas.sum(dim=1) > 0.1 * (i - 2)).float() for i in range(5)]).mean(dim=0)


def test_one_step_asks_plays_everyone_and_tells(graded: Callable[..., Graded]) -> None:
    cma, theta = strategy()
    arena = Field(graded)
    update = Evolution().step(arena, cma, TASKS, 0)
    [(played, tasks, how)] = arena.calls
    twin, _ = strategy()
    assert torch.equal(played, twin.ask())
    assert tasks == TASKS
    assert how == {"stage": "train", "generation": 0, "shared_draws": True}
    twin.step(lambda: fitness_of(played))
    assert cma.generation == 1
    assert torch.equal(cma.mean, twin.mean) and torch.equal(theta.detach(), twin.mean)
    assert not torch.equal(cma.mean, torch.zeros(6))
    fitness = fitness_of(played)
    assert len(fitness.unique()) > 1
    assert update.generation == 0
    assert update.ledger.trajectories == len(played) * len(TASKS)
    assert update.metrics == {
        "J/population_mean": pytest.approx(float(fitness.mean())),
        "J/population_best": pytest.approx(float(fitness.max())),
        "fitness_levels": float(len(fitness.unique())),
        "sigma": pytest.approx(0.1),
    }


def test_generations_climb(graded: Callable[..., Graded]) -> None:
    cma, _ = strategy()
    arena = Field(graded)
    means = [Evolution().step(arena, cma, TASKS, g).metrics["J/population_mean"] for g in range(15)]
    assert means[-1] > means[0] + 0.3
    assert [how["generation"] for _, _, how in arena.calls] == list(range(15))


def test_candidates_share_their_numbers_if_told_to(graded: Callable[..., Graded]) -> None:
    arena = Field(graded)
    Evolution(common_random_numbers=False).step(arena, strategy()[0], TASKS, 0)
    assert arena.calls[0][2]["shared_draws"] is False


def test_a_lost_task_counts_for_no_candidate(graded: Callable[..., Graded]) -> None:
    cma, _ = strategy()
    update = Evolution().step(Field(graded, [(0, "t0")]), cma, TASKS, 0)
    twin, _ = strategy()
    kept = torch.stack([(twin.ask().sum(dim=1) > 0.1 * (i - 2)).float() for i in range(1, 5)]).mean(dim=0)
    twin.step(lambda: kept)
    assert torch.equal(cma.mean, twin.mean)
    assert update.ledger.dropped == twin.population_size


def test_too_many_losses_teach_nothing(graded: Callable[..., Graded]) -> None:
    cma, theta = strategy()
    pending = cma.ask()
    with pytest.raises(UserError, match="gpt: timeout"):
        Evolution().step(Field(graded, [(0, "t0"), (3, "t1")]), cma, TASKS, 0)
    assert cma.generation == 0 and torch.equal(theta.detach(), torch.zeros(6))
    assert torch.equal(cma.ask(), pending), "the same generation can be played again"
    Evolution(max_dropped_share=0.4).step(Field(graded, [(0, "t0"), (3, "t1")]), cma, TASKS, 0)
    assert cma.generation == 1


def test_it_steps_the_wrapper_that_counts_steps(graded: Callable[..., Graded]) -> None:
    class Wrapper:
        steps = 0

        def __init__(self, optimizer: SepCMAES) -> None:
            self.optimizer = optimizer

        def step(self, closure: Callable[[], Tensor]) -> None:
            self.steps += 1
            self.optimizer.step(closure)

    cma, _ = strategy()
    wrapper = Wrapper(cma)
    Evolution().step(Field(graded), wrapper, TASKS, 0)  # type: ignore[arg-type]
    assert (wrapper.steps, cma.generation) == (1, 1)


def test_an_optimizer_that_is_no_evolution_strategy_is_refused(graded: Callable[..., Graded]) -> None:
    arena = Field(graded)
    with pytest.raises(UserError, match=r"SepCMAES.*SGD.*model\.optimizer"):
        Evolution().step(arena, torch.optim.SGD([Parameter(torch.zeros(2))], lr=0.1), TASKS, 0)
    assert arena.calls == []


class Lottery(Field):
    """Whoever plays again is right on nothing: what looked good was luck."""

    agents = 3
    episode = EpisodeSettings(max_turns=4)

    def play(self, thetas: Tensor, tasks: Sequence[Task], **how: Any) -> list[Graded | Failure]:
        if how["stage"] == "train":
            return super().play(thetas, tasks, **how)
        self.calls.append((thetas, list(tasks), how))
        return [self._graded(c, task.id, 0) for c in range(len(thetas)) for task in tasks]


def test_the_best_play_again_and_count_with_the_mean_of_both(graded: Callable[..., Graded]) -> None:
    cma, _ = strategy()
    arena = Lottery(graded)
    update = Evolution(again=3).step(arena, cma, TASKS, 7)
    twin, _ = strategy()
    population = twin.ask()
    fitness = fitness_of(population)
    best = torch.argsort(fitness, descending=True, stable=True)[:3]
    assert torch.equal(arena.calls[1][0], population[best])
    assert arena.calls[1][2] == {"stage": "again", "generation": 7, "shared_draws": True}
    wanted = fitness.clone()
    wanted[best] /= 2
    twin.step(lambda: wanted)
    assert torch.equal(cma.mean, twin.mean)
    assert update.ledger.trajectories == (len(population) + 3) * len(TASKS)
    assert update.metrics["J/population_mean"] == pytest.approx(float(fitness.mean()))
    assert update.metrics["J/population_best"] == pytest.approx(float(wanted.max()))


def test_shaping_moves_the_fitness_and_not_j(graded: Callable[..., Graded]) -> None:
    plain, shaped = Lottery(graded), Lottery(graded)
    cma, twin = strategy()[0], strategy()[0]
    without = Evolution().step(plain, cma, TASKS, 0)
    # All trajectories are alike: one turn of four by agent 0, so that the ranks stay as they are.
    with_it = Evolution(shaping=Shaping(agent_entropy=0.5, turns=0.2)).step(shaped, twin, TASKS, 0)
    assert with_it.metrics.pop("shaping/mean") == pytest.approx(-0.2 / 4)
    assert with_it.metrics == without.metrics
    assert torch.equal(cma.mean, twin.mean)


def test_a_negative_number_of_repetitions_is_refused() -> None:
    with pytest.raises(UserError, match="again is -1"):
        Evolution(again=-1)
