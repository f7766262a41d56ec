"""ask + tell of separable CMA-ES at the size of the main experiment: n = 13,312, lambda = 33.

The blocks are the head's (6 x 1,024) and the singular-value scales' (7,168). The fitness has the 17 levels of
16 binary rewards. Medians of 100 generations after 5 to warm up.

Profiled: ask, which draws 439,296 normal numbers, takes three fifths; nothing stands out. Beside a process
that kept both cores busy with torch it took 158 ms instead of 3: the threads wait for each other.

    python tests/benchmarks/optimizer.py
"""

import argparse
import json
import time
from statistics import median

import torch
from shape import peak_mib
from torch import nn

from trinity.optimizers.sep_cma import SepCMAES

TARGET_MS = 20.0


def main() -> None:
    """Measure, and exit with 1 where the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--generations", type=int, default=100)
    generations = parser.parse_args().generations
    groups = [
        {"params": [nn.Parameter(torch.zeros(6, 1024))], "scale": 1.0},
        {"params": [nn.Parameter(torch.ones(7168))], "scale": 1.0},
    ]
    strategy = SepCMAES(groups, sigma0=0.1)
    rewards = torch.Generator().manual_seed(0)
    asked, told = [], []
    for _ in range(generations + 5):
        start = time.perf_counter()
        population = strategy.ask()
        asked.append(time.perf_counter() - start)
        fitness = torch.randint(0, 17, (len(population),), generator=rewards) / 16
        start = time.perf_counter()
        strategy.step(lambda fitness=fitness: fitness)
        told.append(time.perf_counter() - start)
    ask_ms, tell_ms = (1000 * median(times[5:]) for times in (asked, told))
    result = {
        "n": strategy.n,
        "population_size": strategy.population_size,
        "ask_ms": ask_ms,
        "tell_ms": tell_ms,
        "ask_plus_tell_ms": ask_ms + tell_ms,
        "threads": torch.get_num_threads(),
        "peak_mib": peak_mib(),
    }
    print(json.dumps(result))
    raise SystemExit(1 if ask_ms + tell_ms > TARGET_MS else 0)


if __name__ == "__main__":
    main()
