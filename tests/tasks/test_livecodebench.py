import base64
import contextlib
import json
import pickle
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trinity.errors import UserError
from trinity.tasks.livecodebench import LiveCodeBenchTasks, decode_tests

Write = Callable[..., str]
STDIN = {"input": "1 2\n", "output": "3\n", "testtype": "stdin"}
FUNCTIONAL = {"input": "[1, 2]", "output": "3", "testtype": "functional"}


def encode(value: object, protocol: int = 4) -> str:
    """As the benchmark's authors encode private tests."""
    return base64.b64encode(zlib.compress(pickle.dumps(value, protocol))).decode()


def problem(number: int, **change: Any) -> dict[str, Any]:
    row = {
        "question_title": "Sum",
        "question_content": f"Add, case {number}.",
        "platform": "atcoder",
        "question_id": f"abc{number}_a",
        "contest_date": "2024-01-01T00:00:00",
        "starter_code": "",
        "difficulty": "easy",
        "public_test_cases": json.dumps([STDIN]),
        "private_test_cases": encode(json.dumps([STDIN | {"input": "5 6\n", "output": "11\n"}])),
        "metadata": "{}",
    }
    return row | change


def load(write_rows: Write, row: dict[str, Any]) -> Any:
    """The one task of a file that holds this row beside enough others."""
    folder = str(Path(write_rows("test.jsonl", [problem(i) for i in range(4)])).parent)
    write_rows("test6.jsonl", [row])
    return LiveCodeBenchTasks(folder=folder, validation=1).load().test[0]


def test_a_problem_that_reads_stdin(write_rows: Write) -> None:
    task = load(write_rows, problem(9))
    assert (task.id, task.domain, task.query) == ("abc9_a", "easy", "Add, case 9.")
    assert (task.grader, task.answer_format) == ("code", "code")
    tests = [STDIN, {"input": "5 6\n", "output": "11\n", "testtype": "stdin"}]
    assert json.loads(task.reference) == {"tests": tests}


def test_a_problem_with_a_function(write_rows: Write) -> None:
    starter = "class Solution:\n    def add(self, a: List[int]) -> int:\n        "
    row = problem(9, starter_code=starter, metadata='{"func_name": "add"}', public_test_cases="[]")
    task = load(write_rows, row | {"private_test_cases": json.dumps([FUNCTIONAL])})
    assert json.loads(task.reference) == {"tests": [FUNCTIONAL], "fn_name": "add"}
    assert task.query == f"Add, case 9.\n\nStarter code:\n```python\n{starter}\n```"


def test_splits(write_rows: Write) -> None:
    folder = str(Path(write_rows("a.jsonl", [problem(i) for i in range(6)])).parent)
    write_rows("b.jsonl", [problem(i) for i in range(6, 10)])
    write_rows("c.jsonl", [problem(i) for i in range(10, 13)])
    splits = LiveCodeBenchTasks(("a.jsonl", "b.jsonl"), ("c.jsonl",), folder=folder, validation=3).load()
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [7, 3, 3]
    assert {task.id for task in splits.test} == {"abc10_a", "abc11_a", "abc12_a"}


