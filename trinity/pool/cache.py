"""Answers that were paid for, kept for good: in SQLite, and as JSON Lines for others to replay."""

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from trinity.errors import UserError
from trinity.pool.base import Completion, DecodeParameters, Message, Paid, Pool

CacheMode = Literal["read_write", "replay"]

_BUSY_SECONDS = 60.0
_KEY = re.compile(r"[0-9a-f]{64}")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS completions (
    key TEXT PRIMARY KEY,
    request TEXT NOT NULL,
    completion TEXT NOT NULL,
    run TEXT NOT NULL,
    stored_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
) WITHOUT ROWID
"""
# What was paid for answers that could not be used: nothing to replay, but a part of what a run has spent.
_WASTE_SCHEMA = """
CREATE TABLE IF NOT EXISTS wasted (
    run TEXT NOT NULL,
    usd REAL NOT NULL,
    calls INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    stored_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
)
"""
_COLUMNS = {"key", "request", "completion", "run", "stored_at"}
_KEPT = ("text", "prompt_tokens", "completion_tokens", "cost", "finish_reason", "reasoning", "refusal")


@dataclass(frozen=True)
class CacheSettings:
    """Where answers are kept.

    Args:
        path: an SQLite file, made when there is none. Not on a network drive.
        mode: `read_write`; or `replay`, which answers from the file alone and calls nobody. What it lacks
            ends the run.
    """

    path: str
    mode: CacheMode = "read_write"


Request = dict[str, Any]


def request_of(
    pool: Pool, agent: int, messages: Sequence[Message], decode: DecodeParameters
) -> tuple[str, Request]:
    """(key, request): all that decides an answer, and the SHA-256 of it."""
    request = {**pool.identity(agent, decode), "messages": [dict(message) for message in messages]}
    return key_of(request), request


def key_of(request: Request) -> str:
    """The key of a request. Raises ValueError for what is no plain JSON."""
    text = json.dumps(request, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


class Store(Protocol):
    """Keeps completions by key."""

    def get(self, key: str) -> Completion | None:
        """What is kept, at no cost and marked as from the cache."""

    def put(self, key: str, request: Request, completion: Completion) -> None:
        """Keep one for good, before anybody uses it."""

    def waste(self, paid: Paid) -> None:
        """Keep what was paid for an answer that could not be used."""


class CompletionCache:
    """Completions in an SQLite file, which several processes may use at a time.

    Each is committed by itself, in write-ahead mode: a process that is killed at any moment loses none that
    `put` returned for and leaves a file that the next one can open. Values are JSON; nothing is pickled.

    Args:
        path: the file.
        run: marks what is stored, so that a resumed run finds what its earlier part spent.
        read_only: never writes, and refuses a file that is not there.

    Raises UserError for a file that can't be opened or is something else.
    """

    def __init__(self, path: str | Path, run: str = "", *, read_only: bool = False) -> None:
        self._path = Path(path)
        self._run = run
        if read_only and not self._path.is_file():
            raise UserError(f"There is no cache {self._path}: check the path.")
        with self._explained("open"):
            if not read_only:
                self._path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None)
            try:
                self._prepare(read_only)
            except BaseException:
                self._database.close()
                raise

    def _prepare(self, read_only: bool) -> None:
        database = self._database
        found = {row[1] for row in database.execute("PRAGMA table_info(completions)")}
        tables = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if (found or tables) and not found >= _COLUMNS:
            raise UserError(f"{self._path} is a database, but no cache of completions: give another path.")
        if read_only:
            database.execute("PRAGMA query_only = ON")
            if not found:
                raise UserError(f"{self._path} is an empty cache: check the path.")
            return
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute(_SCHEMA)
        database.execute(_WASTE_SCHEMA)

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise UserError(
                f"Cannot {what} the cache {self._path} ({error}): make room or check the path; what it holds "
                "is safe, and a run goes on with --ckpt_path."
            ) from None

    def use_run(self, run: str) -> None:
        """What is stored from now on belongs to this run."""
        self._run = run

    def get(self, key: str) -> Completion | None:
        """See `Store.get`. Raises UserError where the file can't be read."""
        with self._explained("read"):
            row = self._database.execute(
                "SELECT completion FROM completions WHERE key = ?", (key,)
            ).fetchone()
            return None if row is None else Completion(**json.loads(row[0])).from_elsewhere("cache")

    def put(self, key: str, request: Request, completion: Completion) -> None:
        """See `Store.put`. The first of equal keys stays. Raises UserError where it can't be written."""
        if completion.finish_reason != "length" and not completion.text.strip() and not completion.refusal:
            return
        kept = {name: value for name, value in asdict(completion).items() if name in _KEPT}
        row = (key, json.dumps(request, sort_keys=True), json.dumps(kept), self._run)
        with self._explained("write"):
            self._insert(row)

    def _insert(self, row: tuple[str, str, str, str]) -> bool:
        done = self._database.execute(
            "INSERT OR IGNORE INTO completions (key, request, completion, run) VALUES (?, ?, ?, ?)", row
        )
        return done.rowcount > 0

    def waste(self, paid: Paid) -> None:
        """See `Store.waste`. Raises UserError where it can't be written."""
        row = (self._run, paid.usd, paid.calls, paid.prompt_tokens, paid.completion_tokens)
        with self._explained("write"):
            self._database.execute(
                "INSERT INTO wasted (run, usd, calls, prompt_tokens, completion_tokens) "
                "VALUES (?, ?, ?, ?, ?)",
                row,
            )

    def spent(self, run: str) -> Paid:
        """What a run paid for: what it stored, and what could not be used."""
        with self._explained("read"):
            rows = self._database.execute("SELECT completion FROM completions WHERE run = ?", (run,))
            stored = [Completion(**json.loads(text)).paid for (text,) in rows]
        return Paid.total([*stored, self.wasted(run)])

    def wasted(self, run: str | None = None) -> Paid:
        """What a run, or all of them, paid for answers that could not be used."""
        with self._explained("read"):
            tables = self._database.execute("SELECT name FROM sqlite_master WHERE name = 'wasted'")
            if not tables.fetchone():  # as in caches of earlier versions
                return Paid()
            rows = self._database.execute(
                "SELECT usd, calls, prompt_tokens, completion_tokens FROM wasted WHERE ? IN (run, '*')",
                ("*" if run is None else run,),
            )
            return Paid.total(Paid(*row) for row in rows)

    def rows(self) -> Iterator[dict[str, Any]]:
        """All rows in the order of their keys: {key, request, completion}."""
        with self._explained("read"):
            for key, request, completion in self._database.execute(
                "SELECT key, request, completion FROM completions ORDER BY key"
            ):
                yield {"key": key, "request": json.loads(request), "completion": json.loads(completion)}

    def add(self, rows: Iterator[tuple[str, dict[str, Any]]]) -> tuple[int, int]:
        """Import (place, row) pairs, all or none; (added, already there).

        Raises UserError for a row whose key is not that of its request, or that holds no completion.
        """
        added = known = 0
        with self._explained("write"), self._transaction():
            for where, row in rows:
                key, request, completion = checked(where, row)
                if self._insert((key, json.dumps(request, sort_keys=True), json.dumps(completion), "")):
                    added += 1
                else:
                    known += 1
        return added, known

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    def prune(self, model: str | None = None, before: str | None = None) -> int:
        """Remove the rows of a model, or those stored before a date (YYYY-MM-DD), or those that are both."""
        conditions, values = ["1"], []
        if model is not None:
            conditions.append("json_extract(request, '$.model') = ?")
            values.append(model)
        if before is not None:
            conditions.append("stored_at < ?")
            values.append(before)
        where = " AND ".join(conditions)
        with self._explained("write"):
            removed = self._database.execute(f"DELETE FROM completions WHERE {where}", values).rowcount  # noqa: S608
            self._database.execute("VACUUM")
        return removed

    def statistics(self) -> list[dict[str, Any]]:
        """By model: rows, tokens, dollars, and how many answers were cut by their limit."""
        select = """
            SELECT json_extract(request, '$.model'), count(*),
                   sum(json_extract(completion, '$.prompt_tokens')),
                   sum(json_extract(completion, '$.completion_tokens')),
                   sum(json_extract(completion, '$.cost')),
                   sum(json_extract(completion, '$.finish_reason') = 'length')
            FROM completions GROUP BY 1 ORDER BY 1
        """
        names = ("model", "answers", "prompt_tokens", "completion_tokens", "usd", "cut_by_length")
        with self._explained("read"):
            return [dict(zip(names, row, strict=True)) for row in self._database.execute(select)]

    def close(self) -> None:
        """Close the file."""
        with closing(self._database):
            pass


