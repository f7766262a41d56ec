import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from jsonargparse import ArgumentParser

from trinity.errors import UserError
from trinity.tasks.local import JsonLinesTasks
from trinity.tasks.task import GraderKind, Task

Write = Callable[..., str]


def rows(count: int, prefix: str = "t", **extra: Any) -> list[dict[str, Any]]:
    return [{"id": f"{prefix}{i}", "query": f"q{i}", "reference": f"r{i}", **extra} for i in range(count)]


def only(path: str, **options: Any) -> Task:
    return JsonLinesTasks(path, test=1, validation=0, **options).load().test[0]


def test_defaults(write_rows: Write) -> None:
    assert only(write_rows("a.jsonl.gz", rows(1))) == Task("t0", "local", "q0", "r0", "text", "line", "ABCD")


def test_a_row_s_own_fields_win_and_null_counts_as_absent(write_rows: Write) -> None:
    own = {"domain": "chem", "grader": "choice", "answer_format": "line", "letters": "ABC", "reference": "C"}
    path = write_rows("a.jsonl", [rows(1)[0] | own])
    assert only(path, domain="x", grader="math") == Task("t0", "chem", "q0", "C", "choice", "line", "ABC")
    path = write_rows("a.jsonl", rows(1, domain=None, grader=None))
    assert only(path, domain="x", grader="math") == Task("t0", "x", "q0", "r0", "math", "boxed")


@pytest.mark.parametrize("grader", get_args(GraderKind))
def test_each_grader_has_its_usual_format(write_rows: Write, grader: GraderKind) -> None:
    path = write_rows("a.jsonl", [{"id": 1, "query": "q", "reference": "A"}])
    usual = {"math": "boxed", "choice": "letter", "text": "line", "exact": "line", "code": "code"}
    assert only(path, grader=grader).answer_format == usual.get(grader, "json")
    assert only(path, grader=grader, answer_format="line").answer_format == "line"


def test_fields_are_mapped(write_rows: Write) -> None:
    path = write_rows(
        "a.jsonl", [{"nr": 7, "question": "q", "answer": {"tests": ["assert f()"]}, "id": "other"}]
    )
    task = only(path, fields={"id": "nr", "query": "question", "reference": "answer"}, grader="code")
    assert (task.id, task.query) == ("7", "q")
    assert json.loads(task.reference) == {"tests": ["assert f()"]}


def test_one_file_is_split_by_hash(write_rows: Write) -> None:
    splits = JsonLinesTasks(write_rows("a.jsonl", rows(30)), test=10, validation=5).load()
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [15, 5, 10]


def test_two_files_keep_their_split(write_rows: Write) -> None:
    train, test = write_rows("train.jsonl", rows(10)), write_rows("test.jsonl", rows(4, "u"))
    splits = JsonLinesTasks(train_path=train, test_path=test, validation=3).load()
    assert [task.id for task in splits.test] == ["u0", "u1", "u2", "u3"]
    assert len(splits.validation) == 3
    assert len(splits.train) == 7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reference": None}, r"line 2 \(id 't1'\): \"reference\" is missing"),
        ({"reference": ""}, r"line 2 \(id 't1'\): \"reference\" is \"\""),
        ({"query": [1]}, r"line 2 \(id 't1'\): \"query\" is \[1\]"),
        ({"id": ""}, 'line 2: "id" is ""'),
        ({"id": None, "reference": None}, 'line 2: "reference" is missing'),
        ({"id": "t0"}, r"line 2: the id 't0' is already used in .*line 1"),
        ({"grader": "vibes"}, "line 2: grader 'vibes' is unknown; give one of math, choice"),
        ({"answer_format": "xml"}, "line 2: answer_format 'xml' is unknown; give one of boxed"),
        ({"grader": "choice", "reference": "E"}, "reference 'E' is none of the letters ABCD"),
        ({"grader": "choice", "reference": "AB"}, "reference 'AB' is none of the letters ABCD"),
    ],
)
def test_a_bad_row_is_named(write_rows: Write, change: dict[str, Any], message: str) -> None:
    first, second = rows(2)
    path = write_rows("a.jsonl", [first, second | change])
    with pytest.raises(UserError, match=rf"a\.jsonl.*{message}"):
        JsonLinesTasks(path).load()


def tasks(path: str, **options: Any) -> dict[str, Task]:
    """Of a file, by query."""
    return {task.query: task for task in JsonLinesTasks(path, test=1.0, validation=0, **options).load().test}


