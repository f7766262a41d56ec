"""A mock LLM and a mock coordinator, both scripted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from trinity.episode.calls import Calls
from trinity.episode.policy import Logits, Position
from trinity.episode.roles import Role
from trinity.episode.rollout import Draw, EpisodeSettings, Rollout, Trajectory
from trinity.pool.base import Completion, DecodeParameters, Message, Pool


@dataclass(frozen=True)
class Question:
    id: str = "task"
    query: str = "What is 2 + 2?"
    answer_format: str = "line"


class ScriptedPool(Pool):
    """Says the next line of its script, whoever is asked."""

    agents = ("a", "b", "c")

    def __init__(self, script: Sequence[str | Completion | Exception]) -> None:
        self.script = list(script)
        self.calls: list[tuple[int, list[Message], DecodeParameters]] = []

    async def complete(self, agent: int, messages: Sequence[Message], decode: DecodeParameters) -> Completion:
        line = self.script[len(self.calls)]
        self.calls.append((agent, list(messages), decode))
        if isinstance(line, Exception):
            raise line
        return line if isinstance(line, Completion) else Completion(line)


class ScriptedPolicy:
    """Wants the next agent and role of its script; keeps what it was shown."""

    def __init__(self, script: Sequence[tuple[int, Role]]) -> None:
        self.script = list(script)
        self.seen: list[tuple[Position, list[str]]] = []

    async def logits(self, position: Position, segments: Sequence[str]) -> tuple[Logits, Logits]:
        self.seen.append((position, list(segments)))
        agent, role = self.script[position.turn]
        return np.eye(3)[agent], np.eye(3)[role]


@dataclass
class Played:
    trajectory: Trajectory
    pool: ScriptedPool
    policy: ScriptedPolicy

    @property
    def roles(self) -> list[Role]:
        return [turn.role for turn in self.trajectory.turns]


@dataclass
class Script:
    """Plays (agent, role, text) turn by turn under the given rules, choosing by argmax."""

    turns: list[tuple[int, Role, Any]]
    settings: dict[str, Any] = field(default_factory=dict)
    clip: Callable[[str, int], str] = lambda text, tokens: text

    async def play(self, question: Question | None = None) -> Played:
        pool = ScriptedPool([text for _, _, text in self.turns])
        policy = ScriptedPolicy([(agent, role) for agent, role, _ in self.turns])
        rollout = Rollout(policy, Calls(pool), EpisodeSettings(**self.settings), self.clip, "argmax")
        trajectory = await rollout.run(question or Question(), 0, Draw(0, "evaluation", 0))
        return Played(trajectory, pool, policy)


@pytest.fixture
def play() -> Callable[..., Any]:
    """`await play([(agent, role, text), ...], clip=..., **episode settings)`."""

    async def run(turns: list[tuple[int, Role, Any]], **options: Any) -> Played:
        clip = options.pop("clip", lambda text, tokens: text)
        return await Script(turns, options, clip).play()

    return run


@pytest.fixture
def question() -> Question:
    return Question()
