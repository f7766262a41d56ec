"""Where every trajectory of a generation went: trajectories = right + wrong + dropped."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trinity.episode.roles import Role
from trinity.episode.scheduler import Failure, Graded
from trinity.errors import UserError


@dataclass(frozen=True)
class Ledger:
    """The account of one generation.

    `dropped` counts all trajectories of a task on which any candidate failed: the pairing of candidates
    stays, and none gains by failing on hard tasks. `failures` counts the failed ones by (agent, cause).
    """

    kept: list[Graded]
    dropped: int
    failures: Counter[tuple[str, str]]

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
        """J over everything kept."""
        return self.right / len(self.kept)

    def fitness(self, candidates: int) -> Tensor:
        """Mean reward of each candidate over the kept tasks, shape (candidates,), float32."""
        total, count = torch.zeros(candidates), torch.zeros(candidates)
        for graded in self.kept:
            total[graded.candidate] += graded.reward
            count[graded.candidate] += 1
        return total / count

    def metrics(self, agents: Sequence[str]) -> dict[str, float]:
        """Means over the kept trajectories, and counts, by log tag."""
        turns = [turn for graded in self.kept for turn in graded.trajectory.turns]
        paths = [graded.trajectory for graded in self.kept]
        accepted = sum(path.stop == "accepted" for path in paths)
        cut = sum(turn.completion.finish_reason == "length" for turn in turns)
        return {
            "turns": len(turns) / len(paths),
            "accepted_share": accepted / len(paths),
            "prompt_tokens": float(sum(path.prompt_tokens for path in paths)),
            "completion_tokens": float(sum(path.completion_tokens for path in paths)),
            "cost_usd": sum(path.cost for path in paths),
            "calls": float(len(turns)),
            "cut_by_length": float(cut),
            "trajectories/all": float(self.trajectories),
            "trajectories/right": float(self.right),
            "trajectories/wrong": float(self.wrong),
            "trajectories/dropped": float(self.dropped),
            "trajectories/failed": float(self.failures.total()),
            **{
                f"agent_share/{a}": sum(t.agent == i for t in turns) / len(turns)
                for i, a in enumerate(agents)
            },
            **{f"role_share/{r.title}": sum(t.role is r for t in turns) / len(turns) for r in Role},
        }


def account(results: Sequence[Graded | Failure], max_dropped_share: float) -> Ledger:
    """Drop the tasks that any candidate failed on, for all candidates.

    Raises UserError where more than `max_dropped_share` of the trajectories would be dropped, or all.
    """
    failed = [result for result in results if isinstance(result, Failure)]
    failed_tasks = {failure.task_id for failure in failed}
    kept = [r for r in results if isinstance(r, Graded) and r.task_id not in failed_tasks]
    ledger = Ledger(kept, len(results) - len(kept), Counter((f.agent, f.cause) for f in failed))
    if ledger.dropped > max_dropped_share * len(results) or not kept:
        causes = ", ".join(f"{agent}: {cause} ({n}x)" for (agent, cause), n in ledger.failures.most_common(3))
        raise UserError(
            f"{ledger.dropped} of {len(results)} trajectories were lost to infrastructure failures "
            f"({causes}), more than the allowed share {max_dropped_share}; nothing was learned from this "
            "generation. Mend the cause and go on from the last checkpoint with --ckpt_path."
        )
    return ledger
