import time

import pytest

from trinity.rewards.extraction import MAX_ANSWER, last_box, last_number, math_answer, without_thinking


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


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("So there are 12 cats and 30 dogs left.", "30"),
        ("They pay $1,234,567.50 in all.", "1,234,567.50"),
        (r"They pay 1{,}234 or 12\,345 in all", r"12\,345"),
        ("one of 1,2345 and 12,34", "34"),
        ("It falls to -3 degrees", "-3"),
        ("It falls to \u22123.5 degrees.", "-3.5"),
        ("It loses -$4.", "-4"),
        ("so x=-3, of course", "-3"),
        ("so it is 10-3 then", "3"),
        ("so it is 10 - 3 then", "3"),
        ("so it is 10 -3 then", "3"),
        ("so it is (1) -3 then", "3"),
        ("The list:\n- 3 apples and so on, that is all of it, no more", "3"),
        ("We find .5 of it.", ".5"),
        ("It is 0.25.", "0.25"),
        ("It is 3/4 of the cake.", "3/4"),
        ("It is -3 / 4 of the cake.", "-3 / 4"),
        ("It takes 1 1/2 cups.", "1 1/2"),
        (r"It is \frac{3}{4} of it", r"\frac{3}{4}"),
        (r"It is -\dfrac34 of it", r"-\dfrac34"),
        (r"about 3 \times 10^{8} metres a second", r"3 \times 10^{8}"),
        ("about 3e8 metres a second", "3e8"),
        ("in all 2^5 ways", "2^5"),
        ("an area of 5 cm^2 or m^{2}, a speed of 9 m/s^{-2}, and x_1", "9"),
        ("on 3/4/2024", "3/4/2024"),
        ("at 10:30 sharp", "10:30"),
        ("Step 2: 5 of them", "5"),
        ("12% of v1.2, GPT4 and the 3rd", "12"),
        ("5kg of it", "5"),
        # the price of the option: nothing tells these from an answer
        ("There are 30 dogs. This was found in step 4.", "4"),
        ("There were 30 dogs in 1998.", "1998"),
        ("<think>It is 5.</think>I do not know.", None),
        ("I do not know. <think>It is 5", None),
        ("<think>It is 5.</think>There are 6 of them in this.", "6"),
        ("No number at all, x2 and x^2.", None),
        ("", None),
    ],
)
def test_last_number(text, number):
    assert last_number(text) == number


@pytest.mark.parametrize(
    "text",
    ["1" * 10**6, "1,111" * 10**5 + "th", "1/" * 10**6, "10^{" * 10**5, "1 1 " * 10**5, r"\frac{1" * 10**5],
    ids=lambda text: text[:4],
)
def test_the_last_number_is_found_in_linear_time(text):
    begin = time.perf_counter()
    last_number(text)
    assert time.perf_counter() - begin < 1
