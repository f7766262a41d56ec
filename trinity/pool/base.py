"""The interface of a pool: one agent answers one list of messages."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypedDict

from trinity.errors import UserError


class Message(TypedDict):
    """One chat message."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class DecodeParameters:
    """How an LLM samples. `reasoning_effort` None leaves the field out of the request.

    `sample` tells several samples of one request apart; it is not sent. A rollout sets it where the
    temperature is above 0. `turns` gives one answer the tokens of so many: the limit that it multiplies is
    `max_tokens`, or a model's own in its place.
    """

    max_tokens: int = 4096
    temperature: float = 0.0
    top_p: float = 1.0
    reasoning_effort: str | None = "minimal"
    sample: str = ""
    turns: int = 1


@dataclass(frozen=True, slots=True)
class Paid:
    """What calls cost: US dollars, how many there were, and the tokens read and written for them."""

    usd: float = 0.0
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: "Paid") -> "Paid":
        return Paid(
            self.usd + other.usd,
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
        )

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens."""
        return self.prompt_tokens + self.completion_tokens

    @classmethod
    def total(cls, parts: Iterable["Paid"]) -> "Paid":
        """The sum."""
        return sum(parts, cls())


@dataclass(frozen=True, slots=True)
class Completion:
    """What came back from an LLM.

    `prompt_tokens` and `completion_tokens` are the answer's, wherever it came from: `source` is "shared"
    where another trajectory's identical call was waited for, which then has the cost, and "cache" where it
    was made before. `cost` is what this call cost, in US dollars, and `is_priced` False where neither the
    server nor a price says so. `wasted` is what was paid for answers to the same request that could not be
    used. Who paid is no part of what was said: none of these counts when completions are compared.

    `finish_reason` "length" means that the answer was cut by its own token limit, "refused" that the provider
    would not take this request: results both, no failures. `refusal` says why there is no proper answer
    ("content filter", "status 403", ...), and is empty where there is one. `reasoning` never enters a
    transcript.
    """

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = field(default=0.0, compare=False)
    finish_reason: Literal["stop", "length", "refused"] = "stop"
    reasoning: str = ""
    source: Literal["call", "shared", "cache"] = field(default="call", compare=False)
    refusal: str = ""
    is_priced: bool = field(default=True, compare=False)
    wasted: Paid = field(default=Paid(), compare=False)

    @property
    def paid(self) -> Paid:
        """What was paid for it by whoever asked, answers that could not be used included."""
        if self.source != "call":
            return self.wasted
        return Paid(self.cost, 1, self.prompt_tokens, self.completion_tokens) + self.wasted

    def from_elsewhere(self, source: Literal["shared", "cache"]) -> "Completion":
        """The same answer for somebody who does not pay for it."""
        return replace(self, cost=0.0, source=source, wasted=Paid())


class InfrastructureError(Exception):
    """No answer came back (network, server, quota): never a wrong answer, never scored 0.

    `retry_after` is how many seconds the server asked to wait, where it did. `answered` tells that the server
    is up, but gave nothing that can be used. `paid` is what was paid for it all the same: for one attempt,
    then for all of a call, then for the whole trajectory that ends by this.
    """

    def __init__(
        self,
        agent: str,
        cause: str,
        retry_after: float | None = None,
        *,
        answered: bool = False,
        paid: Paid = Paid(),
    ) -> None:
        super().__init__(f"{agent}: {cause}")
        self.agent = agent
        self.cause = cause
        self.retry_after = retry_after
        self.answered = answered
        self.paid = paid

    def for_another(self) -> "InfrastructureError":
        """The same failure for somebody else who waited for the call and does not pay for it."""
        return InfrastructureError(self.agent, self.cause, self.retry_after, answered=self.answered)


class RequestRefusedError(UserError):
    """A provider would not take a request: the request's fault, or the model cannot be used at all.

    Which one is for whoever made the call to find out. The message says what the user can do in the second
    case; `completion` is the result in the first one.
    """

    def __init__(self, message: str, completion: Completion) -> None:
        super().__init__(message)
        self.completion = completion


@dataclass(frozen=True)
class Pace:
    """How fast one model may be asked; None is unlimited."""

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None


@dataclass(frozen=True)
class Price:
    """US dollars for a million tokens."""

    prompt: float
    completion: float

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """US dollars for one call."""
        return (self.prompt * prompt_tokens + self.completion * completion_tokens) / 1e6


@dataclass(frozen=True)
class RetrySettings:
    """What is done about a call that brought no answer.

    Args:
        attempts: how often a request is made before its trajectory fails; while the model answers nobody,
            it is made for `pause_after` seconds.
        first_wait, longest_wait: seconds between attempts: doubled each time, with jitter. A server's
            Retry-After counts if it is longer.
        pause_after: a model that fails throughout for this many seconds pauses the run.
        probe_every: while paused, the model is asked again every so many seconds.
        give_up_after: a pause ends the run after so many seconds.
    """

    attempts: int = 8
    first_wait: float = 1.0
    longest_wait: float = 60.0
    pause_after: float = 300.0
    probe_every: float = 30.0
    give_up_after: float = 3600.0

    def __post_init__(self) -> None:
        if self.attempts < 1 or min(self.first_wait, self.longest_wait, self.probe_every) < 0:
            raise UserError(
                f"The retry options allow {self.attempts} attempts and waits of {self.first_wait}, "
                f"{self.longest_wait} and {self.probe_every} s; give at least 1 attempt and no negative wait."
            )


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

    @property
    def retry(self) -> RetrySettings | None:
        """What is done about failing calls; None: nothing, as for a pool that makes none."""
        return None

    @property
    def paces(self) -> Sequence[Pace]:
        """How fast each agent may be asked."""
        return [Pace()] * len(self.agents)

    @property
    def prices(self) -> Sequence[Price | None]:
        """What each agent costs, where it is known before a call."""
        return [None] * len(self.agents)

    @property
    def states_cost(self) -> Sequence[bool]:
        """Whether each agent's calls can be told in dollars: by their server, by a price, or as free."""
        return [True] * len(self.agents)

    def known(self, agent: int, messages: Sequence[Message], decode: DecodeParameters) -> Completion | None:
        """An answer that needs no call, at no cost; None where one has to be made. Never waits."""
        return None

    def identity(self, agent: int, decode: DecodeParameters) -> dict[str, Any]:
        """All that decides an agent's answer beside the messages, for the key of a cache; plain values."""
        fields = asdict(decode)
        fields["max_tokens"] *= fields.pop("turns")  # one limit has one key, however it came about
        return {"model": self.agents[agent], **fields}

    @abstractmethod
    async def complete(self, agent: int, messages: Sequence[Message], decode: DecodeParameters) -> Completion:
        """Ask one agent.

        Raises InfrastructureError if no answer could be had, RequestRefusedError where the provider would not
        take the request.
        """

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
