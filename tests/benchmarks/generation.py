"""A whole generation of diverging transcripts: the engine against the straightforward way.

One K = 5 generation of 33 candidates on 4 tasks is played through the real episode loop, with a uniform
policy whose draws are each candidate's own: the transcripts part at once, as those of an untrained population
do. Its decisions are then made again, turn by turn, by the engine and by the straightforward way (a
candidate's weights into the model, then all 28 layers on the whole transcript), with Qwen3-0.6B's shape and
random weights in float32. The straightforward way is measured on a sample of the decisions, in turn with the
engine, and scaled by turn.

Lengths in tokens: a question 490 (LiveCodeBench's prompts have 1,700 characters on average, and questions
about code 3.2 to 3.7 characters a token), an output as recorded answers of claude-3-opus, deepseek-v2.5 and
gemini-1.5-flash to questions about code (CRUXEval; counted with SmolLM2's tokenizer: mean 178, quantiles
below). `--outputs mathematics` takes their answers to MATH level 5 instead (mean 416, cut at the transcript's
2,000), where a new turn is a larger part of the transcript and the limit is lower.

The limit counts positions times layers: the plain side runs 28 layers on every position of every decision;
the engine runs 26 on the new positions (the newest turn and the ending) of every distinct transcript, one and
the last one's keys and values on the new positions of every decision, and builds each candidate's weights.

    python tests/benchmarks/generation.py
"""

import argparse
import asyncio
import hashlib
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import torch
from shape import LAYERS, WIDTH, Plain, peak_mib, qwen3_shaped
from torch import Tensor

from trinity import keyed
from trinity.coordinator.encoding import Encoded, TranscriptEncoder
from trinity.coordinator.engine import Adapted, Engine
from trinity.coordinator.heads import LinearHead, normalise_hidden, split_logits
from trinity.coordinator.slm import SLM
from trinity.coordinator.svf import SVF, decompose
from trinity.episode.policy import Logits, Position, choose
from trinity.episode.rollout import Draw, EpisodeSettings, Rollout
from trinity.episode.scheduler import Job, run_jobs
from trinity.evaluation.baselines import UniformPolicy
from trinity.pool.base import Completion, DecodeParameters, Message, Pool

CANDIDATES, TASKS, TURNS, AGENTS = 33, 4, 5, 3
QUESTION_TOKENS = 490
MARKER_TOKENS = 5
FRAME_TOKENS = 10
QUANTILES = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1)
OUTPUT_TOKENS = {
    "code": (40, 103, 121, 136, 147, 159, 174, 191, 214, 252, 293, 481, 700),
    "mathematics": (60, 169, 206, 239, 271, 313, 357, 415, 507, 677, 884, 2000, 2000),
}
ACCEPTS = 0.5  # how often a Verifier accepts
TARGET = 8.0
SAMPLE_EVERY = 22
LAST_LAYER_SHARE = 2 / 15


@dataclass(frozen=True)
class Question:
    """A task, as far as a rollout looks at it."""

    id: str
    query: str
    answer_format: str = "code"


@dataclass(frozen=True)
class Decision:
    """One decision of the generation, to be made again."""

    candidate: int
    task: str
    turn: int
    encoded: Encoded


def letters(length: int, *key: object) -> str:
    """Text of so many bytes, which are the tokens here."""
    return "".join(map(chr, keyed.generator("letters", *key).integers(97, 123, length)))


class LengthPool(Pool):
    """Answers with letters, as many as recorded answers have tokens."""

    agents = tuple(f"agent-{i}" for i in range(AGENTS))

    def __init__(self, lengths: Sequence[int]) -> None:
        self._lengths = lengths

    async def complete(self, agent: int, messages: Sequence[Message], decode: DecodeParameters) -> Completion:
        """The same request gets the same answer."""
        key = hashlib.sha256(json.dumps([agent, messages]).encode()).hexdigest()
        length = int(np.interp(keyed.uniform("length", key), QUANTILES, self._lengths))
        verdict = "ACCEPT" if keyed.uniform("verdict", key) < ACCEPTS else "REVISE"
        ending = f"\nVERDICT: {verdict}" if "You are the Verifier" in messages[0]["content"] else ""
        return Completion(letters(length - len(ending), key) + ending)


class Recorder(UniformPolicy):
    """The uniform policy, which keeps what it was asked.

    A token is a byte here: a turn's heading and the marker are cut to what a real tokenizer makes of them.
    """

    def __init__(self, encoder: TranscriptEncoder) -> None:
        super().__init__(AGENTS)
        self._encoder = encoder
        self.decisions: list[Decision] = []

    async def logits(self, position: Position, segments: Sequence[str]) -> tuple[Logits, Logits]:
        """As `UniformPolicy`."""
        encoded = self._encoder.encode([segments[0], *(_shortened(turn) for turn in segments[1:])])
        encoded = Encoded(encoded.pieces, encoded.ending[:MARKER_TOKENS])
        self.decisions.append(Decision(position.candidate, position.task_id, position.turn, encoded))
        return await super().logits(position, segments)


