import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trinity.errors import UserError
from trinity.tasks.jsonl import Row, read_rows


def read(path: Path, content: bytes) -> list[dict[str, object]]:
    path.write_bytes(content)
    return [row.values for row in read_rows(path)]


def test_rows_come_with_their_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n\n  \n{"id": 2}', encoding="utf-8")
    rows = list(read_rows(str(tmp_path / "a.jsonl")))
    assert [row.values["id"] for row in rows] == [1, 2]
    assert rows[1].where == f"{tmp_path / 'a.jsonl'}, line 4"


def test_gzip_byte_order_mark_and_line_separators_within_strings(tmp_path: Path) -> None:
    line = '{"q": "é\u2028\x85z"}\r\n'.encode()
    assert read(tmp_path / "a.jsonl.gz", gzip.compress(line * 2)) == [{"q": "é\u2028\x85z"}] * 2
    assert read(tmp_path / "a.jsonl", b"\xef\xbb\xbf" + line) == [{"q": "é\u2028\x85z"}]
    joined = b"\xef\xbb\xbf\r\n" + line + b"\r\n\xef\xbb\xbf" + line
    assert read(tmp_path / "a.jsonl", joined) == [{"q": "é\u2028\x85z"}] * 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no tasks"),
        (b"\n \n", "holds no tasks"),
        (b"\xef\xbb\xbf", "holds no tasks"),
        (b'{"a": 1}\n{"a": \n', "line 2 is not JSON"),
        (b'{"a": 1}\n[1]\n', r"line 2 is not a JSON object but \[1\]"),
        (b'{"a": 1}\n"x"\n', "line 2 is not a JSON object"),
        (b"[" * 100_000 + b"\n", "line 1 is not JSON"),
        (b'{"a": 1}\n{"a": "\xff"}\n', "line 2 is not UTF-8"),
    ],
)
def test_unusable_files_are_named_with_the_line(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(UserError, match=rf"broken\.jsonl.*{message}"):
        read(tmp_path / "broken.jsonl", content)


@pytest.mark.parametrize(
    "content",
    [b"plain text", gzip.compress(b'{"a": 1}\n' * 999, mtime=0)[:-9], b""],
    ids=["plain", "cut", "empty"],
)
def test_a_broken_gzip_file_is_named(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UserError, match=r"broken\.jsonl\.gz"):
        read(tmp_path / "broken.jsonl.gz", content)


@pytest.mark.parametrize("position", [10, -6], ids=["blocks", "checksum"])
def test_a_corrupt_gzip_body_is_named(tmp_path: Path, position: int) -> None:
    content = bytearray(gzip.compress(json.dumps({"a": list(range(999))}).encode()))
    content[position] ^= 0xFF
    with pytest.raises(UserError, match=r"Cannot read the task file .*broken\.jsonl\.gz"):
        read(tmp_path / "broken.jsonl.gz", bytes(content))


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.jsonl \(No such file"):
        list(read_rows(tmp_path / "none.jsonl"))
    with pytest.raises(UserError, match="Is a directory"):
        list(read_rows(tmp_path))


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_give_rows_or_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    try:
        assert all(isinstance(row, dict) for row in read(path, content))
    except UserError as error:
        assert "any.jsonl" in str(error)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.dictionaries(st.text(max_size=3), st.text(max_size=9) | st.integers()), min_size=1, max_size=4
    )
)
def test_what_was_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, object]]
) -> None:
    content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    assert read(tmp_path_factory.getbasetemp() / "any.jsonl", content.encode()) == rows


@pytest.mark.parametrize(
    ("value", "text"),
    [("x y", "x y"), (72, "72"), (0, "0"), (-1.5, "-1.5"), ({"tests": []}, '{"tests": []}')],
)
def test_text_of_a_field(value: object, text: str) -> None:
    assert Row({"a": value}, "here").text("a") == text


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"id": "q7"}, r"here \(id 'q7'\): \"a\" is missing"),
        ({"a": None}, 'here: "a" is null'),
        ({"a": ""}, 'here: "a" is ""'),
        ({"a": " \n"}, 'here: "a" is "'),
        ({"a": True}, 'here: "a" is true'),
        ({"a": ["x"]}, r'here: "a" is \["x"\]'),
    ],
)
def test_a_field_that_is_no_text_is_named(values: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Row(values, "here").text("a")
