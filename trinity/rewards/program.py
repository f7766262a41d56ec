"""An LLM's output -> the program it hands in."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from trinity.rewards.extraction import without_thinking

_OPENING = re.compile(r"([^`~]*)(`{3,}|~{3,})[ \t]*([\w+#.-]*)[^`~\n]*$")
_PYTHON = ("python", "py", "python3", "py3")
_CODE = re.compile(
    r"(?m)^[ \t]*(?:(?:def|class|import|from|for|while|if|with|try|return|assert)\b|@|print\s*\("
    r"|[\w.,\[\] ]+[-+*/%|&^]?=(?!=)|[\w.]+\()"
)


@dataclass(frozen=True, slots=True)
class Fence:
    """A fenced block: its label in lower case, what stands in it, and whether it was closed."""

    label: str
    code: str
    closed: bool


def extract_program(output: str, names: Iterable[str] = ()) -> str | None:
    """The program of a whole output, None where there is none.

    That is the last closed Python fence; but of several, the last that defines one of `names`, since a
    program is often followed by an example of its use. Else an unclosed Python fence, else the last fence
    without a label that looks like code (examples of output stand in such fences, too), else the output
    itself if it has no fence at all.
    """
    text = without_thinking(output)
    all_fences = read_fences(text)
    fences = [fence for fence in all_fences if fence.code.strip()]
    python = [fence for fence in fences if fence.label in _PYTHON]
    bare = [fence for fence in fences if not fence.label]
    for choice in (
        [fence for fence in python if fence.closed],
        python,
        [fence for fence in bare if _CODE.search(fence.code)],
        bare,
    ):
        if choice:
            defining = [fence for fence in choice if any(defines(fence.code, name) for name in names)]
            return (defining or choice)[-1].code
    return None if all_fences or not text.strip() else text.strip("\n")


def defines(program: str, name: str) -> bool:
    """Whether a function or class of this name is defined, at any depth."""
    return (
        re.search(rf"(?m)^[ \t]*(?:async[ \t]+)?(?:def|class)[ \t]+{re.escape(name)}\b", program) is not None
    )


def read_fences(text: str) -> list[Fence]:
    """All fenced blocks in order. A labelled opening inside a block means that the block was never closed.

    Blocks lose the indentation of their fence.
    """
    fences: list[Fence] = []
    opened: tuple[str, str, str] | None = None  # indentation, marker, label
    lines: list[str] = []
    for line in text.replace("\r\n", "\n").split("\n"):
        found = _OPENING.match(line)
        if opened and line.strip().startswith(opened[1]) and not line.strip().strip(opened[1][0]):
            fences.append(Fence(opened[2], "\n".join(lines), closed=True))
            opened = None
        elif found and (found[3].lower() in _PYTHON or not (opened or found[1].strip())):
            opened, lines = (found[1] if found[1].isspace() else "", found[2], found[3].lower()), []
        elif opened:
            lines.append(line.removeprefix(opened[0]))
    if opened:
        fences.append(Fence(opened[2], "\n".join(lines), closed=False))
    return fences
