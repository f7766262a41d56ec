"""What has been said so far, and how the coordinator and the LLMs see it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from trinity.episode.roles import Role
from trinity.episode.verdict import Judgement
from trinity.pool.base import Completion

RouterView = Literal["all", "workers"]

# An output must not pass itself off as another turn: a line that looks like the frame around turns is quoted.
_FRAME = re.compile(r"^(?=[ \t]*(?:\[Turn \d|===))", re.MULTILINE)
_QUOTED = "> "


@dataclass(frozen=True, slots=True)
class Turn:
    """One decision and what came of it.

    `shown` is the completion's text as later readers see it, cut to the token limit of the transcript.
    `judgement` is set for Verifier turns only. `agent_probability` and `role_probability` are those of the
    choice under the policy that made it (1.0 where a Thinker named the role).
    """

    agent: int
    role: Role
    completion: Completion
    shown: str
    judgement: Judgement | None = None
    agent_probability: float = 1.0
    role_probability: float = 1.0


@dataclass(slots=True)
class Transcript:
    """A query and the turns so far."""

    query: str
    turns: list[Turn] = field(default_factory=list)

    def last_worker(self) -> Turn | None:
        """The newest Worker turn, if there is one."""
        return next((turn for turn in reversed(self.turns) if turn.role is Role.WORKER), None)

    def segments(self, view: RouterView) -> list[str]:
        """What the coordinator reads: the query, then one string a turn.

        `workers` shows Worker turns only. A turn's string does not change as the transcript grows, so that a
        longer transcript extends its own prefix.
        """
        seen = self.turns if view == "all" else [t for t in self.turns if t.role is Role.WORKER]
        return [self.query, *(f"\n\n{turn.role.title} (agent {turn.agent}):\n{turn.shown}" for turn in seen)]


def render_turns(turns: Sequence[Turn]) -> str:
    """The turns as an LLM reads them; agents are not named: judge the text, not its author."""
    return "\n\n".join(
        f"[Turn {number}] {turn.role.title}:\n{_quoted(turn.shown)}"
        for number, turn in enumerate(turns, start=1)
    )


def _quoted(text: str) -> str:
    # Looking for the frame's words first spares most texts the search line by line.
    return _FRAME.sub(_QUOTED, text) if "[Turn " in text or "===" in text else text
