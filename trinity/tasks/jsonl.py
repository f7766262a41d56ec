"""Reading rows of JSON Lines files so that every mistake in them is named by file and line."""

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trinity.errors import UserError


@dataclass(frozen=True, slots=True)
class Row:
    """One object of a file; `where` names it in messages."""

    values: dict[str, Any]
    where: str

    def text(self, field: str) -> str:
        """The field as text: a number becomes its digits, an object its JSON.

        Raises UserError if the field is missing, empty, or of another type.
        """
        value = self.values.get(field)
        if isinstance(value, dict):
            return json.dumps(value)
        if isinstance(value, str | int | float) and not isinstance(value, bool) and str(value).strip():
            return str(value)
        found = "is missing" if field not in self.values else f"is {json.dumps(value)[:60]}"
        name = f" (id {self.values['id']!r})" if field != "id" and "id" in self.values else ""
        raise UserError(
            f'{self.where}{name}: "{field}" {found}; give it as non-empty text, or map another field to it.'
        )

    def texts(self, field: str) -> tuple[str, ...]:
        """The field as a list of texts. Raises UserError if it is none, or empty."""
        value = self.values.get(field)
        if isinstance(value, list) and value:
            return tuple(Row({field: item}, self.where).text(field) for item in value)
        raise UserError(f'{self.where}: "{field}" is {json.dumps(value)[:60]}; give it as a list of texts.')


def read_rows(path: str | Path) -> Iterator[Row]:
    """The rows of a JSON Lines file in UTF-8, one at a time; gzip if the name ends in .gz.

    Blank lines pass, and so do byte order marks, also one in the middle of files that were joined.

    Raises UserError if the file cannot be read, holds no row, or a line is not a JSON object.
    """
    path = Path(path)
    empty = True
    for number, line in _lines(path):
        if not line.strip():
            continue
        empty = False
        where = f"{path}, line {number}"
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where} is not JSON ({error}): give one object a line.") from error
        if not isinstance(values, dict):
            raise UserError(f"{where} is not a JSON object but {line.strip()[:40]}: give one object a line.")
        yield Row(values, where)
    if empty:
        raise UserError(f"{path} holds no tasks: give a file with one JSON object a line.")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, 1):
                yield number, line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}, line {number} is not UTF-8: save the file as UTF-8.") from error
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"Cannot read the task file {path} ({reason}): check the path.") from error
