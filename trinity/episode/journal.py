"""Every finished trajectory, on one line of a file, as soon as it is finished."""

import json
import os
from pathlib import Path
from typing import Any

from trinity.episode.rollout import Draw
from trinity.episode.scheduler import Failure, Graded
from trinity.errors import UserError

_ENCODER = json.JSONEncoder(check_circular=False)


class Journal:
    """Appends to a JSON Lines file: generation, candidate, task, decisions, tokens, cost, reward or failure.

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

    def add(self, draw: Draw, result: Graded | Failure) -> None:
        """Append one trajectory."""
        line = {"stage": draw.stage, "generation": draw.generation, **_entry(result)}
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
            "cost_usd": result.cost,
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
        "cost_usd": path.cost,
        "decisions": [
            {
                "agent": turn.agent,
                "agent_probability": turn.agent_probability,
                "role": turn.role.name.lower(),
                "role_probability": turn.role_probability,
                "verdict": turn.judgement.verdict.value if turn.judgement is not None else None,
                "source": turn.completion.source,
                "finish_reason": turn.completion.finish_reason,
                "cost_usd": turn.completion.cost,
            }
            for turn in path.turns
        ],
    }
