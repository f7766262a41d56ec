"""One parsed mathematical answer."""

from dataclasses import dataclass
from typing import Literal

from trinity.rewards.number import Number

Kind = Literal[
    "number", "expression", "equation", "relation", "tuple", "union", "set", "list", "matrix",
    "ratio", "time", "base", "text",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Value:
    r"""One parsed answer.

    `text` is its tidied source (brackets for a tuple), `items` its parts. `condition` is what it says of its
    variables, behind the value: the x > 0 of `y = 2x, x > 0`.
    """

    kind: Kind
    text: str
    number: Number | None = None
    items: tuple["Value", ...] = ()
    unit: str | None = None
    condition: "Value | None" = None