def test_the_default_files_come_from_the_hub(write_rows: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def download(repository: str, file: str, *, repo_type: str) -> str:
        asked.append((repository, file, repo_type))
        start = 0 if file == "test.jsonl" else 50
        return write_rows(file, [problem(start + i) for i in range(5)])

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    splits = LiveCodeBenchTasks(validation=1).load()
    repository = "livecodebench/code_generation_lite"
    assert asked == [(repository, "test.jsonl", "dataset"), (repository, "test6.jsonl", "dataset")]
    assert len(splits.test) == 5


def test_a_hub_out_of_reach_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(*_: object, **__: object) -> str:
        raise ConnectionError("offline")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    with pytest.raises(UserError, match=r"Cannot fetch test\.jsonl .*offline.*local folder"):
        LiveCodeBenchTasks().load()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("size", [1, 300, 70_000])
def test_private_tests_of_every_pickle_protocol(protocol: int, size: int) -> None:
    tests = [STDIN | {"input": "é\n" * size}]
    assert decode_tests(encode(json.dumps(tests, ensure_ascii=False), protocol)) == tests


class Hostile:
    """Writes a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self.path, "executed")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_hostile_pickle_is_refused_and_not_executed(
    write_rows: Write, tmp_path: Path, protocol: int
) -> None:
    mark = tmp_path / "mark"
    encoded = encode(Hostile(mark), protocol)
    with pytest.raises(UserError, match=r"test6\.jsonl, line 1: the tests cannot be read .*opcode"):
        load(write_rows, problem(9, private_test_cases=encoded))
    assert not mark.exists()
    pickle.loads(zlib.decompress(base64.b64decode(encoded)))
    assert mark.exists(), "the pickle would not have done anything: the test shows nothing"


@pytest.mark.parametrize(
    "value", [["a list"], {"a": 1}, b"bytes", 7, None, ("a", "b"), "not JSON", '{"a": 1}']
)
def test_other_pickled_values_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"pickle|Expecting|not a list"):
        decode_tests(encode(value))


@pytest.mark.parametrize(
    "text",
    ["", "#", "Zm9v", base64.b64encode(zlib.compress(b"")).decode(), encode("[]")[:-8], f"!{encode('[]')}"],
)
def test_garbage_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        decode_tests(text)


def test_a_pickle_of_two_strings_is_refused() -> None:
    two = b"\x80\x04\x8c\x02[]\x8c\x02[]."
    with pytest.raises(ValueError, match="2 strings"):
        decode_tests(base64.b64encode(zlib.compress(two)).decode())


def test_a_memo_bomb_costs_nothing() -> None:
    """An unpickler would allocate a table of 2^32 entries for this."""
    bomb = b"\x80\x04\x8c\x02[]r\xff\xff\xff\xff."
    assert decode_tests(base64.b64encode(zlib.compress(bomb)).decode()) == []


def test_a_decompression_bomb_is_refused() -> None:
    encoded = encode(json.dumps([STDIN | {"input": "0" * 5_000_000}]))
    assert len(encoded) < 10_000
    assert len(decode_tests(encoded)) == 1
    with pytest.raises(ValueError, match="larger than 1000000 bytes"):
        decode_tests(encoded, max_bytes=1_000_000)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=40))
def test_any_pickle_bytes_give_a_list_or_a_value_error(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(decode_tests(base64.b64encode(zlib.compress(data)).decode()), list)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.fixed_dictionaries({"input": st.text(), "output": st.text()}), max_size=4))
def test_round_trip(tests: list[dict[str, str]]) -> None:
    assert decode_tests(encode(json.dumps(tests))) == decode_tests(json.dumps(tests)) == tests


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"public_test_cases": "[]", "private_test_cases": "[]"}, "there are no tests"),
        ({"public_test_cases": "[{}]"}, "a test is not {input, output, testtype}"),
        ({"public_test_cases": '["assert 1"]'}, "a test is not {input, output, testtype}"),
        ({"public_test_cases": json.dumps([STDIN | {"testtype": "shell"}])}, "type is 'shell'"),
        ({"public_test_cases": json.dumps([FUNCTIONAL])}, "needs metadata's func_name, which is None"),
        ({"public_test_cases": "["}, "the tests cannot be read"),
        ({"public_test_cases": "7"}, "the tests cannot be read"),
        ({"metadata": "{"}, "the tests cannot be read"),
        ({"private_test_cases": None}, '"private_test_cases" is null'),
        ({"question_content": ""}, '"question_content" is ""'),
        ({"question_id": "abc1_a"}, "the id 'abc1_a' is already used"),
    ],
)
def test_a_bad_row_is_named(write_rows: Write, change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=rf"test6\.jsonl, line 1.*{message}"):
        load(write_rows, problem(9, **change))
