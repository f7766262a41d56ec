"""`trinity-grade` as it is used: a file in, rows and an exit code out."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from trinity.commands import grade as grading
from trinity.errors import UserError
from trinity.rewards.launcher import Launcher
from trinity.rewards.sandbox import Limits
from trinity.tasks.jsonl import Row

BANK = Path(__file__).parents[1] / "data" / "reward_cases"
RIGHT = {"id": "m1", "kind": "math", "output": r"So \boxed{4}.", "reference": "4", "expected": True}
WRONG = RIGHT | {"id": "m2", "reference": "5"}


def write(tmp_path, *rows):
    path = tmp_path / "cases.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def grade(capsys, *argv):
    with pytest.raises(SystemExit) as ended:
        grading.main(list(argv))
    printed = capsys.readouterr()
    return ended.value.code, printed.out, printed.err


def test_a_file_as_an_editor_saves_it(capsys, tmp_path):
    lines = [json.dumps(row | {"kind": "text"}).encode() for row in (RIGHT, WRONG)]
    path = tmp_path / "cases.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + b"\r\n\r\n".join(lines) + b"\r\n")
    code, out, _ = grade(capsys, str(path), "--json")
    assert [json.loads(line)["id"] for line in out.splitlines()] == ["m1", "m2"]
    assert code == 1


@pytest.mark.parametrize("kind", ["math", "choice", "verdict"])
def test_the_bank_is_graded_as_expected(capsys, kind):
    code, out, err = grade(capsys, str(BANK / f"{kind}.jsonl"), "--json")
    rows = [json.loads(line) for line in (BANK / f"{kind}.jsonl").read_text().splitlines()]
    results = [json.loads(line) for line in out.splitlines()]
    assert code == 0, err
    assert [result["id"] for result in results] == [row["id"] for row in rows]
    field = "verdict" if kind == "verdict" else "reward"
    assert [result[field] for result in results] == [row["expected"] for row in rows]
    for result in results:
        assert set(result) == {"id", field, "extracted", "reason", "seconds"}
        assert 0 <= result["seconds"] < 60  # a hang; tests/benchmarks/graders.py holds the limit


def test_the_code_bank_is_graded_as_expected(capsys, monkeypatch):
    try:
        Launcher("bubblewrap", Limits()).probe()
    except UserError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("OPENROUTER_API_KEY", "secret")
    code, out, err = grade(capsys, str(BANK / "code.jsonl"), "--json")
    assert code == 0, err
    results = {result["id"]: result for result in map(json.loads, out.splitlines())}
    assert results["K14"]["reward"] == 0
    assert "error" in results["K14"], "zero tests"
    assert "secret" not in out


def test_a_difference_is_named_and_is_the_exit_code(capsys, tmp_path):
    code, out, _ = grade(capsys, write(tmp_path, RIGHT, WRONG))
    assert code == 1
    assert "1 of 2 as expected" in out
    assert "not as expected: m2" in out


def test_without_expected_nothing_can_differ(capsys, tmp_path):
    row = {"kind": "math", "output": r"\boxed{4}", "reference": 4}
    code, out, _ = grade(capsys, write(tmp_path, row), "--json")
    assert code == 0
    result = json.loads(out)
    assert (result["id"], result["reward"], result["extracted"], result["reason"]) == ("1", 1, "4", "equal")


@pytest.mark.parametrize(
    "row",
    [
        {"kind": "code", "output": "print(1)", "reference": {"tests": []}},
        {"kind": "math", "output": "4", "reference": r"\frac{1"},
        {"kind": "choice", "output": "B", "reference": "Z"},
        {"kind": "poem", "output": "x", "reference": "x"},
        {"kind": "math", "output": "null", "reference": None},
    ],
)
def test_what_cannot_be_graded_has_an_error(capsys, tmp_path, row):
    code, out, _ = grade(capsys, write(tmp_path, row | {"id": "r", "expected": False}), "--json")
    result = json.loads(out)
    assert (code, result["reward"]) == (0, 0)
    assert "mend or remove" in result["error"] or "choose one of" in result["error"]
    assert grade(capsys, write(tmp_path, row | {"id": "r", "expected": True}))[0] == 1


def test_letters_may_be_a_list(capsys, tmp_path):
    row = {"kind": "choice", "output": "Answer: E", "reference": "E", "letters": list("ABCDE")}
    _, out, _ = grade(capsys, write(tmp_path, row), "--json")
    assert json.loads(out)["reward"] == 1


def test_options_are_known_by_their_texts(capsys, tmp_path):
    row = {"kind": "choice", "output": "The answer is Mercury.", "reference": "C"}
    row["choices"] = ["Venus", "Mars", "Mercury", "Pluto"]
    _, out, _ = grade(capsys, write(tmp_path, row), "--json")
    assert json.loads(out)["reward"] == 1


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "holds no tasks"),
        ("{", "is not JSON"),
        ("[1]", "is not a JSON object"),
        ('{"id": 1, "kind": "math"}', '"output"'),
        ('{"kind": "math", "output": "4", "reference": "4", "expected": "yes"}', '"expected" is "yes"'),
    ],
)
def test_a_file_that_is_none_is_refused_with_a_sentence(capsys, tmp_path, content, sentence):
    path = tmp_path / "cases.jsonl"
    path.write_text(content)
    code, out, err = grade(capsys, str(path), "--json")
    assert (code, out) == (2, "")
    assert sentence in err
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == 1


def test_a_missing_file_is_named(capsys, tmp_path):
    code, _, err = grade(capsys, str(tmp_path / "none.jsonl"))
    assert code == 2
    assert "Cannot read" in err


def test_outputs_reach_the_terminal_as_plain_text(capsys, tmp_path):
    row = WRONG | {"id": "\x1b[2J", "output": "\\boxed{\x1b]0;title\x07[bold]9[/bold]}"}
    _, out, _ = grade(capsys, write(tmp_path, row))
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "[bold]9[/bold]" in out


def test_a_model_that_said_nothing_has_no_answer():
    row = {"kind": "math", "output": None, "reference": "4"}
    assert grading.read_case(Row(row, "here"), 1).output is None


def test_the_script_is_installed(tmp_path):
    script = Path(sys.executable).with_name("trinity-grade")
    done = subprocess.run([script, write(tmp_path, WRONG)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "not as expected: m2" in done.stdout
