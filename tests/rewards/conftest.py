import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from trinity.errors import UserError
from trinity.rewards.code import CodeGrader
from trinity.rewards.launcher import Launcher
from trinity.rewards.rewards import Rewards
from trinity.rewards.sandbox import Limits

CASES = Path(__file__).parents[1] / "data" / "reward_cases"


@dataclass(frozen=True)
class Question:
    grader: str
    reference: str
    letters: str = "ABCD"


@pytest.fixture
def question():
    return Question


@pytest.fixture(scope="session")
def rewards():
    with Rewards() as rewards:
        yield rewards


SMALL = Limits(cpu_seconds=1, wall_seconds=2, memory_mb=1024, output_mb=4)


@pytest.fixture(scope="session")
def bubblewrap():
    """The launcher of real sandboxes; tests that need it are skipped where none starts."""
    launcher = Launcher("bubblewrap", SMALL)
    try:
        launcher.probe()
    except UserError as error:
        pytest.skip(str(error))
    return launcher


@pytest.fixture(scope="session")
def grader(bubblewrap):
    grader = CodeGrader(2, SMALL)
    yield grader
    grader.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`math_case`, `choice_case` and `code_case` run over the shared bank of grader failures."""
    for kind in ("math", "choice", "code"):
        if f"{kind}_case" in metafunc.fixturenames:
            rows = [json.loads(line) for line in (CASES / f"{kind}.jsonl").read_text().splitlines()]
            metafunc.parametrize(f"{kind}_case", rows, ids=[row["id"] for row in rows])
