"""Where every trajectory of a generation went: trajectories = right + wrong + dropped."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trinity.episode.scheduler import Failure, Graded, most_common
from trinity.errors import UserError
from trinity.pool.base import Paid


@dataclass(frozen=True)
class Ledger:
    """The account of one generation.

    All trajectories of a task on which any candidate failed are dropped: the pairing of candidates stays, and
    none gains by failing on hard tasks. `lost` holds the finished ones of these, which cost money all the
    same; `failures` counts the failed ones by (agent, cause), and `failed` is what these cost.
    """

    kept: list[Graded]
    lost: list[Graded]
    failures: Counter[tuple[str, str]]
    failed: Paid = Paid()  # noqa: RUF009 - frozen

    @property
    def dropped(self) -> int:
        """Those without a part in the fitness."""
        return len(self.lost) + self.failures.total()

    @property
    def trajectories(self) -> int:
        """All that were run."""
        return len(self.kept) + self.dropped

    @property
    def right(self) -> int:
        """Those with reward 1."""
        return sum(graded.reward for graded in self.kept)

    @property
    def wrong(self) -> int:
        """Those with reward 0."""
        return len(self.kept) - self.right

    @property
    def mean_reward(self) -> float:
        """J over everything kept; NaN where that is nothing."""
        return self.right / len(self.kept) if self.kept else math.nan

    @property
    def paid(self) -> Paid:
        """What all trajectories cost: failed ones, judging, and answers that could not be used included."""
        return Paid.total(graded.paid for graded in (*self.kept, *self.lost)) + self.failed

    @property
    def refusals(self) -> Counter[tuple[int, str]]:
        """Turns of finished trajectories without a proper answer, by (place of the agent, cause)."""
        turns = [turn for graded in (*self.kept, *self.lost) for turn in graded.trajectory.turns]
        return Counter((turn.agent, turn.completion.refusal) for turn in turns if turn.completion.refusal)

    def fitness(self, candidates: int) -> Tensor:
        """Mean reward of each candidate over the kept tasks, shape (candidates,), float32."""
        total, count = torch.zeros(candidates), torch.zeros(candidates)
        for graded in self.kept:
            total[graded.candidate] += graded.reward
            count[graded.candidate] += 1
        return total / count

    def metrics(self, agents: Sequence[str]) -> dict[str, float]:
        """Counts, and what all trajectories cost, by log tag; for means see `TrajectoryMeans`.

        `prompt_tokens` and `completion_tokens` are those of the answers of finished trajectories, wherever
        they came from; `cost_usd`, `calls` and `paid_tokens` are what was paid for.
        """
        turns = [turn for graded in self.kept for turn in graded.trajectory.turns]
        finished = [graded.trajectory for graded in (*self.kept, *self.lost)]
        cut = sum(turn.completion.finish_reason == "length" for turn in turns)
        paid = self.paid
        return {
            "prompt_tokens": float(sum(path.prompt_tokens for path in finished)),
            "completion_tokens": float(sum(path.completion_tokens for path in finished)),
            "cost_usd": paid.usd,
            "paid_tokens": float(paid.tokens),
            "calls": float(paid.calls),
            "calls_shared": float(sum(path.served_by("shared") for path in finished)),
            "calls_cached": float(sum(path.served_by("cache") for path in finished)),
            "cut_by_length": float(cut),
            **{
                f"cut_by_length/{a}": float(
                    sum(t.completion.finish_reason == "length" for t in turns if t.agent == i)
                )
                for i, a in enumerate(agents)
            },
            "trajectories/all": float(self.trajectories),
            "trajectories/right": float(self.right),
            "trajectories/wrong": float(self.wrong),
            "trajectories/dropped": float(self.dropped),
            "trajectories/failed": float(self.failures.total()),
            **{f"failures/{agent}/{cause}": float(n) for (agent, cause), n in self.failures.items()},
            **{f"refusals/{agents[i]}/{cause}": float(n) for (i, cause), n in self.refusals.items()},
        }


def settle(results: Sequence[Graded | Failure]) -> Ledger:
    """Drop the tasks that any candidate failed on, for all candidates."""
    failed = [result for result in results if isinstance(result, Failure)]
    failed_tasks = {failure.task_id for failure in failed}
    finished = [result for result in results if isinstance(result, Graded)]
    kept = [graded for graded in finished if graded.task_id not in failed_tasks]
    lost = [graded for graded in finished if graded.task_id in failed_tasks]
    causes = Counter((failure.agent, failure.cause) for failure in failed)
    return Ledger(kept, lost, causes, Paid.total(failure.paid for failure in failed))


def account(results: Sequence[Graded | Failure], max_dropped_share: float) -> Ledger:
    """As `settle`, where enough is left.

    Raises UserError where more than `max_dropped_share` of the trajectories would be dropped, or all.
    """
    ledger = settle(results)
    if ledger.dropped > max_dropped_share * len(results) or not ledger.kept:
        failed = [result for result in results if isinstance(result, Failure)]
        raise UserError(
            f"{ledger.dropped} of {len(results)} trajectories were lost to infrastructure failures "
            f"({most_common(failed)}), but at most a share of {max_dropped_share} may be; mend the cause "
            "and go on from the last checkpoint with --ckpt_path."
        )
    return ledger
