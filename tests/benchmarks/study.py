"""What decides whether the evolution strategy learns: one option at a time, at equal budget, several seeds.

    python tests/benchmarks/study.py --experiment quickstart --seeds 0 1 --jobs 2 --root logs/study

Every variant plays as many trajectories in training as the base does. Runs that are there are not made again.
Variants are chosen by their last J on the validation tasks, of which the quickstart has 300 here. Held-out
tasks are for reporting: their J is printed for the base and for the chosen variant alone. Prints tables for
docs/JOURNAL.md; the last line is one JSON object.
"""

import argparse
import csv
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).parents[2]
OPTIMIZER = "--model.optimizer.init_args."
# By experiment: the base's generations, lambda, m, and the head's scale.
BASES = {"quickstart": (60, 24, 16, 6.0), "recorded": (60, 29, 64, 1.0)}
VALIDATION = {"quickstart": ["--data.source.init_args.validation", "300"], "recorded": list[str]()}
CONFIGS = {"quickstart": "quickstart.yaml", "recorded": "recorded_sepcma.yaml"}


def variants(experiment: str) -> dict[str, list[str]]:
    """Arguments for trinity-fit, by name."""
    generations, size, m, scale = BASES[experiment]

    def overlay(name: str, *more: str) -> list[str]:
        return ["--config", str(ROOT / "configs" / "optimizers" / f"{name}.yaml"), *more]

    def budget(population: int, minibatch: int) -> list[str]:
        steps = round(generations * size * m / (population * minibatch))
        return [
            f"{OPTIMIZER}population_size", str(population), "--data.minibatch", str(minibatch),
            "--trainer.max_steps", str(steps), "--trainer.check_val_every_n_epoch", str(max(1, steps // 6)),
        ]  # fmt: skip

    found = {"base": budget(size, m)}
    for sigma0 in (0.01, 0.03, 0.3, 1.0):
        found[f"sigma0 {sigma0}"] = [*found["base"], f"{OPTIMIZER}sigma0", str(sigma0)]
    for norm in ("none", "l2"):
        found[f"hidden_norm {norm}"] = [*found["base"], "--model.extraction.hidden_norm", norm]
    for factor in (1 / 6, 4.0):
        found[f"head scale x {factor:.2g}"] = [
            *found["base"],
            "--model.block_scales.head",
            str(scale * factor),
        ]
    if experiment == "quickstart":
        for svf in (0.1, 5.0):
            found[f"svf scale {svf}"] = [*found["base"], "--model.block_scales.svf", str(svf)]
        found["no svf"] = [*found["base"], "--model.svf.enabled", "false"]
    for population in (size // 2, size * 2, size * 4):
        found[f"lambda {population}"] = budget(population, m)
    for minibatch in (m // 4, m * 4):
        found[f"m {minibatch}"] = budget(size, minibatch)
    found["draws apart"] = [*found["base"], "--model.objective.common_random_numbers", "false"]
    found["best quarter again"] = [
        *budget(size, m), "--model.objective.again", str(size // 4),
        "--trainer.max_steps", str(round(generations / 1.25)),
    ]  # fmt: skip
    for name in ("pycma", "pycma_tpa", "isotropic", "blockwise"):
        found[name] = overlay(name, *found["base"])
    found["antithetic"] = overlay("antithetic", *budget(size + size % 2, m))
    return found


def run(experiment: str, name: str, arguments: list[str], seed: int, root: Path) -> dict[str, float]:
    """One run's J of the mean theta: the last one on the validation tasks, and that on the held-out tasks."""
    folder = root / experiment / name.replace(" ", "_")
    done = sorted(folder.glob(f"seed_{seed}/version_*/summary.json"))
    if not done:
        fit = "from trinity.commands.fit import fit; fit()"
        config = ["--config", str(ROOT / "configs" / CONFIGS[experiment])]
        rest = ["--evaluation.controls", "false", "--seed_everything", str(seed)]
        where = ["--trainer.default_root_dir", str(folder), "--name", f"seed_{seed}", "--label", name]
        command = [sys.executable, "-c", fit, *config, *arguments, *rest, *where, *VALIDATION[experiment]]
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
        if finished.returncode:
            raise SystemExit(f"{name}, seed {seed}: {finished.stderr.strip().splitlines()[-1]}")
        print(f"{name}, seed {seed}: done", file=sys.stderr)
        done = sorted(folder.glob(f"seed_{seed}/version_*/summary.json"))
    with done[-1].with_name("generations.csv").open(newline="") as file:
        validated = [row["J/validation"] for row in csv.DictReader(file) if row["J/validation"]]
    held_out = json.loads(done[-1].read_text())["trained"]["mean"]
    return {"validation": float(validated[-1]), "held_out": float(held_out)}


def report(experiment: str, seeds: list[int], found: dict[str, list[dict[str, float]]]) -> None:
    """The table of all variants on validation tasks, then the chosen one and the base on held-out tasks."""
    on = {
        kind: {name: [run[kind] for run in runs] for name, runs in found.items()}
        for kind in ("validation", "held_out")
    }
    print(f"| variant | J, validation, mean of {len(seeds)} seeds | single seeds |\n|---|---|---|")
    for name, values in on["validation"].items():
        print(_row(name, values))
    chosen = max(found, key=lambda name: mean(on["validation"][name]))
    reported = list(dict.fromkeys(["base", chosen])) if "base" in found else [chosen]
    print(f"\nChosen by validation tasks: {chosen}. On held-out tasks, reported once:\n")
    print("| variant | J, held-out | single seeds |\n|---|---|---|")
    for name in reported:
        print(_row(name, on["held_out"][name]))
    held_out = {name: on["held_out"][name] for name in reported}
    results = {"validation": on["validation"], "chosen": chosen, "held_out": held_out}
    print(json.dumps({"experiment": experiment, "seeds": seeds, **results}))


def _row(name: str, values: list[float]) -> str:
    return f"| {name} | {mean(values):.3f} | {', '.join(f'{value:.3f}' for value in values)} |"


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experiment", choices=sorted(BASES), default="quickstart")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", nargs="*", help="names of variants; all by default")
    parser.add_argument("--root", type=Path, default=Path("logs/study"))
    options = parser.parse_args()
    chosen = {n: a for n, a in variants(options.experiment).items() if not options.only or n in options.only}
    jobs = [(name, seed) for seed in options.seeds for name in chosen]
    with ThreadPoolExecutor(options.jobs) as pool:
        runs = list(
            pool.map(lambda job: run(options.experiment, job[0], chosen[job[0]], job[1], options.root), jobs)
        )
    found = {name: [one for job, one in zip(jobs, runs, strict=True) if job[0] == name] for name in chosen}
    report(options.experiment, options.seeds, found)


if __name__ == "__main__":
    main()
