"""Rows of a data set on the Hugging Face hub."""

from collections.abc import Iterator

from trinity.errors import UserError
from trinity.tasks.jsonl import Row


def hub_rows(repository: str, config: str | None, split: str) -> Iterator[Row]:
    """The rows of one split, in order. Raises UserError if the hub or the data set cannot be reached."""
    import datasets  # seconds, which a run on local files does not need

    try:
        rows = datasets.load_dataset(repository, config, split=split)
    except (OSError, ValueError) as error:
        raise UserError(
            f"Cannot load {repository} ({split}) from the Hugging Face hub ({error}): check the"
            " connection, or give a local file."
        ) from error
    for index, row in enumerate(rows):
        yield Row(row, f"{repository} ({split}), row {index}")
