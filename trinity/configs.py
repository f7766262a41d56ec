"""Config files: found by path or by name, and put together where one extends others."""

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import yaml

from trinity.errors import UserError

_EXTENDS = re.compile(r"^extends:(.*)\n?", re.MULTILINE)
_SUFFIX = ".yaml"
_FLAGS = ("--config", "-c")


@dataclass(frozen=True, slots=True)
class Config:
    """What one config file says itself, without what it extends.

    Args:
        path: the file.
        text: what it says, without a byte order mark and without its line `extends: [...]`.
        whole: whether that is all of the file as it lies there, so that the file can stand for it.
    """

    path: Path
    text: str
    whole: bool

    def values(self) -> dict[str, Any]:
        """Its options, as YAML reads them. Raises UserError for what is no YAML, or no options."""
        try:
            values = yaml.safe_load(self.text)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            where = f", line {mark.line + 1}" if mark is not None and self.whole else ""
            problem = getattr(error, "problem", None) or "it cannot be read"
            raise UserError(f"The config {self.path}{where} is no YAML ({problem}); correct it.") from None
        if values is None:
            return {}
        if not isinstance(values, dict):
            start = self.text.strip()[:40]
            raise UserError(
                f"The config {self.path} holds {start!r}, but it takes lines such as `name: mine`."
            )
        return values


def shipped_folder() -> Path:
    """Where the package's own configs are: inside it where it was installed from a wheel (see setup.py),
    beside it in a checkout."""
    inside = Path(__file__).parent / "shipped_configs"
    return inside if inside.is_dir() else Path(__file__).parent.parent / "configs"


def shipped_names() -> list[str]:
    """What the package's own configs are called: `quickstart`, `presets/spec`, ..."""
    folder = shipped_folder()
    return sorted(p.relative_to(folder).with_suffix("").as_posix() for p in folder.rglob(f"*{_SUFFIX}"))


def find_config(name: str) -> Path:
    """The config of a name: a file here, with or without .yaml, else the shipped one.

    `configs/quickstart.yaml` names the shipped one, too, as it is called in a checkout.

    Raises UserError where there is none; it lists near names.
    """
    found = _find(name, Path())
    if found is None:
        raise UserError(
            f"There is no config {name[:60]!r}, neither in this folder nor among the shipped ones; "
            f"{_near(name)}."
        )
    return found


def expand(argv: Sequence[str]) -> list[str | Config]:
    """Put Configs in the place of `--config NAME` (`-c NAME`): those that it extends, then itself.

    A file whose line `extends: [a.yaml, b]` names others stands for these in their order and then for itself;
    later ones win, as on the command line. The names are looked up in the file's own folder, then among the
    shipped ones. What is no name at all, a text of options or the address of a config, is left as it is.

    Raises UserError for a config that doesn't exist or can't be read, for files that extend each other in a
    circle, and for a line that holds no list of names.
    """
    expanded: list[str | Config] = []
    arguments = iter(argv)
    for argument in arguments:
        flag, joined, value = argument.partition("=")
        if flag not in _FLAGS:
            expanded.append(argument)
            continue
        value = value if joined else next(arguments, "")
        if not value or value.startswith("--"):
            raise UserError(f"{flag} needs the name of a config, such as {flag} quickstart; give one.")
        if _is_no_name(value):
            expanded += ["--config", value]
        else:
            expanded += _parts(find_config(value), ())
    return expanded


def as_arguments(parts: Sequence[str | Config], folder: Path) -> list[str]:
    """Expanded arguments for a parser, which takes files: what is no whole file is written to the folder."""
    arguments: list[str] = []
    for number, part in enumerate(parts):
        if isinstance(part, str):
            arguments.append(part)
            continue
        path = part.path
        empty = not part.values()  # which a parser takes as an empty mapping only
        if empty or not part.whole:
            path = folder / f"{number}-{path.name}"
            path.write_text("{}\n" if empty else part.text, encoding="utf-8")
        arguments += ["--config", str(path)]
    return arguments


def _is_no_name(value: str) -> bool:
    if "://" in value:
        return True
    try:
        return isinstance(yaml.safe_load(value), dict)
    except yaml.YAMLError:
        return "\n" in value


def _find(name: str, folder: Path) -> Path | None:
    """A file of the name in the folder, else the shipped one."""
    for path in (folder / name, folder / (name + _SUFFIX)):
        if _is_readable(path):
            return path
    parts = PurePath(name).parts
    if PurePath(name).is_absolute() or ".." in parts:
        return None
    inside = PurePath(*(parts[1:] if parts[:1] == ("configs",) else parts)).as_posix()
    for path in (shipped_folder() / inside, shipped_folder() / (inside + _SUFFIX)):
        if _is_readable(path):
            return path
    return None


def _is_readable(path: Path) -> bool:
    try:
        return path.exists() and not path.is_dir()  # also a pipe
    except OSError:  # a name that no file can have
        return False


def _near(name: str) -> str:
    wanted = name.removesuffix(_SUFFIX)
    known = [*shipped_names(), *(path.stem for path in sorted(Path().glob(f"*{_SUFFIX}")))]
    by_last = {PurePath(one).name: one for one in reversed(known)}
    found = difflib.get_close_matches(wanted, known, 3) or [
        by_last[last] for last in difflib.get_close_matches(PurePath(wanted).name, by_last, 3)
    ]
    if found:
        return f"near names: {', '.join(found)}"
    return f"the shipped ones are {', '.join(name for name in shipped_names() if '/' not in name)}"


def _parts(path: Path, above: tuple[Path, ...]) -> Iterator[Config]:
    if path.resolve() in above:
        raise UserError(f"The config {path} extends itself, by way of {above[-1].name}; break the circle.")
    text, whole = _read(path)
    found = _EXTENDS.search(text)
    if found is None:
        yield Config(path, text, whole)
        return
    for name in _names(found.group(1), path):
        base = _find(name, path.parent)
        if base is None:
            raise UserError(
                f"The config {path} extends {name!r}, but there is no file {path.parent / name}, and no "
                f"shipped config of that name; {_near(name)}."
            )
        yield from _parts(base, (*above, path.resolve()))
    yield Config(path, _EXTENDS.sub("", text, count=1), whole=False)


def _read(path: Path) -> tuple[str, bool]:
    """The file's text without a byte order mark, and whether that is the file as it lies there."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"The config {path} is not UTF-8: save it as UTF-8.") from None
    except OSError as error:
        raise UserError(f"Cannot read the config {path} ({error.strerror}): check the path.") from None
    bare = text.removeprefix("\ufeff")
    return bare, bare == text and path.is_file()


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
