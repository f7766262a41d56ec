from collections import Counter
from pathlib import Path

import pytest

from trinity.errors import UserError
from trinity.tasks import mixed
from trinity.tasks.mixed import MixedTasks


def test_so_many_of_each_benchmark(shared_data: Path) -> None:
    splits = MixedTasks(str(shared_data), train=12, validation=2, test=5).load()
    for tasks, count in ((splits.train, 12), (splits.validation, 2), (splits.test, 5)):
        graders = Counter(task.grader for task in tasks)
        assert graders == {"math": count, "choice": count, "code": count}
    ids = [task.id for task in (*splits.train, *splits.validation, *splits.test)]
    assert len(set(ids)) == len(ids)


def test_a_choice_of_benchmarks(shared_data: Path) -> None:
    splits = MixedTasks(str(shared_data), ["mmlu"], train=3, validation=1, test=1).load()
    assert {task.grader for task in splits.train} == {"choice"}


def test_without_files_the_hub_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    class Asked(Exception): ...

    def source(*paths: object) -> None:
        asked.append(paths)
        raise Asked

    for name in ("GSM8KTasks", "MMLUTasks", "MBPPTasks"):
        monkeypatch.setattr(mixed, name, source)
        with pytest.raises(Asked):
            MixedTasks(str(tmp_path), [name.lower().removesuffix("tasks")]).load()  # type: ignore[list-item]
    assert asked == [(), (None,), (None,)]


def test_no_benchmarks_is_a_mistake() -> None:
    with pytest.raises(UserError, match="name some of gsm8k"):
        MixedTasks(benchmarks=[]).load()


def test_more_than_there_are_is_a_mistake(shared_data: Path) -> None:
    with pytest.raises(UserError, match="train = 5000"):
        MixedTasks(str(shared_data), ["mmlu"], train=5000).load()
