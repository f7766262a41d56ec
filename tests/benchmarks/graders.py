"""Verdicts a second of each kind of grader, and the slowest single verdict over the bank of cases.

`python tests/benchmarks/graders.py`; the last line is one JSON object. Exits 1 where a verdict is not the
expected one, or one takes more than 2.5 s. Rates: the bank's rows over and over, two at a time, nothing
remembered, without the two rows that run into their limits. Slowest verdict: each row alone, limits and all.
"""

import asyncio
import json
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from trinity.commands.grade import Case, grade_case, read_case
from trinity.rewards.rewards import Rewards
from trinity.rewards.sandbox import Limits
from trinity.tasks.jsonl import read_rows

BANK = Path(__file__).parents[1] / "data" / "reward_cases"
SMALL = Limits(cpu_seconds=1, wall_seconds=2, memory_mb=1024, output_mb=4)
SLOWEST = 2.5
SECONDS = 8.0


def cases(kind: str) -> list[Case]:
    return [read_case(row, number) for number, row in enumerate(read_rows(BANK / f"{kind}.jsonl"), 1)]


async def singly(rewards: Rewards, rows: Sequence[Case]) -> tuple[str, float]:
    """The slowest row, and its seconds."""
    slowest = ("", 0.0)
    for case in rows:
        result = await grade_case(rewards, case)
        if result.differs:
            raise SystemExit(f"{case.id} is not as expected: {result}")
        slowest = max(slowest, (case.id, result.seconds), key=lambda found: found[1])
    return slowest


async def rate(rewards: Rewards, rows: Sequence[Case]) -> float:
    """Verdicts a second, two under way at a time."""
    ordinary = [case for case in rows if case.id not in ("M45", "K15")]  # these run into their limits
    done = 0
    begin = time.perf_counter()

    async def work(start: int) -> None:
        nonlocal done
        number = start
        while time.perf_counter() - begin < SECONDS:
            rewards._grades.forget()  # a remembered grade would be no measurement
            await grade_case(rewards, ordinary[number % len(ordinary)])
            number += 2
            done += 1

    await asyncio.gather(work(0), work(1))
    return done / (time.perf_counter() - begin)


async def measure() -> dict[str, object]:
    line: dict[str, object] = {}
    with Rewards(math_workers=2, code_workers=2, code_limits=SMALL) as rewards:
        for kind in ("math", "choice", "code"):
            rows = cases(kind)
            await grade_case(rewards, rows[0])
            name, seconds = await singly(rewards, rows)
            per_second = await rate(rewards, rows)
            print(f"{kind}: {per_second:.0f} verdicts a second; slowest {name}, {seconds:.2f} s")
            line |= {f"{kind}_per_second": round(per_second, 1), f"{kind}_slowest_seconds": round(seconds, 3)}
    line["slowest_seconds"] = max(float(str(value)) for key, value in line.items() if "slowest" in key)
    line["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return line


if __name__ == "__main__":
    line = asyncio.run(measure())
    print(json.dumps(line))
    sys.exit(float(str(line["slowest_seconds"])) > SLOWEST)
