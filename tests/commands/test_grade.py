"""`trinity-grade` as it is used: a file in, rows and an exit code out."""

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from tests.small_run import small_run
from trinity.commands import grade as grading
from trinity.commands.fit import fit
from trinity.errors import UserError
from trinity.rewards.launcher import Launcher
from trinity.rewards.sandbox import Limits
from trinity.tasks.jsonl import Row

ROOT = Path(__file__).parents[2]
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


@pytest.fixture
def bubblewrap():
    try:
        Launcher("bubblewrap", Limits()).probe()
    except UserError as error:
        pytest.skip(str(error))


def test_the_code_bank_is_graded_as_expected(bubblewrap, capsys, monkeypatch):
    monkeypatch.setenv("OPENROUTER_API_KEY", "secret")
    # Training's limits, but a second for the program that never ends.
    code, out, err = grade(capsys, str(BANK / "code.jsonl"), "--json", "--limits.cpu_seconds", "1")
    assert code == 0, err
    results = {result["id"]: result for result in map(json.loads, out.splitlines())}
    assert results["K14"]["reward"] == 0
    assert "error" in results["K14"], "zero tests"
    assert "secret" not in out


# Within training's limits, but beyond a gigabyte of memory, and 4 MB of output.
LARGE = {
    "id": "k",
    "kind": "code",
    "output": "```python\nx = bytearray(1200 << 20)\nprint('a')\n```",
    "reference": {"tests": [{"input": "", "output": "a", "testtype": "stdin"}]},
}
LONG = {
    "id": "l",
    "kind": "code",
    "output": "```python\nprint('a' * 6_000_000)\n```",
    "reference": {"tests": [{"input": "", "output": "a" * 6_000_000, "testtype": "stdin"}]},
}
FREE = {"id": "t", "kind": "text", "output": "Answer: a large dog", "reference": "a big dog"}
RAMBLING = {
    "id": "n",
    "kind": "math",
    "output": "We count and count, one dog after the other, all over the yard, and there are 30 dogs",
    "reference": "30",
}


def rewards_of(tmp_path, name="experiment.yaml", extends=(), **rewards):
    """A config of an experiment that has these options of its graders."""
    text = f"extends: {list(extends)}\n" if extends else ""
    path = tmp_path / name
    path.write_text(text + json.dumps({"trainer": {"max_steps": 1}, "model": {"rewards": rewards or None}}))
    return str(path)


def outcomes(capsys, *argv):
    _, out, err = grade(capsys, *argv, "--json")
    results = map(json.loads, out.splitlines())
    return {result["id"]: (result["reward"], result["reason"]) for result in results}, err


def test_programs_have_the_limits_of_training(bubblewrap, capsys, tmp_path):
    found, _ = outcomes(capsys, write(tmp_path, LARGE, LONG))
    assert (found["k"][0], found["l"][0]) == (1, 1)


@pytest.mark.parametrize(("name", "value"), [(field.name, field.default) for field in fields(Limits)])
def test_the_help_names_the_limits_of_training(capsys, name, value):
    _, out, _ = grade(capsys, "--help")
    said = " ".join(out.split()).split(f"--limits.{name} N of one")[1]
    assert said.split(")")[0].endswith(f"({value:g}")


def test_a_config_decides_how_programs_run_and_the_command_line_on_top(bubblewrap, capsys, tmp_path):
    cases = write(tmp_path, LARGE, LONG)
    config = rewards_of(tmp_path, code_limits={"memory_mb": 512, "output_mb": 4})
    found, _ = outcomes(capsys, cases, "--config", config)
    assert "MemoryError" in found["k"][1]
    assert "OSError" in found["l"][1]
    found, _ = outcomes(capsys, cases, "--config", config, "--limits.memory_mb", "2048")
    assert found["k"][0] == 1
    assert "OSError" in found["l"][1], "each option on its own"
    with pytest.warns(UserWarning, match="read and write every file"):
        found, _ = outcomes(capsys, cases, "--config", config, "--sandbox", "rlimits")
    assert "MemoryError" in found["k"][1]


def test_a_config_decides_what_counts_as_an_answer(capsys, tmp_path):
    cases = write(tmp_path, RAMBLING)
    assert outcomes(capsys, cases)[0]["n"][0] == 0
    config = rewards_of(tmp_path, math_fallback="last_number")
    assert outcomes(capsys, cases, "--config", config)[0]["n"][0] == 1


