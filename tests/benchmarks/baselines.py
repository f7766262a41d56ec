"""REINFORCE's two baselines: the variance of the gradient estimate under each, on the same trajectories.

    python tests/benchmarks/baselines.py --steps 0 2 6 --batches 30

Takes the quickstart's policy after so many steps of REINFORCE, plays batches of 16 tasks x 24 trajectories,
and estimates the gradient from each batch under either baseline. The variance is the sum over theta's
coordinates, in units of x; its error is the standard error of the difference of both, by jackknife over
batches. Exits with 1 where the task's own baseline has the larger variance by two errors or more. The last
line is one JSON object.
"""

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import torch
from torch import Tensor

from trinity.commands.fit import TrinityCLI, run
from trinity.objectives.ledger import account
from trinity.objectives.reinforce import Baseline, accumulate, advantages

ROOT = Path(__file__).parents[2]
BASELINES: tuple[Baseline, ...] = ("task", "batch")
COPIES = 24


def trained(steps: int, folder: str, stack: ExitStack) -> TrinityCLI:
    """The quickstart after so many steps of REINFORCE; after none, its theta is set back to the start."""
    config = ROOT / "configs" / "quickstart_reinforce.yaml"
    options = ["--trainer.max_steps", str(max(steps, 1)), "--evaluation.controls", "false"]
    cli = run(["--config", str(config), "--trainer.default_root_dir", folder, *options], stack)
    if steps == 0:
        with torch.no_grad():
            for block, value in cli.model.layout.unpack(cli.model.initial_theta).items():
                cli.model.blocks()[block].copy_(value)
    return cli


def estimates(cli: TrinityCLI, batches: int) -> dict[Baseline, Tensor]:
    """The gradients (batches, n), in units of x, by baseline."""
    model = cli.model
    found: dict[Baseline, list[Tensor]] = {baseline: [] for baseline in BASELINES}
    for batch in range(batches):
        generation = 1000 + batch  # tasks and draws that training has not used
        tasks = cli.datamodule.minibatch(generation)
        results = model.play(model.theta()[None], tasks, stage="train", generation=generation, copies=COPIES)
        kept = account(results, 0.0).kept
        for baseline in BASELINES:
            gradients = model.gradients()
            accumulate(
                gradients,
                [graded.trajectory for graded in kept],
                [advantage / len(kept) for advantage in advantages(kept, baseline)],
                {task.id: task.query for task in tasks},
                model.episode,
            )
            found[baseline].append(model.layout.pack(gradients.gradients()) * model.layout.scales())
    return {baseline: torch.stack(each) for baseline, each in found.items()}


def variance(gradients: Tensor) -> float:
    """Summed over coordinates."""
    return float(gradients.var(dim=0).sum())


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, nargs="+", default=[0, 2, 6])
    parser.add_argument("--batches", type=int, default=30)
    options = parser.parse_args()
    results = []
    for steps in options.steps:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            found = estimates(trained(steps, folder, stack), options.batches)
        whole = {baseline: variance(gradients) for baseline, gradients in found.items()}
        keep = [[i for i in range(options.batches) if i != out] for out in range(options.batches)]
        less = torch.tensor([variance(found["batch"][k]) - variance(found["task"][k]) for k in keep])
        error = float(((less - less.mean()).square().sum() * (len(keep) - 1) / len(keep)).sqrt())
        results.append({"steps": steps, **whole, "error_of_the_difference": error})
    print("| steps | variance, task | variance, batch | batch / task | batch - task |\n|---|---|---|---|---|")
    for row in results:
        task, batch, error = row["task"], row["batch"], row["error_of_the_difference"]
        print(
            f"| {row['steps']} | {task:.3g} | {batch:.3g} | {batch / task:.2f} | "
            f"{batch - task:.2g} ± {error:.1g} |"
        )
    print(json.dumps(results))
    larger = [row["task"] - row["batch"] > 2 * row["error_of_the_difference"] for row in results]
    sys.exit(int(any(larger)))


if __name__ == "__main__":
    main()
