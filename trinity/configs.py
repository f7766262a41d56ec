"""Config files that extend others: one runnable file an experiment, without copies."""

import re
from collections.abc import Sequence
from pathlib import Path

import yaml

from trinity.errors import UserError

_EXTENDS = re.compile(r"^extends:(.*)\n?", re.MULTILINE)


def expand(argv: Sequence[str]) -> list[str]:
    """Put what a config file extends before it: `--config FILE` becomes one `--config` for each part.

    A file whose line `extends: [a.yaml, b.yaml]` names others, relative to its own folder, stands for these
    in their order and then for itself; later ones win, as on the command line.

    Raises UserError for a file named there that doesn't exist, for files that extend each other in a circle,
    and for a line that holds no list of names.
    """
    expanded: list[str] = []
    arguments = iter(argv)
    for argument in arguments:
        name, joined, value = argument.partition("=")
        if name != "--config":
            expanded.append(argument)
            continue
        value = value if joined else next(arguments, "")
        if not Path(value).is_file():  # the parser's own message says what is wrong with it
            expanded += [name, value] if value else [name]
            continue
        for part in _parts(Path(value), ()):
            expanded += ["--config", part]
    return expanded


def _parts(path: Path, above: tuple[Path, ...]) -> list[str]:
    """Names of files, and the text of those that extend others."""
    if path.resolve() in above:
        raise UserError(f"The config {path} extends itself, by way of {above[-1].name}; break the circle.")
    text = path.read_text(errors="replace")  # what is no text is the parser's to refuse
    found = _EXTENDS.search(text)
    if found is None:
        return [str(path)]
    parts: list[str] = []
    for name in _names(found.group(1), path):
        base = path.parent / name
        if not base.is_file():
            raise UserError(f"The config {path} extends {name!r}, but there is no file {base}; correct it.")
        parts += _parts(base, (*above, path.resolve()))
    return [*parts, _EXTENDS.sub("", text, count=1)]


def _names(text: str, path: Path) -> list[str]:
    try:
        names = yaml.safe_load(text)
    except yaml.YAMLError:
        names = None
    if not (isinstance(names, list) and names and all(isinstance(name, str) for name in names)):
        raise UserError(
            f"The config {path} has `extends:{text}`, but it takes a list on one line, such as "
            "[base.yaml, overlay.yaml]."
        )
    return names
