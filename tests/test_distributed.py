"""One generation shared among processes: the same run, bit for bit."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.small_run import small_run

ROOT = Path(__file__).parent.parent
QUICKSTART = str(ROOT / "configs" / "quickstart.yaml")
DDP = ["--trainer.devices", "2", "--trainer.strategy", "ddp"]

# A pool that notes its process's calls, and fails on one process only where it is told to.
COUNTING_POOL = """
import os, pathlib
from trinity.errors import UserError
from trinity.pool.simulated import SimulatedAgent, SimulatedPool

class CountingPool(SimulatedPool):
    def __init__(self, agents: list[SimulatedAgent], seed: int = 0, ceiling: float = 0.97) -> None:
        super().__init__(agents, seed, ceiling)
        self.calls = 0

    async def complete(self, agent, messages, decode):
        self.calls += 1
        rank = os.environ.get("RANK") or os.environ.get("LOCAL_RANK", "0")
        pathlib.Path(os.environ["CALLS"], rank).write_text(str(self.calls))
        if os.environ.get("FAIL_RANK") == rank and self.calls == 20:
            raise UserError("the model refused the call")
        if os.environ.get("BREAK_RANK") == rank and self.calls == 20:
            raise RuntimeError("a bug")
        return await super().complete(agent, messages, decode)
"""


@pytest.fixture
def small(tmp_path: Path) -> list[str]:
    """Arguments of a run that takes seconds."""
    tasks = {"train": 12, "validation": 3, "test": 9}
    pool = {"class_path": "counting_pool.CountingPool"}
    overlay = small_run(tmp_path, tmp_path / "cache", 3, tasks, pool=pool)
    overlay["model"]["optimizer"]["init_args"]["population_size"] = 5
    (tmp_path / "counting_pool.py").write_text(COUNTING_POOL)
    # Lightning starts the other processes as it was started itself: by the path of a script.
    (tmp_path / "fit.py").write_text("from trinity.commands.fit import fit\nfit()\n")
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(overlay))
    return ["--config", QUICKSTART, "--config", str(tmp_path / "small.yaml")]


def command(tmp_path: Path, name: str, arguments: list[str]) -> list[str]:
    root = ["--trainer.default_root_dir", str(tmp_path / name)]
    return [sys.executable, str(tmp_path / "fit.py"), *arguments, *root]


def environment(tmp_path: Path, name: str, **more: str) -> dict[str, str]:
    (tmp_path / f"calls-{name}").mkdir()
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    return {**os.environ, "PYTHONPATH": path, "CALLS": str(tmp_path / f"calls-{name}"), **more}


def fit(tmp_path: Path, name: str, arguments: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    """trinity-fit, with all its processes; the run's folder lies below `name`."""
    return subprocess.run(
        [
            sys.executable,
            str(tmp_path / "fit.py"),
            *arguments,
            "--trainer.default_root_dir",
            str(tmp_path / name),
        ],
        env=environment(tmp_path, name, **more),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )


def folder(tmp_path: Path, name: str) -> Path:
    return tmp_path / name / "quickstart" / "version_0"


def outcome(tmp_path: Path, name: str) -> tuple[dict[str, object], str]:
    found: dict[str, object] = json.loads((folder(tmp_path, name) / "summary.json").read_text())
    return found, (folder(tmp_path, name) / "generations.csv").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["reinforce", "sft"])
def test_gradients_make_the_run_of_one_process_too(small: list[str], tmp_path: Path, optimizer: str) -> None:
    overlay = str(ROOT / "configs" / "optimizers" / f"{optimizer}.yaml")
    arguments = [*small, "--config", overlay, "--data.minibatch", "3", "--trainer.max_steps", "2"]
    arguments += ["--trainer.check_val_every_n_epoch", "2"]
    one, two = fit(tmp_path, "one", arguments), fit(tmp_path, "two", [*arguments, *DDP])
    assert (one.returncode, two.returncode) == (0, 0), two.stderr
    assert outcome(tmp_path, "two") == outcome(tmp_path, "one")
    assert int((tmp_path / "calls-two" / "1").read_text()) > 5, "the second process played its part"


