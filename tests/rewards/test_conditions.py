"""S5: what an answer says of its variables behind its value."""

import pytest

from trinity.rewards.conditions import split_condition


@pytest.mark.parametrize(
    ("text", "value", "condition"),
    [
        ("x = 5, where x > 0", "x = 5", "x > 0"),
        (r"y=2x \text{ for } x>0", "y=2x", "x>0"),
        (r"y=2x \text{, where } x>0", "y=2x", "x>0"),
        (r"y=2x \text{ for all real x}", "y=2x", "real x"),
        ("y = 2x, x > 0", "y = 2x", "x > 0"),
        ("x = 5 (x > 0)", "x = 5", "x > 0"),
        (r"x = k\pi, k \in Z", r"x = k\pi", r"k \in Z"),
        (r"k\pi, k \in Z", r"k\pi", r"k \in Z"),
        (r"x = 2k\pi, where k is an integer", r"x = 2k\pi", "k is an integer"),
        (r"\theta = 3, \theta \in (0, \pi)", None, None),
        ("x = 5", None, None),
        ("x = 5, x > 7", None, None),
        ("x = 5, y > 7", None, None),
        ("x = 5, y = 7", None, None),
        ("x = 5, where y = 7", None, None),
        ("x = 5 for x > 0, x = 6 for x < 0", None, None),
        ("y = x if x > 0", None, None),
        ("y = x, where x > 0 or x < -1", None, None),
        ("1, 2, x > 0", None, None),
        ("x < 1, x > 0", None, None),
        ("the number for x > 0", None, None),
        (r"(1, 2), x \in Z", None, None),
    ],
)
def test_split(text, value, condition):
    assert split_condition(text) == ((value, condition) if value else (text, None))
