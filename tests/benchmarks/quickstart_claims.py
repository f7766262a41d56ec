"""What the README says of the quickstart, measured again.

For each seed: the whole quickstart; how long its training took; and, with the trained theta,
- J with the trained singular-value scales, and with all of them set back to 1;
- the spread of the logits (standard deviation over candidates, sigma0 around the mean) that the head's block
  and the SVF block cause, each alone;
- the exact value of the best of all fixed schedules, from the simulated agents' own probabilities. It bounds
  every state-blind policy from above, also mixtures of schedules.

Exits with 1 where a claim does not hold. The last line is one JSON object.

    python tests/benchmarks/quickstart_claims.py --seeds 0 1 2
"""

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from callbacks.divergence import measure
from callbacks.progress import GenerationProgress
from trinity.commands.fit import run
from trinity.commands.training import TrinityCLI
from trinity.evaluation.statistics import proportion
from trinity.optimizers.sep_cma import SepCMAES
from trinity.pool.simulated import SimulatedPool

ROOT = Path(__file__).parents[2]


def best_schedule_value(pool: SimulatedPool, turns: int) -> float:
    """Expected reward of the best fixed schedule, by running all (3 L)^K of them through their outcome
    states.

    A state is (domain, best plan so far, newest Worker answer: none, right or wrong); an accepted right
    answer leaves the table with its reward.
    """
    agents = pool.simulated
    domains = sorted({domain for agent in agents for domain in agent.skill})
    levels = sorted({0.0, *(agent.thinker_bonus for agent in agents)})
    open_ = np.zeros((1, len(domains), len(levels), 3))
    open_[:, :, 0, 0] = 1 / len(domains)
    won = np.zeros(1)
    for _ in range(turns):
        steps = []
        for agent, role in product(agents, ("thinker", "worker", "verifier")):
            after, gain = np.zeros_like(open_), 0.0
            for i, level in enumerate(levels):
                here = open_[:, :, i]
                if role == "thinker":
                    after[:, :, levels.index(max(level, agent.thinker_bonus))] += here
                elif role == "worker":
                    skill = np.array([agent.skill.get(d, 0.0) for d in domains])
                    chance = np.minimum(skill + level, pool.ceiling)
                    after[:, :, i, 1] += here.sum(-1) * chance
                    after[:, :, i, 2] += here.sum(-1) * (1 - chance)
                else:
                    accuracy = agent.verifier_accuracy
                    after[:, :, i, 0] += here[..., 0]
                    after[:, :, i, 1] += here[..., 1] * (1 - accuracy)
                    gain = gain + here[..., 1].sum(-1) * accuracy
                    after[:, :, i, 2] += here[..., 2] * accuracy
            steps.append((after, won + gain))
        open_ = np.concatenate([after for after, _ in steps])
        won = np.concatenate([gain for _, gain in steps])
    return float((won + open_[..., 1].sum((1, 2))).max())


def spread(cli: TrinityCLI, block: str) -> float:
    """Logit spread when only one block varies, by one initial step size around the trained mean."""
    model, optimizer = cli.model, cli.trainer.optimizers[0]
    assert isinstance(optimizer, SepCMAES)
    theta = model.theta()
    noise = torch.randn(32, len(theta), generator=torch.Generator().manual_seed(0))
    inside = torch.cat(
        [torch.full((b.size,), float((b.name == "svf") == (block == "svf"))) for b in model.layout.blocks]
    )
    thetas = theta + 0.1 * model.layout.scales() * inside * noise
    return measure(model.coordinator, thetas, [task.query for task in cli.datamodule.splits.test[:30]])[
        "logit_spread"
    ]


def without_scales(cli: TrinityCLI) -> dict[str, float]:
    """J of the trained head with all singular-value scales set back to 1."""
    theta = cli.model.theta()
    tensors = {name: value.clone() for name, value in cli.model.layout.unpack(theta).items()}
    tensors["svf"] = torch.ones_like(tensors["svf"])
    packed = cli.model.layout.pack(tensors)
    tasks = cli.datamodule.splits.test
    results = cli.model.play(packed[None], tasks, stage="evaluation", generation=0)
    estimate = proportion(r.reward for r in results)  # type: ignore[union-attr]
    return {"mean": estimate.mean, "low": estimate.low, "high": estimate.high}


def one_seed(seed: int, folder: Path) -> dict[str, Any]:
    """All figures of one seed."""
    with ExitStack() as stack:
        options = ["--seed_everything", str(seed), "--trainer.default_root_dir", str(folder)]
        cli = run(["--config", str(ROOT / "configs" / "quickstart.yaml"), *options], stack)
        found = json.loads((cli.folder / "summary.json").read_text())
        callbacks: list[Any] = cli.trainer.callbacks  # type: ignore[attr-defined]
        progress = next(c for c in callbacks if isinstance(c, GenerationProgress))
        assert isinstance(cli.model.pool, SimulatedPool)
        return {
            **{
                key: found[key] for key in ("seed", "initial", "trained", "random", "state_blind", "shuffled")
            },
            "best_single": max(e["mean"] for e in found["single"].values()),
            "state_blind_exact": best_schedule_value(cli.model.pool, cli.model.episode.max_turns),
            "scales_set_to_1": without_scales(cli),
            "logit_spread": {block: spread(cli, block) for block in ("head", "svf")},
            "training_seconds": progress.training_seconds,
        }


def broken_claims(figures: dict[str, Any]) -> list[str]:
    """The claims that do not hold."""
    trained = figures["trained"]
    claims = {
        "untrained J within 0.2 and 0.45": 0.2 <= figures["initial"]["mean"] <= 0.45,
        "trained J at least 0.85": trained["mean"] >= 0.85,
        "at least 0.2 above the best single agent": trained["mean"] >= figures["best_single"] + 0.2,
        "interval above the best fixed schedule": trained["low"] > figures["state_blind_exact"],
        "interval above the fixed schedule that was found": trained["low"] > figures["state_blind"]["high"],
        "no gain with shuffled hidden states": figures["shuffled"]["mean"] < figures["state_blind"]["high"],
    }
    return [claim for claim, holds in claims.items() if not holds]


def main() -> None:
    """Run the seeds, print their figures, check the claims."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    seeds = parser.parse_args().seeds
    with tempfile.TemporaryDirectory() as folder:
        figures = [one_seed(seed, Path(folder)) for seed in seeds]
    broken = {f"seed {f['seed']}": broken_claims(f) for f in figures if broken_claims(f)}
    print(json.dumps({"seeds": figures, "broken": broken}))
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
