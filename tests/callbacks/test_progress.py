"""What the progress display says without a terminal."""

from collections import Counter
from types import SimpleNamespace

import pytest
import torch

from callbacks.progress import GenerationProgress
from trinity.objectives.base import Update
from trinity.objectives.ledger import Ledger


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


def test_a_resumed_run_goes_on_counting_its_cost() -> None:
    first, second = GenerationProgress(), GenerationProgress()
    second.load_state_dict({"spent": 1.5})
    first.load_state_dict(second.state_dict())
    assert first.state_dict() == {"spent": 1.5}
