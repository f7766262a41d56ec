"""A whole generation of diverging transcripts: the engine against the straightforward way.

`generation.json` holds the shape of one K = 5 generation that 33 first candidates of a real small language
model played on 4 questions, under the package's defaults (`record_generation.py` made it and says how): each
of the nine choices took 8 to 13 % of the turns. Its decisions are made again by the engine and by the
straightforward way (a candidate's weights into the model, then all 28 layers on the whole transcript), with
Qwen3-0.6B's shape, random weights in float32 and random tokens. The straightforward way is measured on a
sample of the decisions, in turn with the engine, and scaled by turn.

The limit counts positions times layers: the plain side runs 28 layers on every position of every decision;
the engine runs 26 on the new positions (the newest turn and the ending) of every distinct transcript, one and
the last one's keys and values on the new positions of every decision, and builds each candidate's weights.

Found by profiling: without kept prefixes, sharing alone, the trunk would run on every position of every
distinct transcript, 5.3 times as many. Of a chunk of 190 positions behind 860 others, matrix products take
two thirds, attention a quarter (its reach grows with the transcript, which the limit does not count), joining
kept keys and values 2 %.

    python tests/benchmarks/generation.py
"""

import argparse
import hashlib
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from shape import LAYERS, WIDTH, Plain, peak_mib, qwen3_shaped
from torch import Tensor

from trinity import keyed
from trinity.coordinator.encoding import Encoded
from trinity.coordinator.engine import Adapted, Engine
from trinity.coordinator.heads import LinearHead, normalise_hidden, split_logits
from trinity.coordinator.slm import SLM
from trinity.coordinator.svf import SVF, decompose
from trinity.episode.policy import choose
from trinity.episode.rollout import Draw

RECORDED = Path(__file__).with_name("generation.json")
AGENTS = 3
TARGET = 8.0
SAMPLE_EVERY = 22
LAST_LAYER_SHARE = 2 / 15


@dataclass(frozen=True)
class Decision:
    """One decision of the generation, to be made again."""

    candidate: int
    task: int
    turn: int
    encoded: Encoded


def recorded() -> list[Decision]:
    """The generation's decisions in the order in which they were made, with random tokens."""
    kept = json.loads(RECORDED.read_text())

    def ids(length: int, *key: object) -> tuple[int, ...]:
        return tuple(keyed.generator("ids", *key).integers(0, 150_000, length).tolist())

    pieces = [ids(length, number) for number, length in enumerate(kept["tokens"])]
    ending = ids(kept["ending"], "ending")
    return [
        Decision(candidate, task, len(path) - 1, Encoded(tuple(pieces[i] for i in path), ending))
        for candidate, task, path in kept["decisions"]
    ]


def population(decisions: Sequence[Decision]) -> int:
    """How many candidates there are."""
    return 1 + max(d.candidate for d in decisions)


def positions(decision: Decision) -> int:
    """New positions: the newest piece and the ending."""
    return len(decision.encoded.pieces[-1]) + len(decision.encoded.ending)


def limit(decisions: Sequence[Decision]) -> dict[str, float]:
    """The speed-up that counting layers allows, and what it is made of, in positions x layers."""
    distinct = {d.encoded: positions(d) for d in decisions}
    plain = LAYERS * sum(len(d.encoded.ids) for d in decisions)
    trunk = (LAYERS - 2) * sum(distinct.values())
    tail = (1 + LAST_LAYER_SHARE) * sum(positions(d) for d in decisions)
    return {
        "limit": plain / (trunk + tail + population(decisions) * WIDTH),
        "decisions": len(decisions),
        "distinct": len(distinct),
        "mean_tokens": fmean(len(d.encoded.ids) for d in decisions),
        "mean_new_tokens": fmean(distinct.values()),
        "trunk_share": trunk / (trunk + tail + population(decisions) * WIDTH),
    }


class Replay:
    """A population of a first generation (sigma0 = 0.1), which makes recorded decisions again."""

    def __init__(self, slm: SLM, svf: SVF, candidates: int) -> None:
        self.svf = svf
        self.engine = Engine(slm, svf.layer)
        generator = torch.Generator().manual_seed(0)
        head = LinearHead(WIDTH, AGENTS)
        self._heads = 0.1 * torch.randn(candidates, *head.weight.shape, generator=generator)
        self.scales = 1 + 0.1 * torch.randn(candidates, svf.n_scales, generator=generator)
        self._tails = self.engine.tails()
        self._adapted: dict[int, Adapted] = {}
        self.adapt_seconds = 0.0

    def adapted(self, candidate: int) -> Adapted:
        """Built once, as in a generation."""
        if candidate not in self._adapted:
            start = time.perf_counter()
            weights = self.svf.weights(self.scales[candidate])
            self._adapted[candidate] = self.engine.adapt(weights, tails=self._tails)
            self.adapt_seconds += time.perf_counter() - start
        return self._adapted[candidate]

    @torch.no_grad()
    def hidden(self, decision: Decision) -> Tensor:
        """The engine's hidden state."""
        return self.engine.hidden(decision.encoded, self.adapted(decision.candidate))

    def choice(self, decision: Decision, hidden: Tensor) -> tuple[int, int]:
        """The agent and the role that a hidden state leads to."""
        z = (self._heads[decision.candidate] @ normalise_hidden(hidden, "rms")).double()
        draw = Draw(0, "replay", 0)
        agent, role = (
            choose(logits.numpy(), "sample", draw.uniform(str(decision.task), decision.turn, what))[0]
            for logits, what in zip(split_logits(z, AGENTS), ("agent", "role"), strict=True)
        )
        return agent, role


