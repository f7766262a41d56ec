"""One trajectory: from a task to a final answer, in at most K turns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, Protocol

import numpy as np

from trinity import keyed
from trinity.episode.calls import Calls
from trinity.episode.policy import Logits, Policy, Position, Selection, choose
from trinity.episode.prompts import Question, build_messages, named_role
from trinity.episode.roles import Role
from trinity.episode.transcript import RouterView, Transcript, Turn
from trinity.episode.verdict import Verdict, parse_judgement
from trinity.errors import UserError
from trinity.pool.base import DecodeParameters, InfrastructureError, Paid

RoleName = Literal["thinker", "worker", "verifier"]
StopReason = Literal["accepted", "turns", "verifier_first"]


@dataclass(frozen=True)
class EpisodeSettings:
    """The rules of a trajectory.

    Args:
        max_turns: K, the most turns of a trajectory.
        max_output_tokens: longer outputs are cut in the transcript (never in what is graded).
        roles: the roles on offer; the others get probability 0.
        agents: likewise the agents on offer, by their places in the pool, from 0; None offers all.
        final_answer: the newest Worker output, or the newest output of any role.
        router_view: whether the coordinator sees all turns or Worker turns only.
        thinker_names_role: a Thinker's last line may fix the role of the next turn.
        verifier_first: what a Verifier does before there is any Worker output: nothing (`continue`), or it
            ends the trajectory with reward 0 (`end`).
        refused_request: a request that a provider refuses (flagged, too long) counts as an empty answer, or
            the trajectory fails and its task is dropped like one that was lost to the infrastructure.
        decode: how the LLMs sample.
    """

    max_turns: int = 5
    max_output_tokens: int = 2000
    roles: Sequence[RoleName] = ("thinker", "worker", "verifier")
    agents: Sequence[int] | None = None
    final_answer: Literal["last_worker", "last_output"] = "last_worker"
    router_view: RouterView = "all"
    thinker_names_role: bool = False
    verifier_first: Literal["continue", "end"] = "continue"
    refused_request: Literal["answer", "drop"] = "answer"
    decode: DecodeParameters = field(default_factory=DecodeParameters)

    def named_role(self, transcript: Transcript) -> Role | None:
        """The role of the next turn where the newest one, a Thinker's, fixes it."""
        last = transcript.turns[-1] if transcript.turns else None
        if not self.thinker_names_role or last is None or last.role is not Role.THINKER:
            return None
        role = named_role(last.completion.text)
        return role if role is not None and role.name.lower() in self.roles else None

    def places(self, agents: int) -> Sequence[int]:
        """The places of the agents on offer, in a pool of so many."""
        return range(agents) if self.agents is None else self.agents

    @cached_property
    def offered(self) -> tuple[bool, ...]:
        """Whether each role is on offer."""
        return tuple(role.name.lower() in self.roles for role in Role)

    def __post_init__(self) -> None:
        if self.max_turns < 1:
            raise UserError(f"max_turns (K) is {self.max_turns}, but a trajectory needs at least 1 turn.")
        if self.max_output_tokens < 1:
            raise UserError(
                f"max_output_tokens is {self.max_output_tokens}, but must be at least 1; raise it."
            )
        if self.agents is not None and (not self.agents or min(self.agents) < 0):
            raise UserError(
                f"episode.agents is {list(self.agents)}, but must name places in the pool, from 0, at least "
                "one."
            )
        if "worker" not in self.roles:
            raise UserError(f"roles is {list(self.roles)}, but only a worker answers; add it.")


class RolloutTask(Question, Protocol):
    """What a rollout needs of a task."""

    @property
    def id(self) -> str:
        """The task's id."""


@dataclass(frozen=True, slots=True)
class Draw:
    """The key of a trajectory's random numbers.

    Candidates share them (common random numbers) unless `candidate` is set.
    """

    seed: int
    stage: str
    generation: int
    candidate: int | None = None

    @property
    def sample(self) -> str:
        """Names one sample of a request at a temperature above 0: another one for each seed, stage and
        generation, so that runs of different seeds that share a cache draw samples of their own."""
        shared = "" if self.candidate is None else f"/{self.candidate}"
        return f"{self.seed}/{self.stage}/{self.generation}{shared}"

    def uniform(self, task_id: str, turn: int, what: str) -> float:
        """The number in [0, 1) of one choice."""
        shared = -1 if self.candidate is None else self.candidate
        return keyed.uniform(self.seed, self.stage, self.generation, task_id, turn, what, shared)


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A finished trajectory. `answer` is None where no Worker has spoken."""

    candidate: int
    task_id: str
    turns: tuple[Turn, ...]
    stop: StopReason
    answer: str | None

    @property
    def completion_tokens(self) -> int:
        """Tokens of the answers, wherever they came from."""
        return sum(turn.completion.completion_tokens for turn in self.turns)

    @property
    def prompt_tokens(self) -> int:
        """Tokens that the LLMs read for these answers."""
        return sum(turn.completion.prompt_tokens for turn in self.turns)

    def served_by(self, source: str) -> int:
        """Turns whose answer is "shared" with another trajectory's call, or from the "cache"."""
        return sum(turn.completion.source == source for turn in self.turns)

    @property
    def paid(self) -> Paid:
        """What the calls that were made for this trajectory cost."""
        return Paid.total(turn.completion.paid for turn in self.turns)


