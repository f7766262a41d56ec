"""Recorded LiveCodeBench outputs: do we read their programs as the source does, and do right ones pass?

    python tests/benchmarks/lcb_programs.py [--problems N] [--workers N] [FILE]

By model: where our program differs from the one that the source extracted, and by which kind of difference;
and, for problems whose samples are there, whether each program that the source calls right passes them, in
the sandbox, with training's limits. The last line is one JSON object. Exits with 1 where one does not pass.
"""

import argparse
import asyncio
import gzip
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trinity.rewards.code import CodeGrader
from trinity.rewards.program import extract_program

FILE = Path(__file__).parents[3] / "shared" / "data" / "recorded_outcomes" / "lcb.jsonl.gz"
# Where the source took a sentence of the problem's text for the output: (problem, place of the sample) -> the
# right one. "There may be no sequences to print. In this case, the output can be empty."
CORRECTED = {("lcb-abc367_c", 1): ""}
_METHOD = re.compile(r"def (\w+)\(")


def read_problems(path: Path, count: int | None = None) -> list[dict[str, Any]]:
    """All problems, or this many of those that have samples, spread evenly over the file."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        problems = [json.loads(line) for line in lines]
    samples = {problem["id"]: problem["sample_tests"] for problem in problems}
    for (problem, place), output in CORRECTED.items():
        if problem in samples:
            samples[problem][place]["output"] = output
    if count is None:
        return problems
    sampled = [problem for problem in problems if problem["sample_tests"]]
    count = min(count, len(sampled))
    return [sampled[i * len(sampled) // count] for i in range(count)]


def difference(problem: dict[str, Any], model: str) -> str:
    """How our program differs from the source's; "" if it does not. White space around it does not count."""
    # The tests of a task name its function; they are not here, but its stub is.
    ours = extract_program(problem["outputs"][model], _METHOD.findall(problem["starter_code"]))
    theirs = problem["program"][model].strip()
    if (ours or "").strip() == theirs:
        return ""
    if not theirs:
        return "only we read one"
    return "another program" if ours else "we read none"


def right_with_samples(problem: dict[str, Any]) -> list[str]:
    """The models whose program the source calls right, where the problem has samples to run."""
    return [model for model, right in problem["correct"].items() if right and problem["sample_tests"]]


async def run_samples(grader: CodeGrader, problem: dict[str, Any], model: str) -> str:
    """Why a program does not pass the samples; "" if it does."""
    reference = json.dumps({"tests": problem["sample_tests"]})
    grade = await grader.grade(problem["outputs"][model], reference)
    return "" if grade.reward else grade.reason


def compare(problems: Sequence[dict[str, Any]], model: str) -> dict[str, int]:
    found: Counter[str] = Counter()
    for problem in problems:
        kind = difference(problem, model)
        found[kind] += 1
        if kind:
            print(f"{model}, {problem['id']}: {kind}")
    same = found.pop("", 0)
    print(f"{model}: {same} of {len(problems)} programs as the source reads them")
    return {"programs": len(problems), "same": same, **found}


async def run(problems: Sequence[dict[str, Any]], model: str, workers: int | None) -> dict[str, float]:
    chosen = [problem for problem in problems if model in right_with_samples(problem)]
    grader = CodeGrader(workers)
    started = time.perf_counter()
    try:
        failures = await asyncio.gather(*(run_samples(grader, problem, model) for problem in chosen))
    finally:
        await asyncio.to_thread(grader.close)
    seconds = time.perf_counter() - started
    for problem, failure in zip(chosen, failures, strict=True):
        if failure:
            print(f"{model}, {problem['id']}: {failure}")
    passed = failures.count("")
    print(f"{model}: {passed} of {len(chosen)} right programs pass their samples, in {seconds:.0f} s")
    return {"right": len(chosen), "pass": passed, "seconds": round(seconds, 1)}


async def main(path: Path, count: int | None, workers: int | None) -> int:
    problems = read_problems(path, count)
    if not problems:
        print(f"no problems chosen of {path}", file=sys.stderr)
        return 2
    line: dict[str, Any] = {}
    for model in problems[0]["outputs"]:
        line[model] = compare(problems, model) | await run(problems, model, workers)
    print(json.dumps(line))
    return int(any(found["pass"] < found["right"] for found in line.values()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Recorded LiveCodeBench programs against our code grader.")
    parser.add_argument("file", type=Path, nargs="?", default=FILE)
    parser.add_argument("--problems", type=int, help="this many of the problems with samples (all, and all)")
    parser.add_argument("--workers", type=int, help="programs at a time (one for each core)")
    options = parser.parse_args()
    sys.exit(asyncio.run(main(options.file, options.problems, options.workers)))
