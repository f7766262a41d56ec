"""S5: options that are named by their text."""

import pytest

from trinity.rewards.choice import choice_answer, grade_choice
from trinity.rewards.named import begins_with, named_option

WRITERS = ("Jane Austen", "J. Smith", "Gouldner", "none of them")


@pytest.mark.parametrize(
    ("output", "index"),
    [
        ("The answer is Gouldner.", 2),
        ("The answer is jane austen!", 0),
        ("So it is **Gouldner**.", 2),
        ("The answer is not Gouldner.", None),
        ("The answer is Gouldner or Jane Austen.", None),
    ],
)
def test_named_option(output, index):
    assert named_option(output, WRITERS) == index


@pytest.mark.parametrize(
    ("text", "option", "begins"),
    [
        ("J. Smith, of course", "J. Smith", True),
        ("j smith", "J. Smith", True),
        ("Smith", "J. Smith", False),
        ("J. Smithson", "J. Smith", False),
        ("anything", "", False),
    ],
)
def test_begins_with(text, option, begins):
    assert begins_with(text, option) == begins


@pytest.mark.parametrize(
    ("output", "letter"),
    [
        ("The writer is C. Gouldner.", "C"),
        ("The writer is B. J. Smith.", None),
        ("The writer is C. Smith.", None),
        ("The writer is (C).", "C"),
    ],
)
def test_an_initial_is_no_letter_where_the_texts_are_known(output, letter):
    assert choice_answer(output, "ABCD", WRITERS) == letter
    assert grade_choice(output, "C", "ABCD", WRITERS).reward == (letter == "C")
