"""Answers that real LLMs gave once, replayed from a file."""

import functools
import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from trinity.errors import UserError
from trinity.pool.base import Completion, DecodeParameters, Message, Pool


class RecordedPool(Pool):
    """Replays recorded single-turn answers: for runs with one turn and the Worker role only.

    An answer was given to a question alone, so it is found by a request whose one user message is that
    question, character for character; the system message and the decode parameters have no influence. Token
    counts and costs are 0: the files hold none. A recorded empty answer is an answer.

    Args:
        path: one or more JSON Lines files, gzip if the name ends in .gz, with rows
            {id, question, outputs: {model: text}}. Other fields, such as a reference, are dropped unseen.
        models: whose outputs, in the order of the head's logits.
    """

    def __init__(self, path: str | list[str], models: list[str]) -> None:
        self._paths = [Path(p) for p in ([path] if isinstance(path, str) else path)]
        self._models = list(models)

    @property
    def agents(self) -> Sequence[str]:
        """The models' names, as in the files."""
        return list(self._models)

    def check(self) -> None:
        """Read the files.

        Raises UserError for a file that is missing, unreadable or without rows, for a model that a row lacks,
        or for a question that was recorded twice with different outputs.
        """
        super().check()
        _ = self._answers

    async def complete(self, agent: int, messages: Sequence[Message], decode: DecodeParameters) -> Completion:
        """The recorded answer of one model. Raises UserError unless the request is a recorded question."""
        asked = [message for message in messages if message["role"] != "system"]
        single = [message["role"] for message in asked] == ["user"]
        answers = self._answers.get(asked[0]["content"]) if single else None
        if answers is None:
            start = asked[-1]["content"][:60] if asked else ""
            raise UserError(
                f"There is no recorded answer to {start!r}…: recorded answers serve single-turn Worker runs "
                "only (max_turns 1, roles [worker]), on the questions of their files."
            )
        return Completion(text=answers[agent])

    @functools.cached_property
    def _answers(self) -> dict[str, tuple[str, ...]]:
        """Question -> its answers in agent order."""
        answers: dict[str, tuple[str, ...]] = {}
        for path in self._paths:
            for where, row in _rows(path):
                question, outputs = self._recorded(where, row)
                if answers.setdefault(question, outputs) != outputs:
                    raise UserError(
                        f"{where} repeats a question, but with other outputs than before: keep one."
                    )
        if not answers:
            raise UserError("RecordedPool got no files: give at least one as path.")
        return answers

    def _recorded(self, where: str, row: Any) -> tuple[str, tuple[str, ...]]:
        """A row's question and the outputs of this pool's models."""
        question = row.get("question") if isinstance(row, dict) else None
        outputs = row.get("outputs") if isinstance(row, dict) else None
        if not isinstance(question, str) or not isinstance(outputs, dict):
            raise UserError(f'{where} is no recording: it needs "question" (text) and "outputs" (by model).')
        for model in self._models:
            if not isinstance(outputs.get(model), str):
                raise UserError(
                    f"{where} holds no output of the model {model!r}: choose among {', '.join(outputs)}."
                )
        return question, tuple(outputs[model] for model in self._models)


def _rows(path: Path) -> Iterator[tuple[str, Any]]:
    """The values of a JSON Lines file, each with its place for messages."""
    empty = True
    try:
        with (
            gzip.open(path, "rt", encoding="utf-8")
            if path.suffix == ".gz"
            else path.open(encoding="utf-8") as f
        ):
            for number, marked in enumerate(f, 1):
                line = marked.removeprefix("\ufeff")  # a byte order mark
                if line.strip():
                    empty = False
                    where = f"{path}, line {number}"
                    yield where, _parse(where, line)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"Cannot read the recorded answers {path} ({reason}): check the path.") from error
    if empty:
        raise UserError(f"{path} holds no recorded answers: give a file with one JSON object a line.")


def _parse(where: str, line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is not JSON ({error}): give one object a line.") from error
