"""The uniform-policy check."""

from types import SimpleNamespace

import pytest
import torch

from callbacks.uniform import UniformPolicyCheck
from trinity.errors import UserError


def trainer(data, step: int = 0) -> SimpleNamespace:
    return SimpleNamespace(datamodule=data, global_step=step)


def test_the_zero_head_passes(make_module, data) -> None:
    module = make_module()
    module.configure_model()
    UniformPolicyCheck(states=300, distinct=6).on_train_start(trainer(data), module)


@pytest.mark.parametrize(("row", "kind"), [(0, "agent"), (3, "role")])
def test_a_preference_is_found_and_named(make_module, data, row: int, kind: str) -> None:
    module = make_module()
    module.configure_model()
    engine = module.coordinator.engine
    encoded = module.coordinator.encoder.encode([data.splits.train[0].query])
    hidden = engine.hidden(encoded, engine.adapt({}))
    module.initial_theta[:160].view(5, 32)[row] = 2 * hidden / hidden.norm()
    with pytest.raises(UserError, match=f"chose each {kind}"):
        UniformPolicyCheck(states=300, distinct=6).on_train_start(trainer(data), module)


def test_a_resumed_run_is_not_checked(make_module, data) -> None:
    module = make_module()
    module.configure_model()
    module.initial_theta = torch.full_like(module.initial_theta, torch.nan)
    UniformPolicyCheck().on_train_start(trainer(data, step=3), module)
