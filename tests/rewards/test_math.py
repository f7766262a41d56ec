"""S5: the mathematical grader, right and wrong."""

import asyncio
import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trinity.errors import UserError
from trinity.rewards.grade import Grade
from trinity.rewards.math import AlgebraQuestion, grade_math
from trinity.rewards.rewards import Rewards


async def test_bank(rewards, question, math_case):
    grade = await rewards.grade(question("math", math_case["reference"]), math_case["output"])
    assert grade.reward == math_case["expected"], grade


@pytest.mark.parametrize(
    ("reference", "answer", "right"),
    [
        ("1000000", "1000001", False),
        ("1e-9", "2e-9", False),
        ("1e-9", "0.000000001", True),
        (r"\frac{1}{3}", "0.3333", True),
        (r"\frac{1}{3}", "0.33", False),
        (r"\frac{1}{3}", "0.3334", False),
        (r"\frac{3}{4}", "0.7500", True),
        (r"\frac{3}{4}", "0.7501", False),
        ("0.3333", r"\frac{1}{3}", False),
        (r"\sqrt{2}", "1.41421", True),
        (r"\sqrt{2}", "1.414", True),
        (r"\sqrt{2}", "1.41", False),
        (r"\sqrt{2}", "1.4143", False),
        ("15", r"15\%", True),
        ("0.15", r"15\%", False),
        (r"15\%", "15", True),
        ("5", "5 cm", True),
        (r"5.4 \text{ cents}", "5.4", True),
        (r"5.4 \text{ cents}", r"5.4\text{ dollars}", False),
        (r"864 \mbox{ inches}^2", "864", True),
        (r"30^\circ", r"30\text{ degrees}", True),
        (r"\$32,\!348", r"\$32,348", True),
        ("10455", "$10,455", True),
        (r"11,\! 111,\! 111,\! 100", "11111111100", True),
        ("2100", "2, 100", False),
        ("5", "x = 5", True),
        ("4", "2x = 4", False),
        ("4", "x^2 = 4", False),
        ("x=5", "5", True),
        ("x=5", "y=5", False),
        ("y = 2x + 3", "2x+3", True),
        ("y = 2x + 3", "2y = 4x + 6", True),
        ("y = 2x + 3", "y = 2x - 3", False),
        ("1,-2", "-2, 1", True),
        ("1,-2", r"x = 1 \text{ or } x = -2", True),
        ("1,-2", "1, 1", False),
        ("1,-2", "1,-2,3", False),
        (r"3 \pm 2\sqrt{2}", r"3-2\sqrt{2}, 3+2\sqrt{2}", True),
        (r"\{1\pm\sqrt{5},-2\}", r"\{-2, 1-\sqrt{5}, 1+\sqrt{5}\}", True),
        (r"x \in [-2,7]", "[-2,7]", True),
        ("[-2,7]", r"-2 \le x \le 7", True),
        ("(3,4]", r"3 < x \leq 4", True),
        ("(3,4]", "[3,4]", False),
        (r"(-\infty, 2) \cup (3, \infty)", r"(3,\infty)\cup(-\infty,2)", True),
        (r"(-\infty, 2) \cup (3, \infty)", r"(-\infty,2)", False),
        ("(1,2)", "(2,1)", False),
        ("(1,2)", r"\left(1, 2\right)", True),
        (r"\begin{pmatrix} -1/3 \\ 2 \end{pmatrix}", r"\begin{bmatrix} -\frac13 \\ 2 \end{bmatrix}", True),
        (r"\begin{pmatrix} 1 & 2 \end{pmatrix}", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", False),
        (r"\text{Evelyn}", "Evelyn", True),
        (r"\text{even}", "odd", False),
        (r"\text{(C)}", "C", True),
        ("52_8", "52_8", True),
        ("52_8", "52", True),
        ("52_8", "52_9", False),
        ("52_8", "42", False),
        ("2:3", "4:6", True),
        ("2:3", "3:2", False),
        (r"137 \frac{1}{2}", "137.5", True),
        (r"\frac 59", "5/9", True),
        ("(a+5)(b+2)", "ab+2a+5b+10", True),
        ("(a+5)(b+2)", "ab+2a+5b+11", False),
        (r"\cot x", r"\frac{\cos x}{\sin x}", True),
        (r"6 - 5i", "-5i+6", True),
        ("2", "2, 3", False),
    ],
)  # fmt: skip
async def test_comparison(rewards, question, reference, answer, right):
    grade = await rewards.grade(question("math", reference), rf"Thus \boxed{{{answer}}}.")
    assert grade.reward == right, grade


async def test_benchmark_references_equal_themselves_and_no_other(rewards, question, shared_data):
    """MATH-500: each reference is readable, right however it is spelt, wrong for three others."""
    lines = (shared_data / "math500.jsonl").read_text().splitlines()
    references = [json.loads(line)["answer"] for line in lines]
    for reference in references:
        rewards.check(question("math", reference))

    async def reward(reference, answer):
        return (await rewards.grade(question("math", reference), rf"\boxed{{{answer}}}")).reward

    spelt = [
        (text, form) for text in references for form in (text, text.replace(r"\frac", r"\dfrac"), f"{text}.")
    ]
    rights = await asyncio.gather(*(reward(*pair) for pair in spelt))
    assert [pair for pair, right in zip(spelt, rights, strict=True) if not right] == []
    others = [(text, references[i - k]) for i, text in enumerate(references) for k in (1, 2, 3)]
    wrongs = await asyncio.gather(*(reward(*pair) for pair in others))
    known = {(text, text) for text in references} | {("x=5", "5")}
    assert {pair for pair, right in zip(others, wrongs, strict=True) if right} <= known


@pytest.mark.parametrize(
    "answer",
    [
        "2^{2^{2^{2^{2^{2^{2}}}}}}", "9" * 1500 + "!", "((" * 900 + "1", "{" * 20_000, "1" * 1_000_000,
        r"\text{a}" * 250, "%" * 1999, r"x \in " * 300, "a" * 1990 + "=!", ", " * 900, r"\sqrt" * 380,
        "answer is " * 100_000, " " * 1_000_000, r"\boxed{" * 100_000, "*" * 100_000, "1e999999999",
    ],
    ids=lambda answer: f"{answer[:12]!r}",
)  # fmt: skip
async def test_hostile_answers_are_wrong_and_quick(rewards, question, answer):
    await rewards.grade(question("math", r"\sqrt{2}"), r"\boxed{\frac{\sqrt{8}}{2}}")  # workers are up
    begin = time.perf_counter()
    for output in (rf"\boxed{{{answer}}}", f"The answer is {answer}"):
        grade = await rewards.grade(question("math", r"\sqrt{3}"), output)
        assert grade.reward == 0
    assert time.perf_counter() - begin < 15  # a hang, not a busy machine


RAMBLING = "We count the dogs one after the other, and in the end there are {} of them in the yard"


@pytest.mark.parametrize(
    ("reference", "number"),
    [
        ("30", "30"), ("-3", "-3"), ("1234567.5", "1,234,567.50"), (r"\frac{3}{4}", "3/4"), ("0.75", "3/4"),
        (r"\frac{3}{2}", "1 1/2"), ("300000000", r"3 \times 10^{8}"), ("15\\%", "15%"),
    ],
)  # fmt: skip
async def test_the_last_number_is_an_option(question, reference, number):
    output = RAMBLING.format(number)
    assert (await Rewards().grade(question("math", reference), output)).reward == 0
    with Rewards(math_fallback="last_number") as rewards:
        grade = await rewards.grade(question("math", reference), output)
        assert grade.reward == 1, grade


@pytest.mark.parametrize(
    ("output", "reward"),
    [
        (r"So \boxed{29}, as 30 is too many.", 0),
        ("The answer is 29. That is less than 30.", 0),
        ("<think>It is 30.</think>We cannot tell how many there are in the yard, as it is closed.", 0),
        (RAMBLING.format("30th"), 0),
        (RAMBLING.format("30") + ", as of 2024", 0),
        (RAMBLING.format("30"), 1),
    ],
)
async def test_the_last_number_is_taken_where_nothing_is_committed_to(question, output, reward):
    with Rewards(math_fallback="last_number") as rewards:
        assert (await rewards.grade(question("math", "30"), output)).reward == reward


@pytest.mark.parametrize("grader", ["text", "exact", "json_math", "json_number", "choice"])
async def test_the_last_number_is_for_mathematics_alone(question, grader):
    with Rewards(math_fallback="last_number") as rewards:
        reference = "B" if grader == "choice" else "30"
        assert (await rewards.grade(question(grader, reference), RAMBLING.format("30"))).reward == 0


def test_an_unknown_fallback_is_refused():
    with pytest.raises(UserError, match="math_fallback 'guess'; choose none or last_number"):
        Rewards(math_fallback="guess")


def in_process(reference: str, answer: str) -> Grade:
    grade = grade_math(rf"\boxed{{{answer}}}", reference)
    assert isinstance(grade, Grade), "needs no algebra"
    return grade


_NUMBERS = st.one_of(
    st.integers(-(10**9), 10**9).map(str),
    st.tuples(st.integers(-99, 99), st.integers(1, 99)).map(lambda pair: rf"\frac{{{pair[0]}}}{{{pair[1]}}}"),
    st.decimals(-1000, 1000, places=3).map(str),
)
_SPELLINGS = st.sampled_from(
    ["{}", " {} ", "${}$", r"\left({}\right)", "{{{}}}", r"\text{{{}}}", "x = {}", "{}.", r"\mathbf{{{}}}"]
)


@settings(max_examples=60, deadline=None)
@given(number=_NUMBERS, spelling=_SPELLINGS, wide=st.booleans())
def test_a_number_equals_itself_however_it_is_spelt(number, spelling, wide):
    spelt = spelling.format(number.replace(r"\frac", r"\dfrac") if wide else number)
    assert in_process(number, spelt).reward == 1


@settings(max_examples=60, deadline=None)
@given(number=st.integers(-(10**15), 10**15), spelling=_SPELLINGS)
def test_a_number_never_equals_itself_plus_one(number, spelling):
    assert in_process(str(number), spelling.format(number + 1)).reward == 0


@settings(max_examples=150, deadline=None)
@given(output=st.text(alphabet=st.sampled_from("\\{}()[]$,.:=+-^_ 0123ax\nfracboxedtextpm"), max_size=80))
def test_no_output_raises(output):
    for reference in ("5", r"\sqrt{2}", "x=5", r"\{1,2\}", "[0,1)", "12:00"):
        assert isinstance(grade_math(rf"\boxed{{{output}}}", reference), Grade | AlgebraQuestion)
        assert isinstance(grade_math(output, reference), Grade | AlgebraQuestion)
