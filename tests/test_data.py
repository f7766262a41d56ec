from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trinity.data import TaskDataModule
from trinity.errors import UserError
from trinity.tasks.task import Task, TaskSource, TaskSplits


def tasks(prefix: str, count: int) -> list[Task]:
    return [Task(f"{prefix}{i}", "d", f"question {i}", "r", "text", "line") for i in range(count)]


class Source(TaskSource):
    """Counts how often it is read."""

    def __init__(self, train: int = 40, backwards: bool = False) -> None:
        self.splits = TaskSplits(tasks("train", train), tasks("validation", 20), tasks("test", 30))
        if backwards:
            self.splits.test.reverse()
        self.loads = 0

    def load(self) -> TaskSplits:
        self.loads += 1
        return self.splits


def ids(found: list[Task]) -> list[str]:
    return [task.id for task in found]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 5), st.integers(0, 100), st.integers(0, 100))
def test_a_minibatch_is_a_function_of_seed_and_generation(seed: int, generation: int, other: int) -> None:
    fresh, used = (TaskDataModule(Source(), 16, seed=seed) for _ in range(2))
    used.minibatch(other)
    batch = ids(used.minibatch(generation))
    assert batch == ids(fresh.minibatch(generation))
    assert len(set(batch)) == 16
    assert set(batch) <= set(ids(fresh.splits.train))


def test_minibatches_differ_by_generation_and_by_seed() -> None:
    drawn = {
        tuple(ids(TaskDataModule(Source(), 16, seed=seed).minibatch(g))) for seed in (0, 1) for g in range(20)
    }
    assert len(drawn) == 40


def test_every_training_task_is_drawn_about_equally_often() -> None:
    data = TaskDataModule(Source(), 16)
    counts = dict.fromkeys(ids(data.splits.train), 0)
    for generation in range(250):
        for name in ids(data.minibatch(generation)):
            counts[name] += 1
    # Binomial: mean 100, standard deviation 7.7.
    assert all(65 < count < 135 for count in counts.values())


def test_a_minibatch_may_be_the_whole_split() -> None:
    assert sorted(ids(TaskDataModule(Source(5), 5).minibatch(0))) == sorted(ids(tasks("train", 5)))


@pytest.mark.parametrize("size", [0, -1, 41])
def test_a_minibatch_of_impossible_size_is_refused(size: int) -> None:
    with pytest.raises(UserError, match=rf"minibatch is {size}.* 40"):
        TaskDataModule(Source(), size).minibatch(0)


def test_the_source_is_read_once_and_not_before_it_is_needed() -> None:
    source = Source()
    data = TaskDataModule(source)
    assert source.loads == 0
    assert data.splits is data.splits
    data.minibatch(3)
    assert source.loads == 1


def test_limits_take_a_subset_of_their_split_that_does_not_depend_on_order() -> None:
    data = TaskDataModule(Source(), validation=7, test=9)
    assert (len(data.splits.validation), len(data.splits.test), len(data.splits.train)) == (7, 9, 40)
    assert set(ids(data.splits.validation)) < set(ids(tasks("validation", 20)))
    turned = TaskDataModule(Source(backwards=True), test=9).splits.test
    assert ids(turned) == ids(data.splits.test)[::-1], "the split's own order is kept"
    assert ids(data.splits.test) != ids(tasks("test", 9)), "not merely its head"


def test_limits_grow_by_adding_and_do_not_depend_on_the_seed() -> None:
    few, more = (set(ids(TaskDataModule(Source(), test=n, seed=n).splits.test)) for n in (9, 15))
    assert few < more


@pytest.mark.parametrize("limit", [None, 30, 1000])
def test_without_an_effective_limit_all_are_used(limit: int | None) -> None:
    assert ids(TaskDataModule(Source(), test=limit).splits.test) == ids(tasks("test", 30))


@pytest.mark.parametrize("split", ["validation", "test"])
@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_that_leaves_nothing_is_refused(split: str, limit: int) -> None:
    options: dict[str, Any] = {split: limit}
    with pytest.raises(UserError, match=rf"data\.{split} is {limit}"):
        _ = TaskDataModule(Source(), **options).splits


def test_loaders_give_one_batch_of_tasks() -> None:
    data = TaskDataModule(Source(), 4, validation=6)
    [train] = data.train_dataloader()
    [validation] = data.val_dataloader()
    assert train == data.minibatch(0)
    assert validation == data.splits.validation
    assert data.transfer_batch_to_device(train, torch.device("meta"), 0) is train


def test_a_loader_opened_again_gives_the_generation_at_hand() -> None:
    data = TaskDataModule(Source(), 4)

    class Trainer:
        global_step = 17

    data.trainer = Trainer()  # type: ignore[assignment]
    for _ in range(2):
        [batch] = data.train_dataloader()
        assert batch == data.minibatch(17)
