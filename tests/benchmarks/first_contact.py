"""How long the first answers of the console scripts take: help, a mistyped option, a name that is nowhere.

`python tests/benchmarks/first_contact.py [--repeats 5]`; each answer in a process of its own, in an empty
folder, the best of the repeats. The last line is one JSON object of {answer: [wall, processor]}.
Exits with 1 where an answer takes more than its target (2 s for help, 3 s for a mistake), has another exit
code than it should, or fills more than a screen.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
HELP_SECONDS = 2.0
MISTAKE_SECONDS = 3.0
LONGEST_HELP = 40
MISTAKES = {
    "trinity-fit": [
        "--modle.seed 3",
        "--nmae x",
        "--config quickstart --trainer.max_step 3",
        "--config quickstart --model.optimizer.init_args.sigma 1",
        "--config quickstrat",
    ],
    "trinity-compare": ["--sedes 3", "--config quickstart -- --nmae x"],
    "trinity-grade": ["--jsn"],
    "trinity-cache": ["stats x --jsn"],
    "trinity-local": ["up --prot 1"],
}


def measured(script: str, arguments: list[str], folder: str) -> tuple[float, float, str, int]:
    """Wall and processor seconds, standard output and exit code."""
    module, function = SCRIPTS[script].split(":")
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from {module} import {function}; {function}()"
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, processor, done.stdout, done.returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    cases = [(script, ["--help"], HELP_SECONDS, 0) for script in SCRIPTS]
    cases += [
        (script, text.split(), MISTAKE_SECONDS, 2) for script, texts in MISTAKES.items() for text in texts
    ]
    line, failed = {}, False
    with tempfile.TemporaryDirectory() as folder:
        for script, arguments, target, wanted in cases:
            answers = [measured(script, arguments, folder) for _ in range(repeats)]
            wall, processor, said, code = min(answers)
            name, lines = " ".join([script, *arguments]), len(said.splitlines())
            missed = wall > target or code != wanted or lines > LONGEST_HELP
            print(
                f"{name}: {wall:.2f} s ({processor:.2f} s of processor), {lines} lines, exit code {code}"
                f"{'  MISSED' if missed else ''}"
            )
            line[name] = [round(wall, 3), round(processor, 3)]
            failed |= missed
    print(json.dumps(line))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
