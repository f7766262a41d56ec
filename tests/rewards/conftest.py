import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from trinity.errors import UserError
from trinity.rewards.code import CodeGrader
from trinity.rewards.launcher import Launcher
from trinity.rewards.rewards import Rewards
from trinity.rewards.sandbox import Limits

DATA = Path(__file__).parents[1] / "data"


@dataclass(frozen=True)
class Question:
    grader: str
    reference: str
    letters: str = "ABCD"
    options: tuple[str, ...] = ()
    query: str = ""


@pytest.fixture(scope="session")
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
    """`math_case`, `choice_case`, `code_case` and `verdict_case` run over the shared bank of grader failures.

    Math and choice have more rows of the same kinds in own_cases; there a choice names the right letter.
    """
    for kind in ("math", "choice", "code", "verdict"):
        if f"{kind}_case" in metafunc.fixturenames:
            files = (DATA / folder / f"{kind}.jsonl" for folder in ("reward_cases", "own_cases"))
            lines = [line for file in files if file.exists() for line in file.read_text().splitlines()]
            rows = [json.loads(line) for line in lines]
            metafunc.parametrize(f"{kind}_case", rows, ids=[row["id"] for row in rows])
