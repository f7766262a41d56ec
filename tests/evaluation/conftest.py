"""A pool without chance: each agent knows one domain, and a Verifier tells right from wrong."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from trinity.episode.calls import Bill, Calls
from trinity.episode.policy import Logits, Policy, Position, Selection
from trinity.episode.rollout import EpisodeSettings, Rollout
from trinity.episode.scheduler import Failure, Graded, Job, run_jobs
from trinity.pool.base import Completion, DecodeParameters, InfrastructureError, Message, Pool
from trinity.tasks.task import Task

DOMAINS = ("red", "green", "blue")


class Experts(Pool):
    agents = ("knows-red", "knows-green", "knows-blue")

    def __init__(
        self,
        fails: Callable[[int, str], bool],
        needs: int,
        own: dict[int, int],
        refuses: Callable[[int, str], bool],
    ) -> None:
        self.fails = fails
        self.refuses = refuses
        self.needs = needs
        self.own = own

    def identity(self, agent: int, decode: DecodeParameters) -> dict[str, Any]:
        limit = self.own.get(agent, decode.max_tokens)
        return {**super().identity(agent, decode), "max_tokens": decode.turns * limit}

    async def complete(self, agent: int, messages: Sequence[Message], decode: DecodeParameters) -> Completion:
        question = messages[1]["content"]
        if self.fails(agent, question):
            raise InfrastructureError(self.agents[agent], "quota")
        if self.refuses(agent, question):
            return Completion("", finish_reason="refused", refusal="status 403")
        if self.identity(agent, decode)["max_tokens"] < self.needs:
            return Completion("ri", finish_reason="length")
        return Completion("right" if DOMAINS[agent] in question else "wrong")


class Expert:
    """Asks who knows, as a Worker; what a coordinator that reads the question learns."""

    async def logits(self, position: Position, segments: Sequence[str]) -> tuple[Logits, Logits]:
        agent = next(i for i, domain in enumerate(DOMAINS) if domain in segments[0])
        return 9.0 * np.eye(3)[agent], 99.0 * np.eye(3)[1]


@dataclass(frozen=True)
class Mark:
    reward: int


@dataclass
class Runner:
    """What the module is to the protocol; keeps what it was asked to run.

    `fails` and `refuses` tell which calls do, `needs` how many tokens an answer takes, and `own` the agents'
    own limits.
    """

    settings: EpisodeSettings = field(default_factory=lambda: EpisodeSettings(max_turns=2))
    fails: Callable[[int, str], bool] = lambda agent, question: False
    refuses: Callable[[int, str], bool] = lambda agent, question: False
    needs: int = 0
    own: dict[int, int] = field(default_factory=dict)
    asked: list[tuple[Any, Sequence[Job[Task]], Selection, EpisodeSettings | None]] = field(
        default_factory=list
    )

    @property
    def pool(self) -> Pool:
        """Whom it asks."""
        return Experts(self.fails, self.needs, self.own, self.refuses)

    def run(
        self,
        policy: Policy,
        jobs: Sequence[Job[Task]],
        selection: Selection,
        episode: EpisodeSettings | None = None,
    ) -> list[Graded | Failure]:
        self.asked.append((policy, list(jobs), selection, episode))
        settings = episode or self.settings
        rollout = Rollout(policy, Calls(self.pool), settings, lambda text, tokens: text, selection)

        async def grade(task: Task, answer: str | None, bill: Bill) -> Mark:
            return Mark(int(answer == task.reference))

        return asyncio.run(run_jobs(rollout, jobs, grade))


@pytest.fixture
def make_runner() -> type[Runner]:
    return Runner


@pytest.fixture
def expert() -> Policy:
    return Expert()


@pytest.fixture
def tasks() -> list[Task]:
    """Ten tasks of each domain."""
    domains = [DOMAINS[i % 3] for i in range(30)]
    return [Task(f"t{i}", d, f"{d} {i}?", "right", "text", "line") for i, d in enumerate(domains)]
