"""Plain values as JSON and back: what crosses the wall of the sandbox, and nothing else.

None, booleans, text, and integers of up to 64 bits are themselves; every other value is a JSON list that
starts with its tag:

    ["int", hex]  ["float", hex]  ["complex", float, float]  ["bytes", hex]
    ["list", item, ...]  ["tuple", ...]  ["set", ...]  ["frozenset", ...]  ["dict", key, value, ...]

Instances of subclasses cross as the plain value below them, so no method of theirs does.
"""

from collections.abc import Callable, Iterable
from typing import Any

_SMALL = 2**63
_MAX_HASHED = 10_000  # entries of a set or dict: more can be made to collide, for minutes


def encode(value: object) -> Any:
    """The JSON tree of a value. Raises TypeError for a value that is not plain."""
    if value is None or value is True or value is False:
        return value
    if type(value).__module__ == "numpy" and hasattr(value, "dtype") and not getattr(value, "shape", True):
        value = value.item()  # type: ignore[attr-defined]
    if isinstance(value, bool | str):
        return bool(value) if isinstance(value, bool) else str.__str__(value)
    if isinstance(value, int):
        number = int.__index__(value)
        return number if -_SMALL < number < _SMALL else ["int", hex(number)]
    if isinstance(value, float):
        return ["float", float.hex(value)]
    if isinstance(value, complex):
        return ["complex", encode(value.real), encode(value.imag)]
    if isinstance(value, bytes | bytearray):
        return ["bytes", bytes(value).hex()]
    if isinstance(value, dict):
        return ["dict", *(encode(part) for item in dict.items(value) for part in item)]
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            return [kind.__name__, *map(encode, kind.__iter__(value))]  # type: ignore[arg-type]
    raise TypeError(f"a value of type {type(value).__name__} is not plain")


def decode(tree: Any) -> Any:
    """The value of a tree. Raises ValueError for anything that `encode` does not write."""
    if tree is None or isinstance(tree, bool | int | str):
        return tree
    if not isinstance(tree, list) or not tree:
        raise ValueError("not the tree of a plain value")
    tag, *items = tree
    if tag in ("int", "float", "bytes"):
        if len(items) != 1 or not isinstance(items[0], str):
            raise ValueError(f"no {tag}")
        return int(items[0], 16) if tag == "int" else _SCALARS[tag](items[0])
    values = [decode(item) for item in items]
    if tag == "complex":
        if len(values) != 2 or not all(isinstance(part, float) for part in values):
            raise ValueError("no complex number")
        return complex(*values)
    if tag in ("set", "frozenset", "dict") and len(values) > _MAX_HASHED:
        raise ValueError(f"a {tag} with more than {_MAX_HASHED} entries")
    try:
        if tag == "dict":
            return dict(zip(values[::2], values[1::2], strict=True))
        return _CONTAINERS[tag](values)
    except (TypeError, KeyError) as error:
        raise ValueError(f"no {tag}") from error


_SCALARS: dict[str, Callable[[str], object]] = {"float": float.fromhex, "bytes": bytes.fromhex}
_CONTAINERS: dict[str, Callable[[Iterable[object]], object]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
}
