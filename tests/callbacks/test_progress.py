"""What the progress display says without a terminal."""

from collections import Counter
from types import SimpleNamespace

import pytest
import torch

from callbacks.progress import GenerationProgress
from trinity.episode.roles import Role
from trinity.episode.rollout import Trajectory
from trinity.episode.scheduler import Graded
from trinity.episode.transcript import Turn
from trinity.objectives.base import Update
from trinity.objectives.ledger import Ledger
from trinity.pool.base import Completion, Paid


def test_a_line_a_generation(make_module, capsys: pytest.CaptureFixture[str]) -> None:
    module, callback = make_module(), GenerationProgress()
    module.update = Update(6, Ledger([], [], Counter()), {"J/population_mean": 0.25})
    metrics = {"J/validation": torch.tensor(0.5)}
    trainer = SimpleNamespace(is_global_zero=True, global_step=7, max_steps=40, callback_metrics=metrics)
    callback.on_train_start(trainer, module)
    callback.on_train_epoch_end(trainer, module)
    callback.on_train_end(trainer, module)
    first, last = capsys.readouterr().out.splitlines()
    assert first == "generation 7/40  J 0.250  validation 0.500  $0.00"
    assert last.startswith("Trained to generation 7 in ")
    assert callback.training_seconds > 0


def test_what_was_spent_and_refused_is_shown_also_after_a_resume(
    make_module, capsys: pytest.CaptureFixture[str]
) -> None:
    module, first, second = make_module(), GenerationProgress(), GenerationProgress()
    refused = Completion("", finish_reason="refused", refusal="status 403")
    path = Trajectory(0, "t", (Turn(1, Role.WORKER, refused, ""),), "turns", "")
    module.update = Update(0, Ledger([Graded(path, 0)], [], Counter()), {})
    module.spent = Paid(1.5, 7)
    trainer = SimpleNamespace(is_global_zero=True, global_step=1, max_steps=2, callback_metrics={})
    first.on_train_start(trainer, module)
    first.on_train_epoch_end(trainer, module)
    second.load_state_dict(first.state_dict())
    second.on_train_start(trainer, module)
    second.on_train_epoch_end(trainer, module)
    second.on_train_end(trainer, module)
    said = capsys.readouterr().out
    assert said.count("$1.50") == 2
    assert "agent-1: status 403 (2x)" in said