def test_configs_are_stacked_as_for_training(bubblewrap, capsys, tmp_path):
    cases = write(tmp_path, LARGE, RAMBLING)
    base = rewards_of(tmp_path, "base.yaml", code_limits={"memory_mb": 512})
    top = rewards_of(tmp_path, "top.yaml", math_fallback="last_number")
    both = rewards_of(tmp_path, "both.yaml", ["base.yaml"], math_fallback="last_number")
    for stack in (["--config", base, "--config", top], ["--config", both]):
        found, _ = outcomes(capsys, cases, *stack)
        assert (found["k"][0], found["n"][0]) == (0, 1)
    nothing = rewards_of(tmp_path, "nothing.yaml")  # a run's config.yaml has null where nothing was said
    found, _ = outcomes(capsys, cases, "--config", base, "--config", nothing)
    assert (found["k"][0], found["n"][0]) == (1, 0)


def test_the_config_of_a_finished_run_grades_as_the_run_did(bubblewrap, capsys, tmp_path):
    rewards = {
        "class_path": "trinity.rewards.rewards.Rewards",
        "init_args": {"code_limits": {"memory_mb": 512}, "math_fallback": "last_number"},
    }
    tasks = {"train": 3, "validation": 3, "test": 3}
    overlay = small_run(tmp_path / "runs", tmp_path / "slm", 1, tasks, rewards=rewards)
    (tmp_path / "small.yaml").write_text(json.dumps(overlay))
    fit(["--config", str(ROOT / "configs" / "quickstart.yaml"), "--config", str(tmp_path / "small.yaml")])
    capsys.readouterr()
    config = tmp_path / "runs" / "quickstart" / "version_0" / "config.yaml"
    found, _ = outcomes(capsys, write(tmp_path, LARGE, RAMBLING), "--config", str(config))
    assert (found["k"][0], found["n"][0]) == (0, 1)
    assert "MemoryError" in found["k"][1]


def test_no_judge_is_asked_and_that_is_said_where_it_matters(capsys, tmp_path):
    config = rewards_of(tmp_path, judge="deepseek-v4-flash")
    found, err = outcomes(capsys, write(tmp_path, FREE), "--config", config)
    assert found["t"][0] == 0
    assert "only the judge deepseek-v4-flash could accept stay wrong" in err
    _, err = outcomes(capsys, write(tmp_path, RIGHT), "--config", config)
    assert "judge" not in err


def test_several_files_are_graded_as_one(tmp_path, capsys):
    paths = []
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        paths.append(write(tmp_path / str(number), {**RIGHT, "id": f"c{number}"}))
    code, out, _ = grade(capsys, *paths)
    assert code == 0
    assert "2 of 2 as expected" in out


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("a: [", "line 1 is no YAML"),
        ("3", "holds '3', but it takes lines"),
        ("model: 3", "is none of trinity-fit's"),
        ("model: {rewards: {judg: x}}", "Option 'judg' is not accepted"),
        ("model: {rewards: {code_limits: {memory_mb: many}}}", "rewards.code_limits.memory_mb: Expected"),
        ("model: {rewards: {code_limits: {memory_mb: -1}}}", "memory_mb is -1, but must be above 0"),
        ("model: {rewards: {math_workers: 0}}", "math_workers must be at least 1"),
        ("model: {rewards: {class_path: no.such.Class}}", "No module named 'no'"),
        ("extends: [gone.yaml]", "there is no file"),
        (b"\xff\xfe\xff", "is not UTF-8"),
        (None, "There is no config"),
    ],
)
def test_a_config_that_is_none_is_refused_with_a_sentence(capsys, tmp_path, content, sentence):
    path = tmp_path / "experiment.yaml"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    code, out, err = grade(capsys, write(tmp_path, RIGHT), "--config", str(path))
    assert (code, out) == (2, "")
    assert sentence in err
    assert len(err.strip().splitlines()) == 1


def test_what_it_does_not_need_is_not_loaded(tmp_path):
    config = rewards_of(tmp_path, code_limits={"memory_mb": 512})
    script = (
        "import sys\nfrom trinity.commands.grade import run\n"
        f"run([{write(tmp_path, RIGHT)!r}, '--config', {config!r}])\n"
        "print({'torch', 'lightning', 'transformers', 'sympy', 'litellm'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "set()", done.stderr


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


def test_an_interrupt_ends_it_without_a_trace(capsys, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(grading, "_grade_all", interrupted)
    assert grade(capsys, write(tmp_path, RIGHT)) == (130, "", "")


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