def _shortened(turn: str) -> str:
    """A turn with a heading as long as its tokens are."""
    heading, colon, text = turn.partition(":\n")
    return (heading[2:] + colon)[-FRAME_TOKENS:] + text


def record(encoder: TranscriptEncoder, outputs: str) -> list[Decision]:
    """The decisions of one generation: task by task, turn by turn, as LLM calls that return together leave
    them."""

    @dataclass(frozen=True)
    class Mark:
        reward: int = 0

    async def grade(task: Question, answer: str | None) -> Mark:
        return Mark()

    policy = Recorder(encoder)
    settings = EpisodeSettings(max_turns=TURNS)
    rollout = Rollout(
        policy, LengthPool(OUTPUT_TOKENS[outputs]), settings, lambda text, tokens: text, "sample"
    )
    tasks = [Question(f"task-{i}", letters(QUESTION_TOKENS, "question", i)) for i in range(TASKS)]
    jobs = [Job(task, c, Draw(0, "train", 0, c)) for task in tasks for c in range(CANDIDATES)]
    asyncio.run(run_jobs(rollout, jobs, grade, len(jobs)))
    return sorted(policy.decisions, key=lambda d: (d.task, d.turn, d.candidate))


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
        "limit": plain / (trunk + tail + CANDIDATES * WIDTH),
        "decisions": len(decisions),
        "distinct": len(distinct),
        "mean_tokens": fmean(len(d.encoded.ids) for d in decisions),
        "mean_new_tokens": fmean(distinct.values()),
        "trunk_share": trunk / (trunk + tail + CANDIDATES * WIDTH),
    }


class Replay:
    """A population of a first generation (sigma0 = 0.1), which makes recorded decisions again."""

    def __init__(self, slm: SLM, svf: SVF) -> None:
        self.svf = svf
        self.engine = Engine(slm, svf.layer)
        generator = torch.Generator().manual_seed(0)
        head = LinearHead(WIDTH, AGENTS)
        self._heads = 0.1 * torch.randn(CANDIDATES, *head.weight.shape, generator=generator)
        self.scales = 1 + 0.1 * torch.randn(CANDIDATES, svf.n_scales, generator=generator)
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
        draw = Draw(0, "replay", 0, decision.candidate)
        agent, role = (
            choose(logits.numpy(), "sample", draw.uniform(decision.task, decision.turn, what))[0]
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
    replay, plain = Replay(slm, svf), Plain(slm, svf.layer)
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
    plain_seconds = CANDIDATES * fmean(set_weights)
    plain_seconds += sum(fmean(forward[turn]) * turns.count(turn) for turn in set(turns))
    start = time.perf_counter()
    warm = all(torch.equal(replay.hidden(d), states[d]) for d in some)
    warm_seconds = (time.perf_counter() - start) / len(some)
    cold = all(torch.equal(Replay(slm, svf).hidden(d), states[d]) for d in sampled(decisions)[::6])
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


def after_restart(outputs: str) -> str:
    """The digest of the sampled decisions, made backwards by a new process."""
    command = [sys.executable, __file__, "--outputs", outputs, "--digest"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    """Measure, and exit with 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--outputs", choices=sorted(OUTPUT_TOKENS), default="code")
    parser.add_argument(
        "--digest", action="store_true", help="only print the digest of the sampled decisions"
    )
    parser.add_argument("--limit", action="store_true", help="only print the limit and what it is made of")
    options = parser.parse_args()
    slm = qwen3_shaped(layers=2 if options.limit else LAYERS)
    decisions = record(TranscriptEncoder(slm), options.outputs)
    arithmetic = limit(decisions)
    if options.limit:
        print(json.dumps(arithmetic))
        return
    svf = decompose(slm)
    if options.digest:
        replay = Replay(slm, svf)
        states = {d: replay.hidden(d) for d in reversed(sampled(decisions))}
        print(digest(states, sampled(decisions)))
        return
    found = measure(slm, svf, decisions)
    found["identical_restarted"] = after_restart(options.outputs) == found.pop("digest")
    result = {
        **found,
        **arithmetic,
        "outputs": options.outputs,
        "peak_mib": peak_mib(),
        "threads": torch.get_num_threads(),
    }
    print(json.dumps(result))
    identical = all(value for name, value in result.items() if name.startswith("identical"))
    raise SystemExit(0 if identical and result["speedup"] >= TARGET else 1)


if __name__ == "__main__":
    main()
