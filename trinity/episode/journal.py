"""Every finished trajectory, on one line of a file, as soon as it is finished."""

import json
import os
from pathlib import Path
from typing import Any

from trinity.episode.rollout import Draw
from trinity.episode.scheduler import Failure, Graded
from trinity.errors import UserError
from trinity.pool.base import Completion

_ENCODER = json.JSONEncoder(check_circular=False)


class Journal:
    """Appends to a JSON Lines file: generation, policy, candidate, task, decisions, tokens, cost, reward or
    failure.

    Tokens are those of the answers, wherever they came from; where, stands beside them as `source`.
    `cost_usd` is what was paid for them, answers that could not be used and judging included, so that the
    lines of a run add up to what it spent.

    A line is written whole or, where the disk is full or the process killed in the middle of it, is the last
    one and ends without a line break; the next `Journal` on that file begins a new line. Texts of LLMs stand
    in the cache, not here.

    Raises UserError where the file can't be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            size = os.fstat(self._file).st_size
            if size and os.pread(self._file, 1, size - 1) != b"\n":
                self._append(b"\n")
        except OSError as error:
            raise self._explained(error) from None

    def add(self, draw: Draw, policy: str, result: Graded | Failure) -> None:
        """Append one trajectory of the policy of that name."""
        line = {"stage": draw.stage, "generation": draw.generation, "policy": policy, **_entry(result)}
        try:
            self._append(_ENCODER.encode(line).encode("ascii") + b"\n")
        except OSError as error:
            raise self._explained(error) from None

    def _append(self, data: bytes) -> None:
        written = os.write(self._file, data)
        if written < len(data):
            os.write(self._file, data[written:])  # raises why

    def _explained(self, error: OSError) -> UserError:
        return UserError(
            f"Cannot write the journal {self._path} ({error.strerror}): make room or check the path, and go "
            "on with --ckpt_path."
        )

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def _entry(result: Graded | Failure) -> dict[str, Any]:
    if isinstance(result, Failure):
        return {
            "candidate": result.candidate,
            "task": result.task_id,
            "cost_usd": result.paid.usd,
            "failure": {"agent": result.agent, "cause": result.cause},
        }
    path = result.trajectory
    return {
        "candidate": path.candidate,
        "task": path.task_id,
        "reward": result.reward,
        "stop": path.stop,
        "prompt_tokens": path.prompt_tokens,
        "completion_tokens": path.completion_tokens,
        "cost_usd": result.paid.usd,
        "decisions": [
            {
                "agent": turn.agent,
                "agent_probability": turn.agent_probability,
                "role": turn.role.name.lower(),
                "role_probability": turn.role_probability,
                "verdict": turn.judgement.verdict.value if turn.judgement is not None else None,
                **_said(turn.completion),
            }
            for turn in path.turns
        ],
        **({"judged": [_said(completion) for completion in result.judged]} if result.judged else {}),
    }


def _said(completion: Completion) -> dict[str, Any]:
    return {
        "source": completion.source,
        "finish_reason": completion.finish_reason,
        **({"refusal": completion.refusal} if completion.refusal else {}),
        "prompt_tokens": completion.prompt_tokens,
        "completion_tokens": completion.completion_tokens,
        "cost_usd": completion.paid.usd,
    }
