"""S5: sets of real numbers, and the inequalities that describe them."""

import pytest

from trinity.rewards.structure import value_of


@pytest.mark.parametrize(
    ("text", "kind", "brackets"),
    [
        (r"-2 < x \le 7", "tuple", ["(]"]),
        (r"7 \ge x > -2", "tuple", ["(]"]),
        (r"x \ge 3", "tuple", ["[)"]),
        (r"3 \le x", "tuple", ["[)"]),
        (r"x \in [1, 2)", "tuple", ["[)"]),
        (r"\mathbb{R}", "tuple", ["()"]),
        ("ℝ", "tuple", ["()"]),
        (r"\text{all real numbers}", "tuple", ["()"]),
        ("every real number x", "tuple", ["()"]),
        (r"x < 1 \text{ or } x \ge 2", "union", ["()", "[)"]),
        ("0 < x < 1 or x > 3", "union", ["()", "()"]),
        (r"x \ne 3", "union", ["()", "()"]),
        (r"\mathbb{R} \setminus \{3\}", "union", ["()", "()"]),
        (r"x > 1 and x \le 3", "tuple", ["(]"]),
        (r"x > 1 \land x > 3", "tuple", ["()"]),
        (r"x < 1 and x > 3", "set", []),
        (r"x \le 1 and x \ge 1", "set", [""]),
        ("x < 1 or y > 2", "list", ["x < 1", "y > 2"]),
        ("x < 1, y > 2", "list", ["x < 1", "y > 2"]),
        ("x = 1 or x = 2", "list", ["x = 1", "x = 2"]),
        ("real", "text", []),
        ("all rational numbers", "text", []),
        ("y < x", "relation", []),
    ],
)
def test_type(text, kind, brackets):
    value = value_of(text)
    inside = [item.text for item in value.items] if kind in ("union", "list", "set") else [value.text]
    if kind == "set":
        inside = ["" for _ in value.items]
    assert (value.kind, inside if kind not in ("text", "relation") else []) == (kind, brackets)
