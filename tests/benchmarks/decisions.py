"""Decisions of a population on shared transcripts: the engine against the straightforward way.

33 candidates decide on the same 16 transcripts, with Qwen3-0.6B's shape and random weights in float32. The
straightforward way puts a candidate's weights into the model and runs all 28 layers for each transcript; it
is measured on one transcript of each third candidate, in turn with the engine, and scaled to all of them.

The limit by layer count at 512 tokens: the plain side runs 28 layers for each of 528 pairs; the engine 26 for
each of 16 transcripts, one layer and the last one's keys and values (13 % of a layer) for each pair, and the
adapted weights of each candidate cost as much as 1,024 positions of one layer.

Found by profiling: at these sizes seven eighths of the engine's time are matrix products, which ran at 170 to
185 GFLOP/s through torch's own kernel and at 215 to 225 through oneDNN's with packed weights; the next part
was page faults (a fifth of the processor time was the system's), until freed memory was kept. Together they
carry the engine past the limit by layer count, which takes all layers to be equally fast on both sides.

    python tests/benchmarks/decisions.py            # 128, 512 and 1,024 tokens, about 10 minutes on two cores
    python tests/benchmarks/decisions.py --quick    # 512 tokens, 3 x 2, scaled up
"""

import argparse
import json
import time
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import torch
from shape import LAYERS, Plain, peak_mib, qwen3_shaped

from trinity.coordinator.encoding import Encoded
from trinity.coordinator.engine import Engine
from trinity.coordinator.slm import SLM
from trinity.coordinator.svf import SVF, decompose

CANDIDATES, TRANSCRIPTS = 33, 16
TARGET = 12.0
PLAIN_EVERY = 3
LAST_LAYER_SHARE = 2 / 15  # keys and values of a layer's 15.7 million weights: 2.1 million


@dataclass
class Seconds:
    """Wall times, by what they were spent on; a transcript's first decision pays for its trunk."""

    adapt: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    later: list[float] = field(default_factory=list)
    set_weights: list[float] = field(default_factory=list)
    forward: list[float] = field(default_factory=list)

    def engine(self, candidates: int, transcripts: int) -> float:
        """Of the engine, for a whole generation of that size."""
        later = (candidates - 1) * transcripts
        return candidates * fmean(self.adapt) + transcripts * fmean(self.first) + later * fmean(self.later)

    def plain(self, candidates: int, transcripts: int) -> float:
        """Of the straightforward way."""
        return candidates * (fmean(self.set_weights) + transcripts * fmean(self.forward))


def limit(tokens: int) -> float:
    """The speed-up that counting layers allows."""
    pairs = CANDIDATES * TRANSCRIPTS
    ours = TRANSCRIPTS * (LAYERS - 2) + pairs * (1 + LAST_LAYER_SHARE) + CANDIDATES * 1024 / tokens
    return pairs * LAYERS / ours


@torch.no_grad()
def measure(slm: SLM, svf: SVF, tokens: int, candidates: int, transcripts: int) -> dict[str, Any]:
    """One length: times of both ways, in turn, and the largest difference of a hidden state."""
    generator = torch.Generator().manual_seed(tokens)
    draw = torch.randint(0, 150_000, (transcripts, tokens), generator=generator).tolist()
    shared = [Encoded((tuple(ids[:-4]),), tuple(ids[-4:])) for ids in draw]
    scales = 1 + 0.1 * torch.randn(candidates, svf.n_scales, generator=generator)
    engine, plain = Engine(slm, svf.layer), Plain(slm, svf.layer)
    tails, seconds, difference = engine.tails(), Seconds(), 0.0

    def timed(into: list[float], work: Any) -> Any:
        start = time.perf_counter()
        result = work()
        into.append(time.perf_counter() - start)
        return result

    originals = svf.weights(torch.ones(svf.n_scales))
    for c, scale in enumerate(scales):
        adapted = timed(seconds.adapt, lambda s=scale: engine.adapt(svf.weights(s), tails=tails))
        into = seconds.later if c else seconds.first
        states = [timed(into, lambda e=e, a=adapted: engine.hidden(e, a)) for e in shared]
        if c % PLAIN_EVERY:
            continue
        chosen = c % transcripts
        timed(seconds.set_weights, lambda s=scale: plain.set(svf.weights(s)))
        state = timed(seconds.forward, lambda ids=shared[chosen].ids: plain.hidden(ids))
        difference = max(difference, float((state - states[chosen]).abs().max()))
        plain.set(originals)
    ours, theirs = (f(CANDIDATES, TRANSCRIPTS) for f in (seconds.engine, seconds.plain))
    return {
        "tokens": tokens,
        "speedup": theirs / ours,
        "limit": limit(tokens),
        "max_abs_difference": difference,
        "seconds_engine": ours,
        "seconds_plain": theirs,
        "seconds_each": {name: fmean(times) for name, times in vars(seconds).items()},
    }


def main() -> None:
    """Measure, print a line for each length, and exit with 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="512 tokens, 3 candidates, 2 transcripts, scaled"
    )
    parser.add_argument("--tokens", type=int, nargs="+", default=[128, 512, 1024])
    options = parser.parse_args()
    slm = qwen3_shaped()
    svf = decompose(slm)
    size = (3, 2) if options.quick else (CANDIDATES, TRANSCRIPTS)
    lines = []
    for tokens in [512] if options.quick else options.tokens:
        lines.append(measure(slm, svf, tokens, *size))
        print({k: v for k, v in lines[-1].items() if k != "seconds_each"}, flush=True)
    main_line = next((line for line in lines if line["tokens"] == 512), lines[0])
    missed = main_line["speedup"] < TARGET or main_line["max_abs_difference"] > 1e-5
    result = {**main_line, "peak_mib": peak_mib(), "threads": torch.get_num_threads(), "lengths": lines}
    if options.quick:
        result["extrapolated"] = "from 3 candidates and 2 transcripts, by candidate, transcript and pair"
    print(json.dumps(result))
    raise SystemExit(1 if missed else 0)


if __name__ == "__main__":
    main()
