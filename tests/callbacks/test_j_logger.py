"""The J logger's rows, file and history."""

import csv
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from callbacks.j_logger import JLogger
from trinity.episode.roles import Role
from trinity.episode.rollout import Trajectory
from trinity.episode.scheduler import Graded
from trinity.episode.transcript import Turn
from trinity.objectives.base import Update
from trinity.objectives.ledger import Ledger
from trinity.pool.base import Completion, Paid


class Logger:
    def __init__(self) -> None:
        self.seen: list[tuple[int, dict[str, float]]] = []

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.seen.append((step, metrics))


def update(generation: int, reward: int) -> Update:
    completion = Completion("Answer: 1", prompt_tokens=10, completion_tokens=4, cost=0.5)
    path = Trajectory(0, "t", (Turn(1, Role.WORKER, completion, "Answer: 1"),), "turns", "Answer: 1")
    graded = Graded(path, reward)
    ledger = Ledger([graded], [graded], Counter({("agent-0", "timeout"): 1}))
    return Update(generation, ledger, {"J/population_mean": float(reward), "sigma": 0.1})


def trainer(folder: Path, logger: Logger) -> Any:
    return SimpleNamespace(
        loggers=[logger],
        log_dir=str(folder),
        is_global_zero=True,
        callback_metrics={"J/validation": torch.tensor(0.75)},
    )


def test_a_generation_is_a_row_in_every_logger_and_in_the_file(make_module, tmp_path: Path) -> None:
    module, logger, callback = make_module(), Logger(), JLogger()
    running = trainer(tmp_path, logger)
    for generation, reward in enumerate((0, 1)):
        module.update = update(generation, reward)
        module.spent += module.update.ledger.paid
        if generation == 1:
            module.spent += Paid(0.25, 3, 20, 10)  # of the validation
            callback.on_validation_end(running, module)
        callback.on_train_epoch_end(running, module)

    assert callback.j_series == [0.0, 1.0]
    # Each row at its generation, and J once more at the trajectories spent.
    assert [step for step, _ in logger.seen] == [0, 3, 1, 6]
    first, second = (row for _, row in logger.seen[::2])
    assert [row for _, row in logger.seen[1::2]] == [
        {"by_trajectories/J_population_mean": 0.0},
        {"by_trajectories/J_population_mean": 1.0, "by_trajectories/J_validation": 0.75},
    ]
    assert "J/validation" not in first
    assert second["J/validation"] == 0.75
    assert second["trajectories/all"] == 3
    assert (second["trajectories/right"], second["trajectories/dropped"]) == (1, 2)
    assert second["trajectories/failed"] == 1
    # What was dropped was paid for all the same.
    assert (second["prompt_tokens"], second["completion_tokens"]) == (20, 8)
    assert (second["spent/trajectories"], second["spent/usd"]) == (6, 2.25)
    assert (second["spent/calls"], second["spent/tokens"]) == (7, 86)
    with (tmp_path / "generations.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["J/population_mean"] for row in rows] == ["0.0", "1.0"]
    assert [row["J/validation"] for row in rows] == ["", "0.75"]


def test_the_history_travels_in_the_checkpoint(make_module, tmp_path: Path) -> None:
    module, callback = make_module(), JLogger()
    module.update = update(0, 1)
    callback.on_train_epoch_end(trainer(tmp_path, Logger()), module)
    state = callback.state_dict()

    resumed = JLogger()
    resumed.load_state_dict(state)
    module.update = update(1, 0)
    resumed.on_train_epoch_end(trainer(tmp_path, Logger()), module)
    assert resumed.j_series == [1.0, 0.0]
    assert resumed.rows[-1]["spent/trajectories"] == 6
    assert callback.j_series == [1.0]
