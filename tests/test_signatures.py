"""What classes take, as their source says; compared with what Python itself says."""

import inspect
import sys
from pathlib import Path

import pytest

from trinity.optimizers.sep_cma import SepCMAES
from trinity.pool.litellm_pool import LiteLLMPool
from trinity.settings import Extraction
from trinity.signatures import Parameter, Signatures
from trinity.tasks.local import JsonLinesTasks

SOURCE = """
import abc
import dataclasses
import functools
from abc import ABC
from dataclasses import dataclass
from typing import Generic, TypeVar

from .inner.deep import Settings as Renamed
from .inner import Again
from elsewhere_entirely import Unknown

T = TypeVar("T")

class Plain:
    def __init__(self, a, /, b: int, *rest, c: Renamed | None = None) -> None: ...
    def method(self, x, y=1): ...

class Empty(ABC): ...
class Inherits(Plain): "No constructor of its own."
class OfGeneric(abc.ABC, Generic[T]): ...
class Open(Plain):
    def __init__(self, d, **kwargs): ...
class InheritsOpen(Open): ...
class Several(Plain, Empty, Open): ...
class OfUnknown(Unknown): ...
class Circle(Circle): ...
class Made:
    def __new__(cls, a): ...
class Meta(metaclass=functools.partial): ...
@functools.total_ordering
class Decorated: ...

@dataclass(frozen=True)
class Base:
    first: int
@dataclasses.dataclass
class Fields(Base):
    second: "Renamed" = None
    def method(self): ...

def function(a): ...
Alias = Plain
if T:
    class Twice: ...
else:
    class Twice:
        def __init__(self, a): ...
try:
    from .inner.deep import Settings as Tried
except ImportError:
    Tried = None
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package that ends the test when it is imported."""
    folder = tmp_path / "read_not_run"
    (folder / "inner").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise SystemExit('imported')\n")
    (folder / "things.py").write_text(SOURCE)
    (folder / "inner" / "__init__.py").write_text("from .deep import Settings as Again\n")
    (folder / "inner" / "deep.py").write_text(
        "from dataclasses import dataclass\n@dataclass\nclass Settings:\n    depth: int = 1\n"
    )
    (folder / "broken.py").write_text("class Broken(:\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return "read_not_run.things"


def names(path: str) -> list[str] | None:
    found = Signatures().parameters(path)
    return None if found is None else list(found)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("Plain", ["a", "b", "c"]),
        ("Empty", []),
        ("Inherits", ["a", "b", "c"]),
        ("OfGeneric", []),
        ("Base", ["first"]),
        ("Fields", ["first", "second"]),
        ("Renamed", ["depth"]),
        ("Again", ["depth"]),
    ],
)
def test_what_the_source_says(package: str, name: str, wanted: list[str]) -> None:
    assert names(f"{package}.{name}") == wanted
    assert package not in sys.modules


@pytest.mark.parametrize(
    "name",
    ["Open", "InheritsOpen", "Several", "OfUnknown", "Circle", "Made", "Meta"],
)
def test_what_a_class_takes_otherwise_is_not_guessed(package: str, name: str) -> None:
    assert names(f"{package}.{name}") is None


@pytest.mark.parametrize("name", ["Decorated", "function", "Alias", "Twice", "Tried", "Gone", "T"])
def test_what_the_source_leaves_open_is_not_guessed(package: str, name: str) -> None:
    assert names(f"{package}.{name}") is None


@pytest.mark.parametrize(
    "path",
    ["", "Plain", "read_not_run.broken.Broken", "read_not_run.none.X", "no_such_package.X", "a..b", "x y"],
)
def test_paths_that_lead_nowhere(package: str, path: str) -> None:
    assert Signatures().parameters(path) is None


def test_fields_of_a_dataclass_or_none(package: str) -> None:
    signatures = Signatures()
    c = (signatures.parameters(f"{package}.Plain") or {})["c"]
    assert set(signatures.fields(c) or ()) == {"depth"}
    b = (signatures.parameters(f"{package}.Plain") or {})["b"]
    assert signatures.fields(b) is None
    assert signatures.fields(Parameter(None, package)) is None


def test_methods(package: str) -> None:
    assert list(Signatures().method(f"{package}.Plain", "method") or ()) == ["x", "y"]
    assert Signatures().method(f"{package}.Plain", "other") is None


@pytest.mark.parametrize("cls", [SepCMAES, LiteLLMPool, JsonLinesTasks, Extraction])
def test_the_package_s_own_classes_are_read_as_python_reads_them(cls: type) -> None:
    assert names(f"{cls.__module__}.{cls.__name__}") == list(inspect.signature(cls).parameters)
