"""The scheduler under simulated LLM latencies: how near a generation comes to what waiting alone takes.

528 trajectories (33 candidates x 16 tasks) of up to 5 turns run through the real rollout, calls and
scheduler. The pool's latencies are lognormal with a median of 1 s and sigma 0.5, scaled down 20 times; its
answers have 600 characters, about 170 tokens. Two measurements, each the median of three runs:

- unlimited: wall time / the slowest trajectory's own latencies, as the same generation shows them on a loop
  whose clock moves while all wait, and only then (identical calls under way are shared, so that a trajectory
  may wait for less than its own calls' latencies);
- limited: wall time / (all latencies of the calls made / 32), with 32 calls in flight at once.

Found by profiling: of 190 microseconds of processor time a turn, numpy's functions on three numbers (the
softmax and its inverse) took most, then the line-by-line search for forged frames in texts that hold none.
Plain Python for the one and a substring test before the other left 75. A limit of 32 trajectories instead of
32 calls took 1.45 times the bound, since the last trajectories leave places idle: calls are limited now.

    python tests/benchmarks/scheduler.py
"""

import argparse
import asyncio
import hashlib
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from scipy.stats import norm
from shape import peak_mib

from trinity import keyed
from trinity.episode.calls import Bill, Calls
from trinity.episode.policy import Logits, Position
from trinity.episode.rollout import Draw, EpisodeSettings, Rollout
from trinity.episode.scheduler import Graded, Job, run_jobs
from trinity.pool.base import Completion, DecodeParameters, Message, Pool

CANDIDATES, TASKS, TURNS, LIMIT = 33, 16, 5, 32
MEDIAN_SECONDS, SIGMA = 1 / 20, 0.5
TEXT = "A step of the solution, with its reason. " * 15
TARGET = 1.15


@dataclass(frozen=True)
class Question:
    """A task, as far as a rollout looks at it."""

    id: str
    query: str
    answer_format: str = "line"


@dataclass(frozen=True)
class Mark:
    """Rewards play no part."""

    reward: int = 0


class SlowPool(Pool):
    """One agent; an answer says how long it took."""

    agents = ("simulated",)

    async def complete(self, agent: int, messages: Sequence[Message], decode: DecodeParameters) -> Completion:
        """The same request always takes as long, and gets the same answer."""
        text = messages[0]["content"] + messages[1]["content"]
        key = hashlib.sha256(text.encode()).hexdigest()
        seconds = MEDIAN_SECONDS * math.exp(SIGMA * norm_ppf(keyed.uniform("latency", key)))
        await asyncio.sleep(seconds)
        verdict = "ACCEPT" if keyed.uniform("verdict", key) < 0.3 else "REVISE"
        return Completion(f"{key} {TEXT}\nVERDICT: {verdict}", reasoning=repr(seconds))


_GRID = norm.ppf((np.arange(4096) + 0.5) / 4096)


def norm_ppf(share: float) -> float:
    """The normal quantile, from a table: scipy's own call would take longer than all the rest of a turn."""
    return float(_GRID[int(share * len(_GRID))])


class Uniform:
    """Every role is as likely as any other."""

    async def logits(self, position: Position, segments: Sequence[str]) -> tuple[Logits, Logits]:
        """Zeros."""
        return np.zeros(1), np.zeros(3)


async def grade(task: Question, answer: str | None, bill: Bill) -> Mark:
    """No grade."""
    return Mark()


def jobs(seed: int) -> list[Job[Question]]:
    """One generation's; each candidate has draws of its own, so that transcripts part."""
    tasks = [Question(f"task-{i}", f"Question {i} of run {seed}. " + TEXT) for i in range(TASKS)]
    return [Job(task, c, Draw(seed, "train", 0, c)) for task in tasks for c in range(CANDIDATES)]


class IdealLoop(asyncio.SelectorEventLoop):
    """A loop whose clock stands still while anything runs, and jumps to where the next sleeper wakes."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        """Seconds of sleeping so far."""
        return self._now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self._now = max(self._now, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


@dataclass(frozen=True)
class Played:
    """One generation: `wall` and processor seconds, and of the calls made the sum of latencies."""

    wall: float
    cpu: float
    work: float
    calls: int
    turns: int


def play(seed: int, concurrency: int | None, loop: asyncio.AbstractEventLoop) -> Played:
    """One generation on that loop."""
    calls = Calls(SlowPool(), concurrency)
    rollout = Rollout(Uniform(), calls, EpisodeSettings(), lambda text, tokens: text, "sample")
    todo = jobs(seed)
    cpu, start = time.process_time(), loop.time()
    results = loop.run_until_complete(run_jobs(rollout, todo, grade))
    wall, cpu = loop.time() - start, time.process_time() - cpu
    loop.close()
    turns = [t.completion for r in results if isinstance(r, Graded) for t in r.trajectory.turns]
    made = [float(completion.reasoning) for completion in turns if completion.source == "call"]
    return Played(wall, cpu, sum(made), len(made), len(turns))


def main() -> None:
    """Measure, and exit with 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    result: dict[str, Any] = {}
    for name, concurrency in (("unlimited", None), ("limited", LIMIT)):
        ideal = [play(seed, concurrency, IdealLoop()) for seed in range(repeats)]
        real = [play(seed, concurrency, asyncio.new_event_loop()) for seed in range(repeats)]
        bounds = [
            i.wall if concurrency is None else r.work / concurrency for i, r in zip(ideal, real, strict=True)
        ]
        result[f"ratio_{name}"] = median(r.wall / bound for r, bound in zip(real, bounds, strict=True))
        result[f"ratio_{name}_to_ideal"] = median(r.wall / i.wall for r, i in zip(real, ideal, strict=True))
        result[f"seconds_{name}"] = median(r.wall for r in real)
        result[f"bound_{name}"] = median(bounds)
        result[f"cpu_ms_per_turn_{name}"] = median(1000 * r.cpu / r.turns for r in real)
        result["calls"], result["turns"] = real[0].calls, real[0].turns
        print(f"{name}: {result[f'ratio_{name}']:.3f} of the bound of {median(bounds):.2f} s", flush=True)
    result["peak_mib"] = peak_mib()
    print(json.dumps(result))
    raise SystemExit(1 if max(result["ratio_unlimited"], result["ratio_limited"]) > TARGET else 0)


if __name__ == "__main__":
    main()
