"""Which tasks are trained on, validated on, reported on: decided by a hash of the task's id."""

from collections.abc import Iterable, Sequence

from trinity.errors import UserError
from trinity.keyed import uniform
from trinity.tasks.task import Task, TaskSplits

Share = int | float
Named = tuple[Task, str]
"""A task, and the words that say where it was read."""


def carve(tasks: Sequence[Task], share: Share, split: str) -> tuple[list[Task], list[Task]]:
    """Two lists, what goes to the split and the rest, both in the given order.

    Args:
        tasks: with unique ids.
        share: a float in [0, 1] is the chance of each task by its own id alone, so a task keeps its place
            when others come or go; an int is an exact count, the tasks with the lowest hashes.
        split: part of the hashed key, so that carving twice is independent.

    Raises:
        UserError: if the share is out of range, or leaves the split empty though it asked for some.
    """
    if not 0 <= share <= (1 if isinstance(share, float) else len(tasks)):
        raise UserError(
            f"{split} = {share} cannot be carved from {len(tasks)} tasks: give a fraction from 0.0 to 1.0,"
            " or a count."
        )
    chance = {task.id: uniform("split", split, task.id) for task in tasks}
    if isinstance(share, float):
        chosen = {task_id for task_id, u in chance.items() if u < share}
    else:
        chosen = set(sorted(chance, key=lambda task_id: (chance[task_id], task_id))[:share])
    if share and not chosen:
        raise UserError(f"{split} = {share} of {len(tasks)} tasks is none: give a larger share.")
    return [task for task in tasks if task.id in chosen], [task for task in tasks if task.id not in chosen]


def split_one(named: Iterable[Named], *, test: Share, validation: Share) -> TaskSplits:
    """Splits of one list: carve the test split, then validation from what is left; train is the rest.

    Raises UserError if an id comes twice or a share is out of range.
    """
    held_out, rest = carve(_unique(named), test, "test")
    validated, train = carve(rest, validation, "validation")
    return TaskSplits(train, validated, held_out)


def split_two(train: Sequence[Named], test: Sequence[Named], *, validation: Share) -> TaskSplits:
    """Splits of a benchmark with its own training and test lists: only validation is carved, from train.

    Raises UserError if an id comes twice, within a list or across, or the share is out of range.
    """
    tasks = _unique([*train, *test])
    validated, rest = carve(tasks[: len(train)], validation, "validation")
    return TaskSplits(rest, validated, tasks[len(train) :])


def _unique(named: Iterable[Named]) -> list[Task]:
    first: dict[str, str] = {}
    tasks = []
    for task, where in named:
        if task.id in first:
            raise UserError(
                f"{where}: the id {task.id!r} is already used in {first[task.id]}: make ids unique."
            )
        first[task.id] = where
        tasks.append(task)
    return tasks
