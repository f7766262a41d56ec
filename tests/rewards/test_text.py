"""Free-form answers: the same words or the same value, and a judge where one is named."""

import pytest

from trinity.rewards.rewards import Rewards
from trinity.rewards.text import is_mathematical


@pytest.mark.parametrize(
    ("reference", "output", "reward"),
    [
        ("Photosynthesis", "The answer is photosynthesis.", 1),
        ("The Treaty of Versailles", "Answer: treaty of Versailles", 1),
        ("the mitochondria", r"\boxed{\text{Mitochondria}}", 1),
        ("New York", "**New York**", 1),
        ("New York", "Answer: York, New", 0),
        ("dog", "Answer: god", 0),
        ("no", "Answer: on", 0),
        ("World War 2", "Answer: World War 1", 0),
        ("World War 2", "Answer: War World 2", 0),
        ("World War 2", "It was world war 2", 0),
        ("an increase", "Answer: a decrease", 0),
        ("increase", "Answer: it does not increase", 0),
        (r"36\pi", r"Answer: $36 \pi$", 1),
        (r"\frac{1}{2}mv^2", r"So \boxed{\frac{mv^2}{2}}", 1),
        ("2.5 m/s", r"\boxed{2.5\text{ m/s}}", 1),
        ("2.5 m/s", r"\boxed{2.50}", 1),
        ("2.5 m/s", r"\boxed{25}", 0),
        ("12%", r"Answer: 12\%", 1),
        ("x^2+1", r"\boxed{1+x^2}", 1),
        ("x^2+1", r"\boxed{x^2+2}", 0),
        ("5", "The result is 5.", 1),
        ("5", "The result is 6.", 0),
        ("café", "Answer: cafe\u0301", 1),
        ("5", "", 0),
        ("5", "x" * 10_000, 0),
    ],
)  # fmt: skip
async def test_free_form(rewards, question, reference, output, reward):
    grade = await rewards.grade(question("text", reference), output)
    assert grade.reward == reward, grade


@pytest.mark.parametrize(
    ("reference", "mathematical"),
    [
        (r"\sqrt{2}", True),
        ("3 apples", True),
        ("x", True),
        ("2x+1", True),
        ("Paris", False),
        ("dog 2", False),
    ],
)
def test_words_are_not_given_to_algebra(reference, mathematical):
    assert is_mathematical(reference) is mathematical


async def test_a_judge_decides_only_what_the_rules_find_different(question):
    asked = []

    async def ask(rules, texts):
        asked.append(texts)
        return "They agree.\nVERDICT: SAME" if "ten euros" in texts else "VERDICT: DIFFERENT"

    with Rewards(judge="judge") as rewards:
        task = question("text", "10 EUR", query="How much?")
        assert (await rewards.grade(task, "Answer: 10 EUR", ask)).reward == 1
        assert asked == []
        grade = await rewards.grade(task, "Answer: ten euros", ask)
        assert (grade.reward, grade.reason) == (1, "judge finds it the same")
        assert (await rewards.grade(task, "Answer: twelve euros", ask)).reward == 0
        assert (await rewards.grade(task, "Answer: ten euros", ask)).reward == 1
        assert len(asked) == 2, "grades are remembered"
        assert (await rewards.grade(question("exact", "10 EUR"), "Answer: ten euros", ask)).reward == 0
        assert (await rewards.grade(question("math", "10"), r"\boxed{11}", ask)).reward == 0
        assert len(asked) == 2, "only free-form answers are judged"


async def test_a_judge_that_fails_gives_no_grade(question):
    class DownError(Exception): ...

    async def ask(rules, texts):
        raise DownError

    with Rewards(judge="judge") as rewards:
        with pytest.raises(DownError):
            await rewards.grade(question("text", "Paris"), "Answer: the capital", ask)
        with pytest.raises(DownError):
            await rewards.grade(question("text", "Paris"), "Answer: the capital", ask)


async def test_without_a_name_no_judge_is_asked(question):
    async def ask(rules, texts):
        raise AssertionError("nobody is to be asked")

    with Rewards() as rewards:
        assert (await rewards.grade(question("text", "Paris"), "Answer: the capital", ask)).reward == 0
