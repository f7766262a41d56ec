"""Where the quickstart's time goes.

Runs the whole quickstart (30 generations, validations, the final table with its controls) and shares its
processor time out to engine (decisions, with tokenising and the head), pool, grading (worker processes
included), optimizer, and everything else (episode loop, event loop, Lightning, logging). Processor time of
threads is exclusive, so that the shares add up to 1; waiting does not count, and the simulated pool makes
nobody wait.

Found by profiling: in so small a model a decision is many small tensor operations, and their number is what
counts. Inference mode and a normalisation of half the steps took a decision from 0.95 to 0.70 ms; numpy on
three numbers and a search by regular expression were most of the episode loop.

    python tests/benchmarks/quickstart.py
"""

import argparse
import inspect
import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

from shape import peak_mib

from callbacks.progress import GenerationProgress
from trinity.commands.fit import run
from trinity.coordinator.coordinator import Coordinator
from trinity.optimizers.base import EvolutionStrategy
from trinity.pool.simulated import SimulatedPool
from trinity.rewards.rewards import Rewards

CONFIG = Path(__file__).parents[2] / "configs" / "quickstart.yaml"
PARTS: tuple[tuple[str, type, str], ...] = (
    ("engine", Coordinator, "decide"),
    ("pool", SimulatedPool, "complete"),
    ("grading", Rewards, "grade"),
    ("optimizer", EvolutionStrategy, "ask"),
    ("optimizer", EvolutionStrategy, "step"),
)
MOST_OF_OTHERS = 0.15
MOST_SECONDS = 60.0


class Stepped:
    """An awaitable that times each step of a coroutine, and none of its waiting."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], add: Callable[[float], None]) -> None:
        self._coroutine = coroutine
        self._add = add

    def __await__(self) -> Generator[Any, Any, Any]:
        """Step through."""
        send: Callable[[Any], Any] = self._coroutine.send
        value: Any = None
        while True:
            start = time.thread_time()
            try:
                waited_for = send(value)
            except StopIteration as done:
                return done.value
            finally:
                self._add(time.thread_time() - start)
            try:
                send, value = self._coroutine.send, (yield waited_for)
            except BaseException as error:
                send, value = self._coroutine.throw, error


class Meter:
    """Processor seconds and calls by part."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)

    def watch(self, stack: ExitStack, part: str, owner: type, name: str) -> None:
        """Count what a method takes, until the stack ends."""
        plain = getattr(owner, name)

        def add(seconds: float) -> None:
            self.seconds[part] += seconds

        def timed(*args: Any, **options: Any) -> Any:
            self.calls[f"{part}.{name}"] += 1
            start = time.thread_time()
            try:
                return plain(*args, **options)
            finally:
                add(time.thread_time() - start)

        async def stepped(*args: Any, **options: Any) -> Any:
            self.calls[f"{part}.{name}"] += 1
            return await Stepped(plain(*args, **options), add)

        stack.enter_context(
            patch.object(owner, name, stepped if inspect.iscoroutinefunction(plain) else timed)
        )


def processor_seconds() -> tuple[float, float]:
    """Of this process, and of its ended children."""
    times = os.times()
    return times.user + times.system, times.children_user + times.children_system


def measure(folder: str) -> dict[str, Any]:
    """One run."""
    meter = Meter()
    own, children = processor_seconds()
    with ExitStack() as patches:
        for part, owner, name in PARTS:
            meter.watch(patches, part, owner, name)
        start = time.perf_counter()
        with ExitStack() as stack:
            cli = run(["--config", str(CONFIG), "--trainer.default_root_dir", folder], stack)
            found = json.loads((cli.folder / "summary.json").read_text())
            callbacks: list[Any] = cli.trainer.callbacks  # type: ignore[attr-defined]
            training = next(c for c in callbacks if isinstance(c, GenerationProgress)).training_seconds
        wall = time.perf_counter() - start
    own_now, children_now = processor_seconds()
    meter.seconds["grading"] += children_now - children
    total = own_now - own + children_now - children
    meter.seconds["other"] = total - sum(meter.seconds.values())
    return {
        "seconds_training": training,
        "seconds_whole": wall,
        "seconds_processor": total,
        "shares": {part: seconds / total for part, seconds in meter.seconds.items()},
        "calls": dict(meter.calls),
        "trained_J": found["trained"]["mean"],
    }


def main() -> None:
    """Measure, and exit with 1 where a target is missed."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(folder)
    result["peak_mib"] = peak_mib()
    for part, share in sorted(result["shares"].items(), key=lambda item: -item[1]):
        print(f"{part:10} {share:6.1%}")
    print(json.dumps(result))
    others = max(share for part, share in result["shares"].items() if part not in ("engine", "pool"))
    raise SystemExit(1 if others > MOST_OF_OTHERS or result["seconds_training"] > MOST_SECONDS else 0)


if __name__ == "__main__":
    main()
