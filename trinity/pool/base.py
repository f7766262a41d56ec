"""The interface of a pool: one agent answers one list of messages."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypedDict

from trinity.errors import UserError


class Message(TypedDict):
    """One chat message."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class DecodeParameters:
    """How an LLM samples. `reasoning_effort` None leaves the field out of the request."""

    max_tokens: int = 4096
    temperature: float = 0.0
    top_p: float = 1.0
    reasoning_effort: str | None = "minimal"


@dataclass(frozen=True, slots=True)
class Completion:
    """What came back from an LLM.

    `cost` is in US dollars, as the server states it. `source` is "shared" where another trajectory's
    identical call was waited for, which then has the cost. Who paid is no part of what was said: neither
    field counts when completions are compared. `finish_reason` "length" means that the answer was cut
    by its own token limit: a result, not a failure. `reasoning` never enters a transcript.
    """

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = field(default=0.0, compare=False)
    finish_reason: Literal["stop", "length"] = "stop"
    reasoning: str = ""
    source: Literal["call", "shared"] = field(default="call", compare=False)


class InfrastructureError(Exception):
    """No answer came back (network, server, quota): never a wrong answer, never scored 0."""

    def __init__(self, agent: str, cause: str) -> None:
        super().__init__(f"{agent}: {cause}")
        self.agent = agent
        self.cause = cause


class Pool(ABC):
    """A fixed list of agents."""

    @property
    @abstractmethod
    def agents(self) -> Sequence[str]:
        """The agents' names; an agent's index in this list is its index in the head's logits."""

    @property
    def limits(self) -> Sequence[int | None]:
        """The most calls in flight at once, by agent, for whoever makes the calls; None is unlimited."""
        return [None] * len(self.agents)

    @abstractmethod
    async def complete(self, agent: int, messages: Sequence[Message], decode: DecodeParameters) -> Completion:
        """Ask one agent. Raises InfrastructureError if no answer could be had."""

    def check(self) -> None:
        """Fail early where the pool can't be used; called once, before the first `complete`.

        Subclasses that need more (keys, files) extend it. Raises UserError for fewer than two agents, or for
        two of the same name.
        """
        names = list(self.agents)
        if len(names) < 2:
            raise UserError(
                f"The pool {type(self).__name__} holds {len(names)} model(s) ({', '.join(names) or 'none'}), "
                "but a coordinator chooses among at least two: add models to it."
            )
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UserError(f"The pool holds {', '.join(twice)} twice: give each of its models its own name.")

    async def aclose(self) -> None:  # noqa: B027 - most pools hold nothing open
        """Let go of connections. Called once, in the event loop that made the calls."""
