"""`trinity-cache`: look at, share, and thin out the answers that runs have paid for."""

import gzip
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser
from rich.console import Console
from rich.table import Table

from trinity.errors import UserError
from trinity.pool.cache import CompletionCache
from trinity.tasks.jsonl import read_rows

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def _stats(options: Any) -> None:
    cache = CompletionCache(options.cache, read_only=True)
    statistics, wasted = cache.statistics(), cache.wasted()
    cache.close()
    if options.json:
        print(json.dumps(statistics))
        return
    table = Table("model", "answers", "prompt tokens", "completion tokens", "usd", "cut by length")
    for row in statistics:
        numbers = [f"{row[name]:,}" for name in ("answers", "prompt_tokens", "completion_tokens")]
        table.add_row(str(row["model"]), *numbers, f"{row['usd']:.4f}", str(row["cut_by_length"]))
    console = Console(markup=False, highlight=False, soft_wrap=True)
    console.print(table)
    if wasted.calls:
        console.print(f"{wasted.calls:,} answers that could not be used cost {wasted.usd:.4f} usd more.")


def _export(options: Any) -> None:
    target = Path(options.file)
    if target.exists():
        raise UserError(f"{target} exists already: give another file, or remove it.")
    cache = CompletionCache(options.cache, read_only=True)
    part = target.with_name(target.name + ".part")
    count = 0
    try:
        with gzip.open(part, "wt") if target.suffix == ".gz" else part.open("w") as file:
            for row in cache.rows():
                if options.without_messages:
                    row["request"].pop("messages", None)
                file.write(json.dumps(row) + "\n")
                count += 1
        part.replace(target)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise UserError(f"Cannot write {target} ({error.strerror}): make room or check the path.") from None
    finally:
        cache.close()
    print(f"{count} answers written to {target}")


def _import(options: Any) -> None:
    def rows() -> Iterator[tuple[str, dict[str, Any]]]:
        for row in read_rows(options.file):
            yield row.where, row.values

    cache = CompletionCache(options.cache)
    try:
        added, known = cache.add(rows())
    finally:
        cache.close()
    print(f"{added} answers added to {options.cache}, {known} were there already")


def _prune(options: Any) -> None:
    if options.model is None and options.before is None:
        raise UserError("trinity-cache prune removes nothing without --model or --before: give one of them.")
    if options.before is not None and not _DATE.fullmatch(options.before):
        raise UserError(f"--before is {options.before!r}: give a date as YYYY-MM-DD.")
    if not Path(options.cache).is_file():
        raise UserError(f"There is no cache {options.cache}: check the path.")
    cache = CompletionCache(options.cache)
    removed = cache.prune(options.model, options.before)
    cache.close()
    print(f"{removed} answers removed from {options.cache}")


_COMMANDS = {"stats": _stats, "export": _export, "import": _import, "prune": _prune}


def _parser() -> ArgumentParser:
    def command(about: str, *, file: bool = False) -> ArgumentParser:
        parser = ArgumentParser(description=about)
        parser.add_argument("cache", type=str, help="The cache, an SQLite file.")
        if file:
            parser.add_argument("file", type=str, help="JSON Lines; gzip if the name ends in .gz.")
        return parser

    parser = ArgumentParser(prog="trinity-cache", description=__doc__)
    commands = parser.add_subcommands(dest="command")
    stats = command("Answers, tokens and dollars, by model.")
    stats.add_argument("--json", action="store_true", help="A list of objects on standard output.")
    commands.add_subcommand("stats", stats)
    export = command("Write all answers, for others to replay.", file=True)
    export.add_argument(
        "--without_messages", action="store_true", help="Leave out what was asked; keys are enough to replay."
    )
    commands.add_subcommand("export", export)
    commands.add_subcommand("import", command("Take in answers that somebody exported.", file=True))
    prune = command("Remove answers of a model, or older than a date.")
    prune.add_argument("--model", type=str | None, default=None, help="The model, as stats shows it.")
    prune.add_argument("--before", type=str | None, default=None, help="Stored before this date, YYYY-MM-DD.")
    commands.add_subcommand("prune", prune)
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """`trinity-cache`."""
    options = _parser().parse_args(list(sys.argv[1:] if argv is None else argv))
    try:
        _COMMANDS[options.command](options[options.command])
    except UserError as error:
        print(f"trinity-cache: {error}", file=sys.stderr)
        sys.exit(2)