def checked(where: str, row: dict[str, Any]) -> tuple[str, Request, dict[str, Any]]:
    """(key, request, completion) of an exported row.

    Raises UserError if it is none: a key that is not its request's would answer another request.
    """
    request, kept = row.get("request"), row.get("completion")
    if not (isinstance(request, dict) and isinstance(kept, dict) and _is_completion(kept)):
        raise UserError(
            f'{where} is no exported completion: it needs "request" and "completion" as trinity-cache export '
            "writes them."
        )
    if "messages" not in request and _KEY.fullmatch(str(row.get("key"))):
        return str(row["key"]), request, _kept(kept)  # taken at its word
    key = key_of(request)
    if row.get("key", key) != key:
        raise UserError(f"{where}: the key is not that of its request; export it anew, or drop the key.")
    return key, request, _kept(kept)


def _kept(kept: dict[str, Any]) -> dict[str, Any]:
    """The fields of a completion; exports of earlier versions have no `refusal`."""
    return {name: kept.get(name, "") for name in _KEPT}


def _is_completion(kept: dict[str, Any]) -> bool:
    texts = all(isinstance(kept.get(name, ""), str) for name in ("text", "reasoning", "refusal"))
    texts = texts and kept.keys() >= {"text", "reasoning"}
    numbers = [kept.get(name) for name in ("prompt_tokens", "completion_tokens", "cost")]
    amounts = all(isinstance(n, int | float) and not isinstance(n, bool) and n >= 0 for n in numbers)
    return texts and amounts and kept.get("finish_reason") in ("stop", "length", "refused")
