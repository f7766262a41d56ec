import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from trinity.errors import UserError
from trinity.tasks import gsm8k
from trinity.tasks.gsm8k import GSM8KTasks
from trinity.tasks.jsonl import Row


def test_the_benchmark_files(shared_data: Path) -> None:
    paths = [str(shared_data / f"gsm8k_{split}.jsonl.gz") for split in ("train", "test")]
    splits = GSM8KTasks(*paths, validation=200).load()
    assert len(splits.train) + len(splits.validation) == 7473
    assert len(splits.validation) == 200
    assert len(splits.test) == 1319
    assert splits.test[0].reference == "18"
    assert (splits.test[0].grader, splits.test[0].answer_format) == ("math", "boxed")


def test_the_original_solutions_give_the_same_tasks(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub's rows hold the whole solution in "answer", as the file does in "solution"."""

    def hub_rows(repository: str, config: str, split: str) -> list[Row]:
        assert (repository, config) == ("openai/gsm8k", "main")
        lines = gzip.decompress((shared_data / f"gsm8k_{split}.jsonl.gz").read_bytes()).splitlines()
        rows = [json.loads(line) for line in lines]
        return [Row({"question": row["question"], "answer": row["solution"]}, "row") for row in rows]

    paths = [str(shared_data / f"gsm8k_{split}.jsonl.gz") for split in ("train", "test")]
    local = GSM8KTasks(*paths).load()
    monkeypatch.setattr(gsm8k, "hub_rows", hub_rows)
    assert GSM8KTasks().load() == local


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("5 - 3 = <<5-3=2>>2\n#### 2", "2"),
        ("#### 1,234", "1234"),
        (" 0.5 ", "0.5"),
        (-3, "-3"),
        ("#### 1 #### 7", "7"),
    ],
)
def test_the_final_number(write_rows: Callable[..., str], answer: str, reference: str) -> None:
    rows = [{"id": i, "question": "q", "answer": answer} for i in range(4)]
    train, test = write_rows("train.jsonl", rows[:3]), write_rows("test.jsonl.gz", rows[3:])
    assert GSM8KTasks(train, test, validation=1).load().test[0].reference == reference


@pytest.mark.parametrize("answer", ["no number", "#### ", "#### 2 apples", "1\n2"])
def test_an_answer_without_a_final_number_is_named(write_rows: Callable[..., str], answer: str) -> None:
    path = write_rows("train.jsonl", [{"question": "q", "answer": answer}])
    with pytest.raises(UserError, match=r"train\.jsonl, line 1: \"answer\" ends in"):
        GSM8KTasks(path, path).load()


def test_the_same_file_twice_is_refused(write_rows: Callable[..., str]) -> None:
    path = write_rows("both.jsonl", [{"id": "a", "question": "q", "answer": "1"}])
    with pytest.raises(UserError, match="the id 'a' is already used"):
        GSM8KTasks(path, path).load()
