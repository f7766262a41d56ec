import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trinity.errors import UserError
from trinity.tasks.splits import Named, carve, split_one, split_two
from trinity.tasks.task import Task, TaskSplits


def task(task_id: str) -> Task:
    return Task(task_id, "d", "q", "r", "text", "line")


def named(count: int, prefix: str = "t") -> list[Named]:
    return [(task(f"{prefix}{i}"), f"line {i}") for i in range(count)]


def ids(tasks: list[Task]) -> list[str]:
    return [task.id for task in tasks]


@settings(max_examples=40, deadline=None)
@given(
    st.sets(st.text(max_size=5), min_size=20, max_size=60),
    st.sampled_from([0.3, 0.5, 4, 7]),
    st.sampled_from([0.4, 2]),
)
def test_splits_are_disjoint_and_complete(names: set[str], test: float, validation: float) -> None:
    tasks = [(task(name), "") for name in names]
    try:
        splits = split_one(tasks, test=test, validation=validation)
    except UserError as error:
        assert "is none" in str(error)
        return
    parts = [set(ids(part)) for part in (splits.train, splits.validation, splits.test)]
    assert sum(map(len, parts)) == len(names)
    assert set.union(*parts) == names
    if isinstance(test, int):
        assert len(parts[2]) == test


def test_fractions_come_out_about_right_and_independent() -> None:
    splits = split_one(named(4000), test=0.5, validation=0.25)
    assert len(splits.test) == pytest.approx(2000, abs=130)
    assert len(splits.validation) == pytest.approx(500, abs=80)


def test_the_split_is_fixed() -> None:
    splits = split_one(named(12), test=0.5, validation=2)
    assert ids(splits.test) == ["t3", "t9", "t10", "t11"]
    assert ids(splits.validation) == ["t0", "t5"]


def test_a_task_keeps_its_place_under_a_fraction_when_others_come() -> None:
    few, many = (split_one(named(count), test=0.4, validation=0.3) for count in (50, 500))
    for part in ("train", "validation", "test"):
        assert set(ids(getattr(few, part))) <= set(ids(getattr(many, part)))


def test_order_of_the_file_does_not_matter_but_is_kept() -> None:
    forward = split_one(named(40), test=7, validation=0.3)
    backward = split_one(named(40)[::-1], test=7, validation=0.3)
    for part in ("train", "validation", "test"):
        assert ids(getattr(forward, part)) == ids(getattr(backward, part))[::-1]


def test_nothing_and_everything() -> None:
    all_tasks = [task for task, _ in named(9)]
    assert carve(all_tasks, 0.0, "test") == carve(all_tasks, 0, "test") == ([], all_tasks)
    assert carve(all_tasks, 1.0, "test") == carve(all_tasks, 9, "test") == (all_tasks, [])
    assert len(carve(all_tasks, 1, "test")[0]) == 1


@pytest.mark.parametrize("share", [-0.1, 1.1, -1, 10, float("nan")])
def test_a_share_out_of_range_is_named(share: float) -> None:
    with pytest.raises(UserError, match=f"validation = {share} cannot be carved from 9 tasks"):
        split_two(named(9), named(3, "u"), validation=share)


def test_a_split_that_comes_out_empty_is_named() -> None:
    with pytest.raises(UserError, match=r"test = 1e-05 of 9 tasks is none"):
        split_one(named(9), test=1e-5, validation=0.5)


def test_two_lists_keep_to_themselves() -> None:
    splits = split_two(named(30), named(5, "u"), validation=4)
    assert ids(splits.test) == [f"u{i}" for i in range(5)]
    assert len(splits.validation) == 4
    assert len(splits.train) == 26


@pytest.mark.parametrize("across", [False, True])
def test_an_id_that_comes_twice_is_named_with_both_lines(across: bool) -> None:
    again = (task("t3"), "line 99")

    def split() -> TaskSplits:
        if across:
            return split_two(named(9), [again], validation=0.5)
        return split_one([*named(9), again], test=0.5, validation=0.5)

    with pytest.raises(UserError, match=r"line 99: the id 't3' is already used in line 3"):
        split()
