from collections import Counter
from pathlib import Path

import pytest

from trinity.errors import UserError
from trinity.tasks.recorded import RecordedTasks
from trinity.tasks.task import Task, TaskSplits


def everything(splits: TaskSplits) -> list[Task]:
    return splits.train + splits.validation + splits.test


def test_the_three_sets(shared_data: Path) -> None:
    splits = RecordedTasks(str(shared_data / "recorded_outcomes")).load()
    counts = Counter((task.domain, task.grader, task.answer_format) for task in everything(splits))
    assert counts == {
        ("gsm", "json_number", "json"): 1319,
        ("math-l5", "json_math", "json"): 721,
        ("crux", "json_literal", "json"): 800,
    }
    assert any(task.query.startswith("You are given a Python function") for task in splits.test)


def test_each_set_is_halved(shared_data: Path) -> None:
    splits = RecordedTasks(str(shared_data / "recorded_outcomes")).load()
    for name, size in {"gsm": 1319, "math-l5": 721, "crux": 800}.items():
        assert sum(task.domain == name for task in splits.test) == pytest.approx(size / 2, abs=2 * size**0.5)
    assert len(splits.validation) == pytest.approx(2840 / 2 * 0.2, abs=50)


def test_the_test_half_is_the_same_whatever_is_chosen(shared_data: Path) -> None:
    folder = str(shared_data / "recorded_outcomes")
    all_sets = RecordedTasks(folder).load()
    crux = RecordedTasks(folder, sets=("crux",), validation=50).load()
    assert len(everything(crux)) == 800
    assert len(crux.validation) == 50
    assert crux.test == [task for task in all_sets.test if task.domain == "crux"]


def test_an_unknown_set_and_no_set_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no recorded set 'gsm8k': choose among gsm, math-l5, crux"):
        RecordedTasks(str(tmp_path), sets=("gsm8k",)).load()
    with pytest.raises(UserError, match="no sets"):
        RecordedTasks(str(tmp_path), sets=()).load()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"crux\.jsonl\.gz \(No such file"):
        RecordedTasks(str(tmp_path), sets=("crux",)).load()
