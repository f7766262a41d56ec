import pytest

from trinity.rewards.extraction import MAX_ANSWER, last_box, math_answer, without_thinking


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{1} then \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{7} and finally \boxed{}", "7"),
        (r"\boxed{7} and finally \boxed{8", "7"),
        (r"\fbox{3}", "3"),
        (r"so $\boxed 5$.", "5"),
        (r"\boxed {4}", "4"),
        (r"$\boxed{2}$ or $\boxed{3}$", "2, 3"),
        (r"\boxed{2}, and \boxed{2}", "2"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{x = \boxed{5}}", "5"),
        ("no box", None),
    ],
)
def test_last_box(text, answer):
    assert last_box(text) == answer


def test_an_overlong_box_is_not_replaced_by_an_earlier_one():
    box = last_box(r"\boxed{1} \boxed{" + "9" * 5000 + "}")
    assert box is not None and len(box) > MAX_ANSWER


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is 12 because 3 and 4 multiply.", "12"),
        ("**Answer:** 42", "42"),
        ("Final answer:\n42\nThanks!", "42"),
        ("The answer is\n\\[\n x = 5 \n\\]\nas claimed", "x = 5"),
        ("#### 72", "72"),
        ("The answer is 3. The answer is 4.", "4"),
        ("Long text.\n\n**17**", "17"),
        ("Long text.\n\n$17$", "$17$"),
        ("42", "42"),
        ("The answer is not 7", None),
        ("I do not know.\nSorry, no idea whatsoever in the world.", None),
        ("", None),
    ],
)
def test_commitment(text, answer):
    assert math_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "rest"),
    [("<think>a</think>b", "b"), ("a</think>b", "b"), ("b<think>a", "b"), ("<think>a", ""), ("b", "b")],
)
def test_thinking_is_no_answer(text, rest):
    assert without_thinking(text) == rest
