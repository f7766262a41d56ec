"""S5: the exact-text grader, right and wrong."""

import pytest

from trinity.rewards.exact_text import grade_exact


@pytest.mark.parametrize(
    ("output", "reward"),
    [
        ("bado kimu", 1),
        ("The word reads:\n\n  'bado kimu'.  ", 1),
        ("**Answer:** bado kimu\nI hope this helps.", 1),
        ("Final answer: `bado kimu`", 1),
        (r"So \boxed{bado kimu}.", 1),
        ("<think>x</think>bado kimu", 1),
        ("Bado kimu", 0),
        ("bado  kimu", 0),
        ("bado kimu\nor so", 0),
        ("badokimu", 0),
        ("", 0),
        ("x" * 10_000, 0),
    ],
)
def test_text(output, reward):
    assert grade_exact(output, "bado kimu").reward == reward
