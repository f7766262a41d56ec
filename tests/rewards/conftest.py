import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from trinity.rewards.rewards import Rewards

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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`math_case` and `choice_case` run over the shared bank of grader failures."""
    for kind in ("math", "choice"):
        if f"{kind}_case" in metafunc.fixturenames:
            rows = [json.loads(line) for line in (CASES / f"{kind}.jsonl").read_text().splitlines()]
            metafunc.parametrize(f"{kind}_case", rows, ids=[row["id"] for row in rows])
