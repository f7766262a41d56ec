"""S5: the recorded sets' graders, right and wrong, and against the published scores."""

import asyncio
import gzip
import json
import time
from pathlib import Path

import pytest

from tests.benchmarks.lcb_programs import difference, read_problems, right_with_samples, run_samples
from trinity.rewards.code import CodeGrader
from trinity.rewards.recorded import answer_field, grade_json_literal, grade_json_number, literal

DATA = Path(__file__).parents[3] / "shared" / "data" / "recorded_outcomes"
MODELS = ("o1-mini-2024-09-12", "o1-preview-2024-09-12")
GRADERS = {"gsm": "json_number", "math-l5": "json_math", "crux": "json_literal"}
DISAGREEMENTS = {
    # a sentence with several numbers, of which the right one is not the last: no rule can know
    ("gsm", "gsm8k-main-test-#392", "claude-3-opus-20240229"),
    ("gsm", "gsm8k-main-test-#978", "claude-3-opus-20240229"),
    # a sentence about a price in the place of a number: no mathematics
    ("math-l5", "math-l5-112", "claude-3-opus-20240229"),
    # over-escaped or padded literals, which the published scores count as wrong
    ("crux", "crux-test-#583", "gemini-1.5-flash"),
    ("crux", "crux-test-#649", "Qwen2-72B-Instruct"),
    ("crux", "crux-test-#684", "gemini-1.5-flash"),
    ("crux", "crux-test-#709", "gemini-1.5-flash"),
}


def rows(path):
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.skipif(not DATA.is_dir(), reason="needs shared/data/recorded_outcomes beside the repository")
@pytest.mark.parametrize("name", GRADERS)
async def test_agrees_with_the_published_scores(rewards, question, name):
    scores = {row["id"]: row["correct"] for row in rows(DATA / "scores.jsonl.gz") if row["set"] == name}
    total, different = 0, set()
    for row in rows(DATA / f"{name}.jsonl.gz"):
        for model, output in row["outputs"].items():
            grade = await rewards.grade(question(GRADERS[name], row["reference"]), output)
            total += 1
            if grade.reward != scores[row["id"]][model]:
                different.add((name, row["id"], model))
    assert total == 5 * len(scores)
    assert len(different) <= 0.005 * total
    assert different == {row for row in DISAGREEMENTS if row[0] == name}


@pytest.mark.skipif(not DATA.is_dir(), reason="needs shared/data/recorded_outcomes beside the repository")
async def test_recorded_programs_are_found_and_pass_the_samples_that_they_should(bubblewrap):
    """A sample; `tests/benchmarks/lcb_programs.py` runs them all."""
    problems = read_problems(DATA / "lcb.jsonl.gz")
    different = {
        (problem["id"], model) for problem in problems for model in MODELS if difference(problem, model)
    }
    assert different == {("lcb-3637", MODELS[0]), ("lcb-abc384_g", MODELS[0])}, "where the source reads none"
    chosen = [(problem, model) for problem in problems for model in right_with_samples(problem)][::64]
    assert len(chosen) == 9
    grader = CodeGrader()  # with training's limits
    try:
        failures = await asyncio.gather(*(run_samples(grader, *one) for one in chosen))
        assert failures == [""] * len(chosen)
        for problem, _ in chosen:
            problem["sample_tests"][-1]["output"] += " 0"
        failures = await asyncio.gather(*(run_samples(grader, *one) for one in chosen))
        assert all("wrong output" in failure for failure in failures)
    finally:
        grader.close()


@pytest.mark.parametrize(
    ("output", "field"),
    [
        ('{"reasoning": "...", "answer": "18"}', "18"),
        ('```json\n{"answer": 18\n}\n```', "18"),
        ('{"answer": 18}', "18"),
        ('{"answer": "1"} no, {"answer": "2"}', "2"),
        (r'{"answer": "\frac{1}{2}"}', r"\frac{1}{2}"),
        ('{"answer": "unclosed', '"unclosed'),
        ("an endless loop", None),
    ],
)
def test_answer_field(output, field):
    assert answer_field(output) == field


@pytest.mark.parametrize(
    ("field", "reference", "reward"),
    [
        ('"$1,248.00"', "1248", 1),
        ('"2:00 pm"', "2", 1),
        ('"2 + 3 = 5"', "5", 1),
        ('"1249"', "1248", 0),
        ('"none"', "1248", 0),
    ],
)
def test_number(field, reference, reward):
    assert grade_json_number(f'{{"answer": {field}}}', reference).reward == reward


@pytest.mark.parametrize(
    ("field", "reference", "reward"),
    [
        ("\"{'b': 2, 'a': 1}\"", "{'a': 1, 'b': 2}", 1),
        ("[1, 2]", "[1,2]", 1),
        ('"abc"', "'abc'", 1),
        ('"True"', "True", 1),
        ('"1"', "True", 0),
        ('"1.0"', "1", 0),
        ('"[1, True]"', "[1, 1]", 0),
        ('"(1, 2)"', "[1, 2]", 0),
        ('"abc "', "'abc'", 0),
        ("\"__import__('os').getcwd()\"", "'x'", 0),
    ],
)
def test_literal(field, reference, reward):
    assert grade_json_literal(f'{{"answer": {field}}}', reference).reward == reward


@pytest.mark.parametrize(
    "text",
    ["(" * 1_000, "-" * 1_999, "[" * 90 + "]" * 90, "1" * 1_999_999, "{[]: 1}", "1e9**9", "f()", "", "{[1]}",
     "~" * 1_999 + "1", "not " * 400 + "1", "1+" * 900 + "1", "'" * 1_999, "\0"],
    ids=lambda text: f"{text[:8]!r}",
)  # fmt: skip
def test_hostile_literals_are_refused(text):
    begin = time.perf_counter()
    with pytest.raises(ValueError, match="literal"):
        literal(text)
    assert time.perf_counter() - begin < 2
