from collections.abc import Callable
from pathlib import Path

import pytest

from trinity.errors import UserError
from trinity.tasks import math500
from trinity.tasks.jsonl import Row
from trinity.tasks.math500 import Math500Tasks


def test_the_benchmark_file(shared_data: Path) -> None:
    splits = Math500Tasks(str(shared_data / "math500.jsonl")).load()
    tasks = splits.train + splits.validation + splits.test
    assert len(tasks) == 500
    assert len({task.domain for task in tasks}) == 7
    assert len(splits.test) == pytest.approx(250, abs=40)
    first = next(task for task in tasks if task.id == "math500-000")
    assert first.query.startswith("Convert the point $(0,3)$")
    assert first.reference == r"\left( 3, \frac{\pi}{2} \right)"
    assert (first.domain, first.grader, first.answer_format) == ("Precalculus", "math", "boxed")


def test_hub_rows_get_the_file_s_ids_and_splits(
    monkeypatch: pytest.MonkeyPatch, write_rows: Callable[..., str]
) -> None:
    def values(i: int) -> dict[str, str]:
        return {"problem": f"{i} + 1?", "answer": str(i + 1), "subject": "Algebra"}

    asked = []

    def hub_rows(*key: str | None) -> list[Row]:
        asked.append(key)
        return [Row({**values(i), "unique_id": f"test/algebra/{i}.json"}, f"row {i}") for i in range(20)]

    monkeypatch.setattr(math500, "hub_rows", hub_rows)
    path = write_rows("m.jsonl", [{"id": f"math500-{i:03d}", **values(i)} for i in range(20)])
    assert Math500Tasks(test=8, validation=4).load() == Math500Tasks(path, test=8, validation=4).load()
    assert asked == [("HuggingFaceH4/MATH-500", None, "test")]


def test_a_problem_without_an_answer_is_named(write_rows: Callable[..., str]) -> None:
    path = write_rows("m.jsonl", [{"id": "a", "problem": "q", "subject": "Algebra", "answer": ""}])
    with pytest.raises(UserError, match=r"m\.jsonl, line 1 \(id 'a'\): \"answer\" is"):
        Math500Tasks(path).load()
