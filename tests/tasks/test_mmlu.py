from collections.abc import Callable
from pathlib import Path

import pytest

from trinity.errors import UserError
from trinity.tasks import mmlu
from trinity.tasks.jsonl import Row
from trinity.tasks.mmlu import MMLUTasks

ROW = {
    "subject": "physics",
    "question": "How many?",
    "choices": ["one", "two", "three", "four"],
    "answer": "B",
}


def test_the_benchmark_file(shared_data: Path) -> None:
    splits = MMLUTasks(str(shared_data / "mmlu_test_sample.jsonl.gz"), test=500).load()
    tasks = splits.train + splits.validation + splits.test
    assert len(tasks) == 2000
    assert len({task.domain for task in tasks}) == 57
    assert len(splits.test) == 500
    assert {task.reference for task in tasks} == set("ABCD")


def test_a_row_becomes_a_question_with_its_options(write_rows: Callable[..., str]) -> None:
    splits = MMLUTasks(write_rows("m.jsonl", [ROW | {"id": f"q{i}"} for i in range(9)]), test=3).load()
    task = splits.test[0]
    assert task.query == "How many?\n\nA) one\nB) two\nC) three\nD) four"
    assert (task.domain, task.reference, task.grader) == ("physics", "B", "choice")
    assert task.options == ("one", "two", "three", "four")


def test_hub_rows_have_numbers_for_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def hub_rows(*key: str | None) -> list[Row]:
        asked.append(key)
        return [Row(ROW | {"answer": i % 4}, f"row {i}") for i in range(8)]

    monkeypatch.setattr(mmlu, "hub_rows", hub_rows)
    splits = MMLUTasks(test=2, validation=2).load()
    tasks = {task.id: task for task in splits.train + splits.validation + splits.test}
    assert [tasks[f"mmlu-{i:05d}"].reference for i in range(8)] == list("ABCDABCD")
    assert asked == [("cais/mmlu", "all", "test")]


@pytest.mark.parametrize(
    "change", [{"answer": "E"}, {"answer": 4}, {"choices": ["a", "b"]}, {"choices": "abcd"}]
)
def test_unusable_rows_are_named(change: dict[str, object], write_rows: Callable[..., str]) -> None:
    with pytest.raises(UserError, match=r"line 1.*(give four choices|as a list)"):
        MMLUTasks(write_rows("m.jsonl", [ROW | change])).load()
