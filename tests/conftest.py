"""What tests of several rooms share."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trinity.coordinator.slm import RandomShape, SLMConfig
from trinity.data import TaskDataModule
from trinity.module import CoordinatorModule
from trinity.pool.simulated import SimulatedAgent, SimulatedPool
from trinity.tasks.synthetic import SyntheticTasks

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of benchmark files beside the checkout; tests that need it are skipped without it."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no benchmark files at {folder}")
    return folder


def simulated_pool() -> SimulatedPool:
    """Two agents, each with a domain of its own."""
    skills = [{"math": 0.9, "choice": 0.1}, {"math": 0.1, "choice": 0.9}]
    return SimulatedPool([SimulatedAgent(f"agent-{i}", skill) for i, skill in enumerate(skills)])


@pytest.fixture
def data() -> TaskDataModule:
    """A few synthetic tasks, three a minibatch."""
    return TaskDataModule(SyntheticTasks(train=12, validation=3, test=6), minibatch=3)


@pytest.fixture
def make_module(tmp_path: Path) -> Iterator[Callable[..., CoordinatorModule]]:
    """Makes small modules, and closes them when the test is over."""
    made: list[CoordinatorModule] = []

    def make(**options: Any) -> CoordinatorModule:
        slm = SLMConfig(
            device="cpu", cache_dir=str(tmp_path), random=RandomShape(hidden_size=32, layers=2, heads=2)
        )
        made.append(
            CoordinatorModule(**{"pool": simulated_pool(), "slm": slm, "torch_threads": 1, **options})
        )
        return made[-1]

    yield make
    for module in made:
        module.close()
