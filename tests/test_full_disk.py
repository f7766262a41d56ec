"""A run whose disk is full: one sentence, nothing corrupt, and it goes on when there is room."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.small_run import small_run

ROOT = Path(__file__).parent.parent
QUICKSTART = str(ROOT / "configs" / "quickstart.yaml")

# Inside a name space with a small file system at DISK: run, look at what is left, make room, go on.
SCRIPT = """
import json, os, sqlite3, subprocess, sys
from pathlib import Path
import torch
disk, arguments = Path(sys.argv[1]), sys.argv[2:]
fit = [sys.executable, "-c", "from trinity.commands.fit import fit; fit()", *arguments]
ballast = disk / "ballast"
ballast.write_bytes(b"x" * int(os.environ["BALLAST"]))
first = subprocess.run(fit, capture_output=True, text=True)
folder = disk / "runs" / "quickstart" / "version_0"
checkpoint = folder / "checkpoints" / "last.ckpt"
found = {"code": first.returncode, "err": first.stderr, "checkpoint": checkpoint.exists()}
if checkpoint.exists():
    found["generation"] = torch.load(checkpoint, weights_only=True)["global_step"]
found["integrity"] = sqlite3.connect(disk / "cache.sqlite").execute("PRAGMA integrity_check").fetchone()[0]
ballast.unlink()
goes_on = ["--ckpt_path", str(checkpoint)] if checkpoint.exists() else []
second = subprocess.run([*fit, *goes_on], capture_output=True, text=True)
found["second"] = [second.returncode, second.stderr[-2000:]]
summaries = sorted(disk.glob("runs/quickstart/*/summary.json"))
found["summary"] = json.loads(summaries[-1].read_text()) if summaries else None
print(json.dumps(found))
"""


@pytest.fixture
def config(tmp_path: Path) -> list[str]:
    disk = tmp_path / "disk"
    disk.mkdir()
    cache = {"path": str(disk / "cache.sqlite")}
    tasks = {"train": 12, "validation": 3, "test": 6}
    overlay = small_run(disk / "runs", tmp_path / "slm", 4, tasks, cache=cache)
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(overlay))
    return [str(disk), "--config", QUICKSTART, "--config", str(path)]


SIZE = 16 << 20


def run_on_a_small_disk(config: list[str], ballast: int) -> dict[str, object]:
    bubblewrap = shutil.which("bwrap")
    if bubblewrap is None:
        pytest.skip("there is no bwrap to make a small file system with")
    name_space = [bubblewrap, "--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc"]
    name_space += ["--size", str(SIZE), "--tmpfs", config[0]]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "BALLAST": str(ballast)}
    done = subprocess.run(
        [*name_space, "--", sys.executable, "-c", SCRIPT, *config],
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0 and "bwrap:" in done.stderr:
        pytest.skip(f"bwrap makes no small file system here: {done.stderr.strip()[:200]}")
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_full_disk_loses_nothing(config: list[str]) -> None:
    whole = run_on_a_small_disk(config, 0)
    assert whole["code"] == 0, whole["err"]
    endings = set()
    for room_kib in (120, 400, 1400):
        found = run_on_a_small_disk(config, SIZE - (room_kib << 10))
        if found["code"] == 0:
            continue
        error = str(found["err"])
        assert found["code"] == 2, error
        assert "Traceback" not in error
        sentences = [line for line in error.splitlines() if line.startswith("trinity-fit: ")]
        assert len(sentences) == 1, error
        assert "make room" in sentences[0]
        assert found["integrity"] == "ok"
        assert found["second"] == [0, found["second"][1]], found["second"]  # type: ignore[index]
        assert found["summary"] == whole["summary"], "it ends as the uninterrupted run does"
        endings.add(sentences[0])
    assert endings, "the disk was full at least once"
