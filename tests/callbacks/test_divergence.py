"""The divergence monitor."""

import warnings
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from callbacks.divergence import DivergenceMonitor, measure
from trinity.optimizers.sep_cma import SepCMAES


class Loggers(list):
    def __init__(self) -> None:
        super().__init__([self])
        self.seen: dict[str, float] = {}

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        assert step == 0
        self.seen |= metrics


def started(module, data, sigma0: float) -> Loggers:
    module.optimizer_factory = partial(SepCMAES, sigma0=sigma0, population_size=8)
    module.configure_model()
    loggers = Loggers()
    trainer = SimpleNamespace(
        is_global_zero=True,
        datamodule=data,
        global_step=0,
        optimizers=[module.configure_optimizers()],
        loggers=loggers,
    )
    DivergenceMonitor(distinct=2).on_train_start(trainer, module)
    return loggers


def test_candidates_that_act_alike_give_a_warning(make_module, data) -> None:
    with pytest.warns(UserWarning, match="hardly differ.*raise sigma0"):
        loggers = started(make_module(), data, sigma0=1e-3)
    assert loggers.seen["divergence/total_variation"] < 0.01


def test_candidates_that_differ_give_none(make_module, data) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        loggers = started(make_module(), data, sigma0=1.0)
    assert loggers.seen["divergence/total_variation"] > 0.3


def test_the_logit_spread_is_the_step_size_times_the_norm(make_module, data) -> None:
    """Head weights of N(0, 0.1^2) on a hidden state of norm sqrt(32): logits of deviation 0.1 x sqrt(32)."""
    module = make_module()
    module.configure_model()
    thetas = module.initial_theta.repeat(400, 1)
    thetas[:, :160] = 0.1 * torch.randn(400, 160, generator=torch.Generator().manual_seed(0))
    found = measure(module.coordinator, thetas, [data.splits.train[0].query])
    assert found["logit_spread"] == pytest.approx(0.1 * 32**0.5, rel=0.1)


def test_equal_candidates_do_not_differ(make_module, data) -> None:
    module = make_module()
    module.configure_model()
    found = measure(module.coordinator, module.initial_theta.repeat(3, 1), [data.splits.train[0].query])
    assert found == {"total_variation": 0.0, "logit_spread": 0.0, "certainty": pytest.approx(1 / 6)}


def test_candidates_that_are_certain_from_birth_give_a_warning(make_module, data) -> None:
    with pytest.warns(UserWarning, match="saturated.*Lower sigma0"):
        loggers = started(make_module(), data, sigma0=50.0)
    assert loggers.seen["divergence/certainty"] > 0.95
