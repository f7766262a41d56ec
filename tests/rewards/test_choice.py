"""S5: the choice grader, right and wrong."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trinity.rewards.choice import choice_answer, grade_choice


def test_bank(choice_case):
    if "answer" in choice_case:
        options = choice_case.get("options", ())
        assert choice_answer(choice_case["output"], choice_case["letters"], options) == choice_case["answer"]
        return
    grade = grade_choice(choice_case["output"], choice_case["reference"], choice_case["letters"])
    assert grade.reward == choice_case["expected"], grade


@pytest.mark.parametrize(
    ("output", "letter"),
    [
        ("B", "B"),
        ("(c)", "C"),
        ("Reasoning.\n\n**D**", "D"),
        ("<answer>B</answer>", "B"),
        ('{"reasoning": "A looks good", "answer": "D"}', "D"),
        ("I would go with option C.", "C"),
        ("Therefore, option B is correct.", "B"),
        ("B is the correct answer.", "B"),
        (r"Hence $\boxed{\text{(A)}}$", "A"),
        ("Réponse : D", "D"),
        ("The correct option is (A).", "A"),
        ("The answer is B.\nWait, B is wrong.", None),
        ("The answer is not B.", None),
        ("I don't think the answer is B.", None),
        ("If the answer is B, then x = 2.", None),
        ("Is the answer B?", None),
        ("The answer is A or B.", None),
        ("The answer is a prime number.", None),
        ("The answer is A good one to know.", None),
        ("A) 1 B) 2 C) 3 D) 4", None),
        ("A nice result.", None),
        ("", None),
        ("The answer is E", None),
    ],
)
def test_choice_answer(output, letter):
    assert choice_answer(output, "ABCD") == letter


def test_pronoun_is_no_letter():
    assert choice_answer("So the answer is what I computed", "ABCDEFGHIJ") is None
    assert choice_answer("The answer is I.", "ABCDEFGHIJ") == "I"


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet=st.sampled_from("ABCDI answer isnot:.()*\\{}boxed\n,?"), max_size=200))
def test_no_output_raises(output):
    assert choice_answer(output, "ABCDEFGHIJ") in (*"ABCDEFGHIJ", None)


@pytest.mark.parametrize(
    "output",
    [
        " " * 10**6, "(" * 10**6, "answer is " * 10**5, "the " * 10**5, "*" * 10**6,
        "s are:\n(A) x\n(A) y\n" * 10**5, " is (A) " * 10**5, " is B. Text " * 10**5, "not " * 10**5,
        "none of the options match " * 10**5, " is\nB. x" * 10**5, "$A " * 10**5, "\n- (A) 1" * 10**5,
    ],
    ids=lambda output: f"{output[:12]!r}",
)  # fmt: skip
def test_huge_outputs_are_quick(output):
    begin = time.perf_counter()
    choice_answer("answer" + output, "ABCD")
    assert time.perf_counter() - begin < 2


PLANETS = ("Venus", "Mars", "the planet Mercury", "Mercury")


@pytest.mark.parametrize(
    ("output", "letter"),
    [
        ("The answer is Venus.", "A"),
        (r"\boxed{\text{Mars}}", "B"),
        ("So it must be one of these.\n\n**mars!**", "B"),
        ("The answer is the planet Mercury.", "C"),
        ("Answer: Mercury", "D"),
        ("The answer is Venus or Mars.", None),
        ("The answer is not Venus.", None),
        ("The answer is Jupiter.", None),
        ("Venus is hot. Mars is cold.", None),
        ("The answer is Venus.\nAnswer: B", "B"),
        ("Marshland", None),
    ],
)
def test_an_option_may_be_named_by_its_text(output, letter):
    for reference in "ABCD":
        assert grade_choice(output, reference, "ABCD", PLANETS).reward == (reference == letter)


@pytest.mark.parametrize(
    ("output", "options", "letter"),
    [
        ("The answer is 15.", ("5", "15", "1.5", "-15"), "B"),
        ("The answer is -15.", ("5", "15", "1.5", "-15"), "D"),
        ("The answer is 1.5", ("5", "15", "1.5", "-15"), "C"),
        ("The answer is 5", ("5", "5", "6", "7"), None),
        ("The answer is 5 m", ("5 m", "5 cm", "5 km", "5"), "A"),
    ],
)
def test_numbers_are_named_whole(output, options, letter):
    found = [
        x for x, _ in zip("ABCD", options, strict=True) if grade_choice(output, x, "ABCD", options).reward
    ]
    assert found == ([letter] if letter else [])


_ANCHOR = st.sampled_from(
    [
        "Answer: {}",
        "The answer is {}.",
        "**Answer:** {}",
        "\\boxed{{{}}}",
        "I choose {}",
        '{{"answer": "{}"}}',
    ]
)
_LETTER = st.sampled_from(["{}", "({})", "**{}**", "${}$", "\\text{{{}}}", "`{}`", "[{}]"])


@settings(max_examples=100, deadline=None)
@given(
    letter=st.sampled_from("ABCDEFGHIJ"),
    anchor=_ANCHOR,
    spelling=_LETTER,
    before=st.text("abcdefgh ,\n", max_size=50),
)
def test_a_commitment_is_read_however_it_is_spelt(letter, anchor, spelling, before):
    output = f"{before}\n{anchor.format(spelling.format(letter))}"
    assert choice_answer(output, "ABCDEFGHIJ") == letter


@settings(max_examples=100, deadline=None)
@given(
    first=st.sampled_from("BCD"),
    second=st.sampled_from("EFGH"),
    joint=st.sampled_from(["or", "and", "/", ","]),
)
def test_two_letters_are_no_commitment(first, second, joint):
    assert choice_answer(f"The answer is {first} {joint} {second}.", "ABCDEFGHIJ") is None


@settings(max_examples=100, deadline=None)
@given(
    letters=st.lists(st.sampled_from("BCDEF"), min_size=2, max_size=4),
    bullet=st.sampled_from(["* ", "- ", ""]),
)
def test_several_answers_count_if_they_agree(letters, bullet):
    items = "\n".join(f"{bullet}({letter}) for part {number}" for number, letter in enumerate(letters))
    agreed = letters[0] if len(set(letters)) == 1 else None
    assert choice_answer(f"The answers are:\n{items}", "ABCDEFGHIJ") == agreed


@settings(max_examples=100, deadline=None)
@given(
    letter=st.sampled_from("ABCDEFGHIJ"),
    opening=st.sampled_from(["$", "$$\n", "\\(", "\\[\n"]),
    before=st.sampled_from(["Hence ", "The answer is ", "We have "]),
)
def test_a_letter_in_a_formula_that_was_cut_is_no_answer(letter, opening, before):
    assert choice_answer(f"{before}{opening}{letter}", "ABCDEFGHIJ") is None


@settings(max_examples=100, deadline=None)
@given(
    shown=st.integers(2, 10),
    colon=st.sampled_from(["Consider each choice:", "Now every option:", "The options:"]),
)
def test_a_legend_that_was_cut_is_no_answer(shown, colon):
    legend = "\n".join(f"({letter}) means ({letter.lower()} and q)." for letter in "ABCDEFGHIJ"[:shown])
    for cut in range(len(colon) + 5, len(colon) + len(legend), 7):
        assert choice_answer(f"{colon}\n{legend}"[:cut], "ABCDEFGHIJ") is None