Clip = Callable[[str, int], str]


@dataclass(frozen=True, slots=True)
class Rollout:
    """Runs trajectories of one policy on one pool.

    Args:
        policy: decides.
        calls: to the pool, which answers.
        settings: the rules.
        clip: (text, tokens) -> text of at most that many tokens.
        selection: how a choice is taken from the logits.
    """

    policy: Policy
    calls: Calls
    settings: EpisodeSettings
    clip: Clip
    selection: Selection

    async def run(self, task: RolloutTask, candidate: int, draw: Draw) -> Trajectory:
        """One trajectory.

        Raises InfrastructureError where an LLM's answer could not be had, with the cost of those before it.
        """
        transcript = Transcript(task.query)
        stop: StopReason = "turns"
        while len(transcript.turns) < self.settings.max_turns:
            try:
                turn = await self._turn(task, transcript, candidate, draw)
            except InfrastructureError as error:
                error.paid += Paid.total(turn.completion.paid for turn in transcript.turns)
                raise
            has_worker = transcript.last_worker() is not None
            transcript.turns.append(turn)
            if turn.role is Role.VERIFIER and not has_worker and self.settings.verifier_first == "end":
                stop = "verifier_first"
                break
            accepted = turn.judgement is not None and turn.judgement.verdict is Verdict.ACCEPT
            if accepted and has_worker:
                stop = "accepted"
                break
        return Trajectory(candidate, task.id, tuple(transcript.turns), stop, self._answer(transcript, stop))

    async def _turn(self, task: RolloutTask, transcript: Transcript, candidate: int, draw: Draw) -> Turn:
        number = len(transcript.turns)
        segments = transcript.segments(self.settings.router_view)
        agent_logits, role_logits = await self.policy.logits(Position(candidate, task.id, number), segments)
        agent_logits = self._mask_agents(agent_logits)
        agent, agent_p = choose(agent_logits, self.selection, draw.uniform(task.id, number, "agent"))
        named = self.settings.named_role(transcript)
        if named is None:
            masked = self._mask(role_logits)
            index, role_p = choose(masked, self.selection, draw.uniform(task.id, number, "role"))
            role = Role(index)
        else:
            role, role_p = named, 1.0
        messages = build_messages(role, task, transcript, thinker_names_role=self.settings.thinker_names_role)
        decode = self.settings.decode
        if decode.temperature > 0:
            decode = replace(decode, sample=draw.sample)
        completion = await self.calls.complete(agent, messages, decode)
        if completion.finish_reason == "refused" and self.settings.refused_request == "drop":
            cause = f"request refused ({completion.refusal})"
            raise InfrastructureError(self.calls.name(agent), cause, answered=True, paid=completion.paid)
        shown = self.clip(completion.text, self.settings.max_output_tokens)
        judgement = parse_judgement(completion.text) if role is Role.VERIFIER else None
        return Turn(agent, role, completion, shown, judgement, agent_p, role_p)

    def _mask_agents(self, agent_logits: Logits) -> Logits:
        offered = self.settings.agents
        if offered is None:
            return agent_logits
        masked = np.full_like(agent_logits, -np.inf)
        masked[list(offered)] = agent_logits[list(offered)]
        return masked

    def _mask(self, role_logits: Logits) -> Logits:
        offered = self.settings.offered
        return role_logits if all(offered) else np.where(offered, role_logits, -np.inf)

    def _answer(self, transcript: Transcript, stop: StopReason) -> str | None:
        if stop == "verifier_first":
            return None
        if self.settings.final_answer == "last_output":
            return transcript.turns[-1].completion.text
        worker = transcript.last_worker()
        return None if worker is None else worker.completion.text
