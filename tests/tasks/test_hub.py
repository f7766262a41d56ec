import datasets
import pytest

from trinity.errors import UserError
from trinity.tasks.hub import hub_rows


def test_rows_say_where_they_are_from(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(repository: str, config: str | None, *, split: str) -> datasets.Dataset:
        return datasets.Dataset.from_list([{"a": f"{repository} {config} {split}"}, {"a": "b"}])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    rows = list(hub_rows("owner/name", "main", "test"))
    assert [row.values for row in rows] == [{"a": "owner/name main test"}, {"a": "b"}]
    assert rows[1].where == "owner/name (test), row 1"


@pytest.mark.parametrize(
    "error",
    [ConnectionError("offline"), datasets.exceptions.DatasetNotFoundError("gone"), ValueError("no config")],
)
def test_a_hub_out_of_reach_is_one_sentence(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def load_dataset(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(UserError, match=rf"Cannot load owner/name \(test\) .*{error}.*local file"):
        list(hub_rows("owner/name", None, "test"))