def test_a_row_without_an_id_has_the_same_one_wherever_it_stands(write_rows: Write) -> None:
    bare = [{"query": f"q{i}", "reference": i} for i in range(20)]
    before = tasks(write_rows("a.jsonl", bare))
    assert len({task.id for task in before.values()}) == 20
    shuffled = [{"reference": row["reference"], "query": row["query"], "id": None} for row in reversed(bare)]
    after = tasks(write_rows("b.jsonl.gz", [*rows(3, "own"), *shuffled]), domain="other", grader="math")
    assert {query: after[query].id for query in before} == {query: task.id for query, task in before.items()}

    renamed = [{"question": row["query"], "answer": row["reference"]} for row in bare]
    fields = {"query": "question", "reference": "answer"}
    mapped = tasks(write_rows("c.jsonl", renamed), fields=fields)
    assert {query: task.id for query, task in mapped.items()} == {q: task.id for q, task in before.items()}


def test_what_is_asked_expected_or_offered_tells_rows_without_ids_apart(write_rows: Write) -> None:
    base = {"query": "q", "reference": "A", "letters": "AB", "grader": "choice"}
    changes: list[dict[str, Any]] = [
        {},
        {"query": "q "},
        {"reference": "B"},
        {"options": ["x", "y"]},
        {"options": ["y", "x"]},
    ]
    path = write_rows("a.jsonl", [base | change for change in changes])
    assert len({task.id for task in JsonLinesTasks(path, test=1.0, validation=0).load().test}) == 5


def test_equal_rows_without_ids_are_named_both(write_rows: Write) -> None:
    bare = {"query": "q", "reference": "r"}
    message = r"b\.jsonl, line 2 asks and expects the same as .*{}, line {}: remove one, or give each an id"
    path = write_rows("b.jsonl", [*rows(1), bare, bare | {"domain": "chem"}])
    with pytest.raises(UserError, match=r"line 3 asks and expects the same as .*b\.jsonl, line 2"):
        JsonLinesTasks(path).load()
    train, test = write_rows("train.jsonl", [bare]), write_rows("b.jsonl", [*rows(1), bare])
    with pytest.raises(UserError, match=message.format(r"train\.jsonl", 1)):
        JsonLinesTasks(train_path=train, test_path=test).load()
    both = [bare | {"id": 1}, bare | {"id": 2}]
    assert len(JsonLinesTasks(write_rows("c.jsonl", both), test=1.0, validation=0).load().test) == 2


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"], ids=["plain", "mark"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\n\n \n"], ids=["lf", "crlf", "blank"])
def test_how_an_editor_saves_a_file_changes_no_task(tmp_path: Path, start: bytes, end: bytes) -> None:
    path = tmp_path / "a.jsonl"
    lines = [b'{"query": "one", "reference": "1"}', '{"query": "zwölf", "reference": "12"}'.encode()]
    path.write_bytes(start + end.join(lines) + end)
    found = tasks(str(path))
    path.write_bytes(b"\n".join(lines))
    assert found == tasks(str(path))
    assert set(found) == {"one", "zwölf"}


def test_bad_mappings_are_named(write_rows: Write) -> None:
    path = write_rows("a.jsonl", rows(2))
    with pytest.raises(UserError, match="no field 'question'"):
        JsonLinesTasks(path, fields={"question": "query"}).load()
    with pytest.raises(UserError, match='line 1: there is no "answer" to read the reference from'):
        JsonLinesTasks(path, fields={"reference": "answer"}).load()


@pytest.mark.parametrize(
    "given", [{}, {"path": "a", "train_path": "b", "test_path": "c"}, {"test_path": "c"}]
)
def test_files_that_contradict_are_named(given: dict[str, str]) -> None:
    with pytest.raises(UserError, match="give path, or both train_path and test_path"):
        JsonLinesTasks(**given).load()


def test_nothing_is_read_in_the_constructor(tmp_path: Path) -> None:
    source = JsonLinesTasks(str(tmp_path / "later.jsonl"))
    with pytest.raises(UserError, match=r"later\.jsonl"):
        source.load()


def test_options_from_a_config(write_rows: Write) -> None:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(JsonLinesTasks, "tasks")
    path = write_rows("a.jsonl", [{"id": i, "question": "q", "reference": "1"} for i in range(9)])
    options = {"path": path, "fields": {"query": "question"}, "grader": "math", "test": 3, "validation": 0.5}
    choice = {"class_path": "trinity.tasks.local.JsonLinesTasks", "init_args": options}
    source = parser.instantiate_classes(parser.parse_object({"tasks": choice})).tasks
    assert len(source.load().test) == 3
