"""Is the untrained policy uniform?"""

import numpy as np
from lightning.pytorch import Callback, LightningModule, Trainer
from scipy import stats

from trinity import keyed
from trinity.data import TaskDataModule
from trinity.episode.policy import choose
from trinity.errors import UserError
from trinity.module import CoordinatorModule


class UniformPolicyCheck(Callback):
    """Before the first generation: the initial theta must choose agents and roles uniformly.

    Draws choices at `states` states (the queries of training tasks; no LLM is called) and compares their
    counts with uniform ones by a chi-square test. A head that starts with a preference would make "better
    than random" mean nothing. Skipped when a run is resumed.

    Args:
        states: how many choices are drawn.
        distinct: over how many distinct transcripts; each costs one forward.
        level: the check fails if the test's p value is below it.
    """

    def __init__(self, states: int = 300, distinct: int = 30, level: float = 1e-4) -> None:
        self.states = states
        self.distinct = distinct
        self.level = level

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Raises UserError if the initial policy is not uniform."""
        assert isinstance(pl_module, CoordinatorModule)
        if trainer.global_step > 0:
            return
        data: TaskDataModule = trainer.datamodule  # type: ignore[attr-defined]
        tasks = data.splits.train[: self.distinct]
        coordinator = pl_module.coordinator
        coordinator.load(pl_module.initial_theta[None])
        logits = [coordinator.decide(0, [task.query]) for task in tasks]
        for kind, index in (("agent", 0), ("role", 1)):
            counts = np.zeros(len(logits[0][index]))
            for state in range(self.states):
                uniform = keyed.uniform("uniform-check", pl_module.seed, state, kind)
                counts[choose(logits[state % len(tasks)][index], "sample", uniform)[0]] += 1
            p_value = float(stats.chisquare(counts).pvalue)
            if p_value < self.level:
                raise UserError(
                    f"The initial policy is not uniform: over {self.states} states it chose each {kind} "
                    f"{counts.astype(int).tolist()} times (chi-square p = {p_value:.1e}); start "
                    "the head at zero."
                )
