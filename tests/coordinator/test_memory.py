"""Freed memory stays with the process."""

import ctypes
import subprocess
import sys

import pytest

from trinity.coordinator.memory import keep_freed_memory

# Counts page faults of tensors made and dropped again.
SCRIPT = """
import resource, torch
from trinity.coordinator.memory import keep_freed_memory
keep_freed_memory()
def churn(times):
    for _ in range(times):
        tensors = [torch.ones(2**20) for _ in range(4)]
        del tensors
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
churn(10)
before = faults()
churn(20)
print(faults() - before)
"""


class Library:
    """A C library that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[int, int]] = []

    def mallopt(self, parameter: int, value: int) -> int:
        self.told.append((parameter, value))
        return 1


class Glibc(Library):
    gnu_get_libc_version = "2.36"


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator only")


@linux
def test_freed_memory_is_not_faulted_in_again() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True)
    assert int(done.stdout) < 1000, "each of 20 rounds faults 4,096 pages in where they are given back"


@linux
@pytest.mark.parametrize(("library", "calls"), [(Glibc(), 3), (Library(), 0)])
def test_only_glibc_is_told(monkeypatch: pytest.MonkeyPatch, library: Library, calls: int) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    keep_freed_memory()
    assert len(library.told) == calls
