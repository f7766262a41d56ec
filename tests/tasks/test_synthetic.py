import re
from collections import Counter

import pytest

from trinity.errors import UserError
from trinity.tasks.synthetic import DOMAINS, SyntheticTasks
from trinity.tasks.task import Task, TaskSplits

VOWELS = str.maketrans("", "", "aeiou")


@pytest.fixture(scope="module")
def splits() -> TaskSplits:
    return SyntheticTasks(seed=0).load()


def everything(splits: TaskSplits) -> list[Task]:
    return [*splits.train, *splits.validation, *splits.test]


def test_the_same_seed_makes_the_same_tasks(splits: TaskSplits) -> None:
    assert SyntheticTasks(seed=0).load() == splits
    other = everything(SyntheticTasks(seed=1).load())
    assert not {task.query for task in other} & {
        task.query for task in everything(splits) if task.domain != "math"
    }


def test_splits_have_their_sizes_and_share_neither_question_nor_id(splits: TaskSplits) -> None:
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (600, 60, 300)
    whole = everything(splits)
    assert len({task.query for task in whole}) == len({task.id for task in whole}) == 960


def test_splits_stay_disjoint_where_questions_would_repeat() -> None:
    whole = everything(SyntheticTasks(train=9000, validation=30, test=9000).load())
    assert len({task.query for task in whole}) == len(whole)


def test_kinds_stand_in_equal_parts_in_every_split(splits: TaskSplits) -> None:
    for split, each in ((splits.train, 200), (splits.validation, 20), (splits.test, 100)):
        assert Counter(task.domain for task in split) == dict.fromkeys(DOMAINS, each)


def test_every_kind_has_its_grader_and_answer_format(splits: TaskSplits) -> None:
    forms = {(task.domain, task.grader, task.answer_format, task.letters) for task in everything(splits)}
    assert forms == {
        ("math", "math", "boxed", "ABCD"), ("choice", "choice", "letter", "ABCD"),
        ("text", "exact", "line", "ABCD"),
    }  # fmt: skip


def by_hand(task: Task) -> str:
    """The answer, worked out from the question's words alone."""
    if task.domain == "math":
        a, b, sign, c = re.findall(r"\d+|[+-]", task.query)
        return str(int(a) * int(b) + int(sign + c))
    if task.domain == "choice":
        options = {letter: int(value) for letter, value in re.findall(r"([A-D])\) (\d+)", task.query)}
        assert len(set(options.values())) == 4
        pick = max if "largest" in task.query else min
        return pick(options, key=options.__getitem__)
    phrase = task.query.split("'")[1]
    if "backwards" in task.query:
        return "".join(reversed(phrase))
    return phrase.upper() if "capital letters" in task.query else phrase.translate(VOWELS)


def test_references_are_right(splits: TaskSplits) -> None:
    for task in everything(splits):
        assert task.reference == by_hand(task), task.query


def test_questions_do_not_state_their_answer(splits: TaskSplits) -> None:
    assert not [t for t in everything(splits) if t.domain == "text" and t.reference in t.query]


def test_every_letter_and_wording_occurs(splits: TaskSplits) -> None:
    letters = Counter(task.reference for task in splits.train if task.domain == "choice")
    assert min(letters[letter] for letter in "ABCD") > 25
    for domain, wordings in (("math", 4), ("choice", 3), ("text", 3)):
        first_words = {task.query.split()[0] for task in splits.train if task.domain == domain}
        assert len(first_words) == wordings


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_an_empty_split_is_refused(split: str) -> None:
    with pytest.raises(UserError, match="0"):
        SyntheticTasks(**{split: 0}).load()
