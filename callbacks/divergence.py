"""Do the candidates of a population act differently at all?"""

import warnings
from collections.abc import Sequence

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from trinity.coordinator.coordinator import Coordinator
from trinity.data import TaskDataModule
from trinity.episode.policy import Logits, probabilities
from trinity.module import CoordinatorModule
from trinity.optimizers.base import EvolutionStrategy


class DivergenceMonitor(Callback):
    """Before generation 0: how far candidates' policies differ, as a mean total-variation distance.

    At the queries of the first minibatch (no LLM is called), each candidate's distribution over (agent, role)
    is compared with the population's mean one. Where the distance is hardly above 0, all candidates act
    alike, the fitness is noise, and nothing can be learned: raise sigma0, the block scales, or change
    `hidden_norm`. Where they are certain of all their choices, they are saturated from birth: small steps
    change nothing any more.

    Args:
        warn_below: the distance below which a warning is given.
        warn_above: likewise the mean probability of the likeliest (agent, role) above which one is given.
        distinct: at how many transcripts it is measured.
    """

    def __init__(self, warn_below: float = 0.1, warn_above: float = 0.95, distinct: int = 8) -> None:
        self.warn_below = warn_below
        self.warn_above = warn_above
        self.distinct = distinct

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measure, log `divergence/*` at step 0, and warn."""
        assert isinstance(pl_module, CoordinatorModule)
        strategy = trainer.optimizers[0]
        if (
            trainer.global_step > 0
            or not trainer.is_global_zero
            or not isinstance(strategy, EvolutionStrategy)
        ):
            return
        data: TaskDataModule = trainer.datamodule  # type: ignore[attr-defined]
        queries = [task.query for task in data.minibatch(0)[: self.distinct]]
        found = measure(pl_module.coordinator, strategy.ask(), queries)
        for logger in trainer.loggers:
            logger.log_metrics({f"divergence/{name}": value for name, value in found.items()}, step=0)
        if found["total_variation"] < self.warn_below:
            warnings.warn(
                f"The candidates of generation 0 hardly differ: mean total variation "
                f"{found['total_variation']:.3f} (logit spread {found['logit_spread']:.3f}) is below "
                f"{self.warn_below}. Nothing can be learned from candidates that act alike; raise sigma0 or "
                "model.block_scales, or set model.extraction.hidden_norm to rms.",
                stacklevel=1,
            )
        if found["certainty"] > self.warn_above:
            warnings.warn(
                f"The candidates of generation 0 are saturated: their likeliest choice has probability "
                f"{found['certainty']:.3f} on average (logit spread {found['logit_spread']:.1f}). Lower "
                "sigma0 (or half_width), or model.block_scales.",
                stacklevel=1,
            )


def measure(coordinator: Coordinator, thetas: Tensor, queries: Sequence[str]) -> dict[str, float]:
    """`total_variation` of candidates' joint policies around their mean, `certainty`, and `logit_spread`.

    Certainty is the mean probability of the likeliest (agent, role). The spread is the standard deviation of
    a logit over the candidates, averaged over logits and queries.
    """
    coordinator.load(thetas)
    pairs = [[coordinator.decide(c, [query]) for c in range(len(thetas))] for query in queries]
    joint = np.array([[_joint(*pair) for pair in row] for row in pairs])
    distance = np.abs(joint - joint.mean(axis=1, keepdims=True)).sum(axis=-1) / 2
    logits = torch.tensor(np.array([[np.concatenate(pair) for pair in row] for row in pairs]))
    return {
        "total_variation": float(distance.mean()),
        "certainty": float(joint.max(axis=-1).mean()),
        "logit_spread": float(logits.std(dim=1).mean()),
    }


def _joint(agents: Logits, roles: Logits) -> Logits:
    return np.outer(probabilities(agents), probabilities(roles)).ravel()