def test_two_processes_make_the_run_of_one(small: list[str], tmp_path: Path) -> None:
    one, two = fit(tmp_path, "one", small), fit(tmp_path, "two", [*small, *DDP])
    assert (one.returncode, two.returncode) == (0, 0), two.stderr
    assert outcome(tmp_path, "two") == outcome(tmp_path, "one")
    assert two.stdout.count("generation 3/3") == 1, "one process speaks"
    assert two.stdout.count("trained coordinator") == 1
    assert [path.name for path in (tmp_path / "two" / "quickstart").iterdir()] == ["version_0"]
    # Each played about its half of 5 x 3 trajectories a generation, and the first one the final table, too.
    calls = [int((tmp_path / "calls-two" / rank).read_text()) for rank in ("0", "1")]
    alone = int((tmp_path / "calls-one" / "0").read_text())
    assert sum(calls) == alone
    assert calls[1] > 30

    resumed = ["--ckpt_path", str(folder(tmp_path, "one") / "checkpoints" / "last.ckpt")]
    longer = ["--trainer.max_steps", "5"]
    for name, devices in (("one-on", []), ("two-on", DDP)):
        done = fit(tmp_path, name, [*small, *devices, *longer, *resumed])
        assert done.returncode == 0, done.stderr
    assert outcome(tmp_path, "two-on") == outcome(tmp_path, "one-on")


def test_processes_that_share_the_cores_say_how_many_threads_each_has(
    small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    threads = ["--model.torch_threads", "null", "--trainer.max_steps", "1"]
    done = fit(tmp_path, "shared", [*small, *DDP, *threads])
    assert done.returncode == 0, done.stderr
    used = outcome(tmp_path, "shared")[0]["torch_threads"]
    assert f"Threads of tensor work: {used}, torch's own number" in done.stdout


def test_nodes_that_are_started_apart_make_the_run_of_one(small: list[str], tmp_path: Path) -> None:
    one = fit(tmp_path, "one", small)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    arguments = [*small, "--trainer.devices", "1", "--trainer.num_nodes", "2", "--trainer.strategy", "ddp"]
    nodes = [
        subprocess.Popen(
            [
                sys.executable,
                str(tmp_path / "fit.py"),
                *arguments,
                "--trainer.default_root_dir",
                str(tmp_path / "two"),
            ],
            env=environment(
                tmp_path, f"node-{node}", NODE_RANK=str(node), MASTER_ADDR="127.0.0.1", MASTER_PORT=port
            ),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for node in (0, 1)
    ]
    said = [node.communicate(timeout=100) for node in nodes]
    assert [one.returncode, *(node.returncode for node in nodes)] == [0, 0, 0], said
    assert outcome(tmp_path, "two") == outcome(tmp_path, "one")
    assert "trained coordinator" in said[0][0]
    assert "trained coordinator" not in said[1][0]


def test_an_error_that_one_process_meets_ends_all_with_one_sentence(small: list[str], tmp_path: Path) -> None:
    start = time.monotonic()
    found = fit(tmp_path, "failing", [*small, *DDP], FAIL_RANK="1")
    assert found.returncode == 2
    assert found.stderr.count("trinity-fit: the model refused the call") == 1
    assert "Traceback" not in found.stderr
    assert time.monotonic() - start < 120, "nobody waits for a process that is gone"


def test_a_bug_in_one_process_does_not_leave_the_other_waiting(small: list[str], tmp_path: Path) -> None:
    found = fit(tmp_path, "broken", [*small, *DDP], BREAK_RANK="1")
    assert found.returncode != 0
    assert "RuntimeError: a bug" in found.stderr


def test_more_processes_than_candidates_are_refused(small: list[str], tmp_path: Path) -> None:
    few = ["--model.optimizer.init_args.population_size", "2", "--trainer.devices", "3"]
    found = fit(tmp_path, "few", [*small, *few, "--trainer.strategy", "ddp"])
    assert found.returncode == 2
    assert found.stderr.count("3 processes, but there are only 2 candidates") == 1
