"""All reference solutions of MBPP and HumanEval through the code grader: which fail, and verdicts per second.

    python tests/benchmarks/code_references.py FOLDER_OF_BENCHMARK_FILES

For HumanEval also that a stub fails. Exits with 1 where a verdict is wrong.
"""

import asyncio
import gzip
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trinity.rewards.code import CodeGrader

Case = tuple[str, str, str, int]


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def mbpp(folder: Path) -> Iterator[Case]:
    for row in rows(folder / "mbpp.jsonl.gz"):
        reference = {"tests": row["test_list"], "test_setup_code": row["test_setup_code"]}
        yield f"MBPP/{row['task_id']}", f"```python\n{row['code']}\n```", json.dumps(reference), 1


def humaneval(folder: Path) -> Iterator[Case]:
    for row in rows(folder / "humaneval.jsonl.gz"):
        reference = json.dumps({name: row[name] for name in ("prompt", "test", "entry_point")})
        prompt, solution = row["prompt"], row["canonical_solution"]
        yield row["task_id"], solution, reference, 1
        yield row["task_id"], f"```python\n{prompt}{solution}\n```", reference, 1
        yield row["task_id"], f"```python\n{prompt}    return None\n```", reference, 0


async def measure(grader: CodeGrader, name: str, cases: list[Case]) -> int:
    seconds: list[float] = []
    slots = asyncio.Semaphore(os.cpu_count() or 1)

    async def wrong(case: Case) -> bool:
        task, output, reference, reward = case
        async with slots:
            started = time.perf_counter()
            grade = await grader.grade(output, reference)
            seconds.append(time.perf_counter() - started)
        if grade.reward != reward:
            print(f"{task}: {grade.reward}, {grade.reason}")
        return grade.reward != reward

    started = time.perf_counter()
    wrongs = sum(await asyncio.gather(*map(wrong, cases)))
    rate = len(cases) / (time.perf_counter() - started)
    right = f"{len(cases) - wrongs} of {len(cases)} right"
    print(f"{name}: {right}, {rate:.1f} verdicts/s, slowest {max(seconds):.2f} s")
    return wrongs


async def main(folder: Path) -> int:
    grader = CodeGrader()
    wrongs = 0
    for name, cases in (("MBPP", mbpp(folder)), ("HumanEval", humaneval(folder))):
        wrongs += await measure(grader, name, list(cases))
    grader.close()
    return int(wrongs > 0)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(Path(sys.argv[1]))))
