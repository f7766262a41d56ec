"""best.ckpt: what it holds, also after a run went on in a new folder."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml

from tests.small_run import small_run
from trinity.commands.fit import fit
from trinity.module import CoordinatorModule
from trinity.tasks.task import Task

QUICKSTART = str(Path(__file__).parents[2] / "configs" / "quickstart.yaml")

Run = Callable[..., Path]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Trains to generation `to`, with the validation J that is planted; returns the folder of checkpoints."""
    tasks = {"train": 12, "validation": 3, "test": 3}
    overlay = small_run(tmp_path / "runs", tmp_path / "cache", 4, tasks)
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(overlay))

    def make(to: int, planted: dict[int, float], come_from: Path | None = None) -> Path:
        def validation_step(self: CoordinatorModule, batch: list[Task], batch_idx: int) -> None:
            self.log("J/validation", planted[self.trainer.global_step], logger=False, batch_size=1)

        monkeypatch.setattr(CoordinatorModule, "validation_step", validation_step)
        resume = [] if come_from is None else ["--ckpt_path", str(come_from)]
        before = set(tmp_path.glob("runs/quickstart/*"))
        options = ["--trainer.max_steps", str(to), *resume]
        fit(["--config", QUICKSTART, "--config", str(tmp_path / "small.yaml"), *options])
        [folder] = set(tmp_path.glob("runs/quickstart/*")) - before
        return folder / "checkpoints"

    return make


def best(checkpoints: Path) -> int:
    """The generation that best.ckpt was written after."""
    return int(torch.load(checkpoints / "best.ckpt", weights_only=True)["global_step"])


def test_the_best_is_the_highest_on_the_validation_tasks_and_said_to_be_noisy(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run(6, {2: 0.4, 4: 0.9, 6: 0.8})
    assert best(folder) == 4
    assert (
        "Best on the validation tasks: J 0.900, the highest of 3 noisy ones, so expect less on other tasks: "
        f"{folder / 'best.ckpt'}" in capsys.readouterr().out
    )


EARLIER = {2: 0.9, 4: 0.5}


@pytest.mark.parametrize(
    ("later", "wanted"),
    [({}, 2), ({6: 0.7, 8: 0.6}, 2), ({6: 0.7, 8: 0.95}, 8), ({6: 0.9, 8: 0.9}, 2)],
    ids=["no generation left", "worse", "better", "as good"],
)
def test_the_best_goes_along_into_a_new_folder(
    run: Run, capsys: pytest.CaptureFixture[str], later: dict[int, float], wanted: int
) -> None:
    first = run(4, EARLIER)
    before = (first / "best.ckpt").read_bytes()
    second = run(4 + 2 * len(later), later, first / "last.ckpt")
    assert second != first
    assert best(second) == wanted
    assert (first / "best.ckpt").read_bytes() == before, "the earlier run's own is left alone"
    assert sorted(path.name for path in second.iterdir()) == (
        ["best.ckpt", "last.ckpt"] if later else ["best.ckpt"]
    )
    said = capsys.readouterr().out.splitlines()
    highest = max([0.9, *later.values()])
    assert any(
        f"J {highest:.3f}, the highest of {2 + len(later)} noisy ones" in line and str(second) in line
        for line in said
    )


def test_it_goes_along_as_often_as_the_run_goes_on(run: Run) -> None:
    first = run(4, EARLIER)
    second = run(6, {6: 0.7}, first / "last.ckpt")
    shutil.rmtree(first)
    third = run(8, {8: 0.8}, second / "last.ckpt")
    assert best(third) == 2
    assert best(run(4, {4: 0.7}, third / "best.ckpt")) == 2, "or from the best itself"


def test_it_is_found_where_the_folder_was_moved_to(run: Run, tmp_path: Path) -> None:
    first = run(4, EARLIER)
    moved = tmp_path / "elsewhere"
    shutil.move(first, moved)
    assert best(run(6, {6: 0.7}, moved / "last.ckpt")) == 2


@pytest.mark.parametrize("spoil", ["gone", "cut off", "of a later generation"])
def test_where_it_can_not_go_along_the_best_starts_anew_and_the_run_says_so(
    run: Run, tmp_path: Path, spoil: str
) -> None:
    first = run(4, EARLIER)
    last = first / "last.ckpt"
    if spoil == "gone":
        (first / "best.ckpt").unlink()
    elif spoil == "cut off":
        (first / "best.ckpt").write_bytes((first / "best.ckpt").read_bytes()[:5000])
    else:  # the run went on from generation 4, and a copy of its last.ckpt of then is gone on from again
        kept = tmp_path / "kept.ckpt"
        shutil.copy(last, kept)
        shutil.copy(run(6, {6: 0.95}, last) / "best.ckpt", first / "best.ckpt")
        last = kept
    with pytest.warns(UserWarning, match="best.ckpt of the run up to generation 4 is neither at"):
        assert best(run(8, {6: 0.7, 8: 0.6}, last)) == 6
