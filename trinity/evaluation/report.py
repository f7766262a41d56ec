"""A comparison as a table for people and as summary.json for programs."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch import Tensor

from trinity.evaluation.protocol import Comparison
from trinity.evaluation.statistics import Estimate, Rewards, paired_difference, proportion
from trinity.pool.base import Paid
from trinity.tasks.task import Task

FILE_NAME = "summary.json"
HELD_OUT_NAME = "held_out.json"
SPENT_NAME = "spent.json"
INTERVALS = (
    "Each interval holds by itself in 95 % of cases. They are not corrected for their number: of twenty that "
    "are read, one misses on average."
)


def theta_sha256(theta: Tensor) -> str:
    """Hash of theta's float32 bytes (little-endian)."""
    return hashlib.sha256(
        theta.detach().cpu().float().contiguous().numpy().astype("<f4").tobytes()
    ).hexdigest()


@dataclass(frozen=True)
class Row:
    """One line of the table: a policy, its J, and how far the trained coordinator is above it."""

    label: str
    estimate: Estimate
    gain: Estimate | None


class Report:
    """The results of one run.

    Args:
        comparison: rewards of every policy.
        tasks: the held-out tasks.
        theta: the final mean.
        seed: the run's seed.
        j_series: population mean of J, by generation; None where there is none.
        spent: what the whole run paid for, this comparison included.
    """

    def __init__(
        self,
        comparison: Comparison,
        tasks: Sequence[Task],
        theta: Tensor,
        seed: int,
        j_series: Sequence[float | None],
        spent: Paid,
    ) -> None:
        self._comparison = comparison
        self._by_domain, self._domain_agents = comparison.best_by_domain(tasks)
        self._theta = theta
        self._seed = seed
        self._j_series = list(j_series)
        self._spent = spent

    def _policies(self) -> dict[str, Rewards]:
        c = self._comparison
        found: dict[str, Rewards | None] = {
            "trained coordinator": c.trained,
            "initial coordinator (sampled)": c.initial,
            "random routing": c.random,
            **{f"single: {name}": rewards for name, rewards in c.singles.items()},
            "best single by domain (hindsight)": self._by_domain,
            "per-question best single": c.per_question_best,
            "best fixed schedule (state-blind)": c.state_blind,
            "trained, hidden states shuffled": c.shuffled,
        }
        return {label: rewards for label, rewards in found.items() if rewards}

    def rows(self) -> list[Row]:
        """Every policy's J with its interval, and the paired gain of the trained coordinator."""
        trained = self._comparison.trained
        return [
            Row(label, proportion(rewards.values()), None if rewards is trained else self._gain(rewards))
            for label, rewards in self._policies().items()
        ]

    def _gain(self, rewards: Rewards) -> Estimate | None:
        """How far the trained coordinator is above a policy, on the tasks that both finished."""
        trained = self._comparison.trained
        return paired_difference(trained, rewards) if trained.keys() & rewards.keys() else None

    def print(self, console: Console) -> None:
        """The table."""
        table = Table(title=f"Held-out tasks: J with 95 % intervals, seed {self._seed}")
        for column in ("policy", "J", "n", "trained minus this, paired"):
            table.add_column(column, justify="left" if column == "policy" else "right")
        for row in self.rows():
            gain = (
                ""
                if row.gain is None
                else f"{row.gain.mean:+.3f} [{row.gain.low:+.3f}, {row.gain.high:+.3f}]"
            )
            # Intervals and names hold square brackets, which are no markup.
            table.add_row(*map(escape, (row.label, str(row.estimate), str(row.estimate.n), gain)))
        console.print(table)
        for note in self.notes():
            console.print(note, markup=False)
        spent = self._spent
        console.print(
            f"The whole run paid ${spent.usd:,.2f} for {spent.calls:,} calls of {spent.tokens:,} tokens.",
            highlight=False,
        )

    def notes(self) -> list[str]:
        """What has to be known to read the table."""
        c = self._comparison
        single = "A single agent answers once, as a Worker, with the tokens of one turn"
        notes = [f"{single}."]
        if c.whole_budget:
            notes = [
                f"{single}; where the row says {c.whole_budget[0].turns} x, with those of all "
                f"{c.whole_budget[0].turns} turns, as many as the coordinator may spend on a task."
            ]
        if missing := [whole.name for whole in c.whole_budget if not whole.rewards]:
            notes.append(f"Could not be played: {'; '.join(missing)}.")
        if c.best_single is not None:
            notes.append(
                f"Best single, chosen with hindsight among all single rows: {c.best_single}. The rows by "
                "domain and by question choose among them all, too."
            )
        return [*notes, INTERVALS]

    def summary(self) -> dict[str, Any]:
        """What summary.json holds; null stands for what could not be measured."""
        c = self._comparison

        def estimate(rewards: Rewards, **more: Any) -> dict[str, Any] | None:
            return asdict(proportion(rewards.values())) | more if rewards else None

        found: dict[str, Any] = {
            "seed": self._seed,
            "torch_threads": torch.get_num_threads(),
            "generations": len(self._j_series),
            "j_series": self._j_series,
            "theta_sha256": theta_sha256(self._theta),
            "theta_n": self._theta.numel(),
            "initial": estimate(c.initial),
            "trained": estimate(c.trained),
            "single": {agent: estimate(rewards) for agent, rewards in c.single.items()},
            "single_whole_budget": {
                whole.agent: estimate(whole.rewards, turns=whole.turns, tokens_a_turn=whole.tokens)
                for whole in c.whole_budget
            },
            "random": estimate(c.random),
            "best_by_domain": estimate(self._by_domain, agents=self._domain_agents),
            "per_question_best": estimate(c.per_question_best),
        }
        found["intervals"] = INTERVALS
        gain = None if c.best_single is None else self._gain(c.singles[c.best_single])
        if gain is not None:
            whole = {each.name: each.agent for each in c.whole_budget}
            found["gain_over_best_single"] = asdict(gain) | {
                "agent": whole.get(str(c.best_single), c.best_single),
                "whole_budget": c.best_single in whole,
            }
        if c.state_blind is not None and c.schedule is not None:
            steps = [[agent, role.name.lower()] for agent, role in c.schedule]
            found["state_blind"] = estimate(c.state_blind, schedule=steps)
        if c.shuffled is not None:
            found["shuffled"] = estimate(c.shuffled)
        return found

    def write(self, folder: Path) -> Path:
        """Write summary.json, held_out.json and spent.json into the run folder; returns the first one's path.

        held_out.json has every policy's reward on every held-out task, for paired comparisons between runs.
        What was spent is no part of the summary, which an interrupted run that went on shares with one that
        was not interrupted.
        """
        path = folder / FILE_NAME
        held_out = {label: dict(rewards) for label, rewards in self._policies().items()}
        (folder / HELD_OUT_NAME).write_text(json.dumps(held_out, indent=1) + "\n")
        (folder / SPENT_NAME).write_text(json.dumps(self._spending(), indent=2) + "\n")
        path.write_text(json.dumps(self.summary(), indent=2) + "\n")
        return path

    def _spending(self) -> dict[str, float]:
        spent = self._spent
        return {"usd": spent.usd, "calls": spent.calls, "tokens": spent.tokens}