def digest(states: dict[Decision, Tensor], some: Sequence[Decision]) -> str:
    """A hash of these decisions' hidden states, to the bit."""
    return hashlib.sha256(b"".join(states[d].numpy().tobytes() for d in some)).hexdigest()


def sampled(decisions: Sequence[Decision]) -> list[Decision]:
    """Every so many of them, all turns among them."""
    return list(decisions[::SAMPLE_EVERY])


def measure(slm: SLM, svf: SVF, decisions: Sequence[Decision]) -> dict[str, Any]:
    """Both ways, in turn."""
    replay, plain = Replay(slm, svf, population(decisions)), Plain(slm, svf.layer)
    originals = {name: f.weight.clone() for name, f in svf.factors.items()}
    some = set(sampled(decisions))
    states: dict[Decision, Tensor] = {}
    forward: dict[int, list[float]] = defaultdict(list)
    set_weights: list[float] = []
    engine_seconds, difference, same = 0.0, 0.0, True
    for decision in decisions:
        start = time.perf_counter()
        states[decision] = replay.hidden(decision)
        engine_seconds += time.perf_counter() - start
        if decision not in some:
            continue
        start = time.perf_counter()
        plain.set(svf.weights(replay.scales[decision.candidate]))
        set_weights.append(time.perf_counter() - start)
        start = time.perf_counter()
        state = plain.hidden(decision.encoded.ids)
        forward[decision.turn].append(time.perf_counter() - start)
        plain.set(originals)
        difference = max(difference, float((state - states[decision]).abs().max()))
        same &= replay.choice(decision, state) == replay.choice(decision, states[decision])
    turns = [d.turn for d in decisions]
    plain_seconds = population(decisions) * fmean(set_weights)
    plain_seconds += sum(fmean(forward[turn]) * turns.count(turn) for turn in set(turns))
    start = time.perf_counter()
    warm = all(torch.equal(replay.hidden(d), states[d]) for d in some)
    warm_seconds = (time.perf_counter() - start) / len(some)
    cold = all(
        torch.equal(Replay(slm, svf, population(decisions)).hidden(d), states[d])
        for d in sampled(decisions)[::6]
    )
    return {
        "speedup": plain_seconds / engine_seconds,
        "max_abs_difference": difference,
        "seconds_engine": engine_seconds,
        "seconds_plain": plain_seconds,
        "seconds_adapt": replay.adapt_seconds,
        "seconds_warm_decision": warm_seconds,
        "plain_measured_on": len(some),
        "identical_plain": same,
        "identical_warm": warm,
        "identical_cold": cold,
        "digest": digest(states, sampled(decisions)),
    }


def after_restart() -> str:
    """The digest of the sampled decisions, made backwards by a new process."""
    command = [sys.executable, __file__, "--digest"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    """Measure, and exit with 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--digest", action="store_true", help="only print the digest of the sampled decisions"
    )
    parser.add_argument("--limit", action="store_true", help="only print the limit and what it is made of")
    options = parser.parse_args()
    decisions = recorded()
    arithmetic = limit(decisions)
    if options.limit:
        print(json.dumps(arithmetic))
        return
    # First, while this process is small.
    restarted = None if options.digest else after_restart()
    slm = qwen3_shaped()
    svf = decompose(slm)
    if options.digest:
        replay = Replay(slm, svf, population(decisions))
        states = {d: replay.hidden(d) for d in reversed(sampled(decisions))}
        print(digest(states, sampled(decisions)))
        return
    found = measure(slm, svf, decisions)
    found["identical_restarted"] = restarted == found.pop("digest")
    result = {
        **found,
        **arithmetic,
        "peak_mib": peak_mib(),
        "threads": torch.get_num_threads(),
    }
    print(json.dumps(result))
    identical = all(value for name, value in result.items() if name.startswith("identical"))
    raise SystemExit(0 if identical and result["speedup"] >= TARGET else 1)


if __name__ == "__main__":
    main()
