"""trinity-fit end to end, on small runs: what it prints and writes, kills and resumes, and bad input."""

import csv
import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from tests.small_run import small_run
from trinity.commands.fit import fit

ROOT = Path(__file__).parents[2]
QUICKSTART = str(ROOT / "configs" / "quickstart.yaml")

# A pool that ends its own process in the middle of a generation, at the call that KILL_AT names.
KILLING_POOL = """
import os, signal
from trinity.pool.simulated import SimulatedAgent, SimulatedPool

class KillingPool(SimulatedPool):
    def __init__(self, agents: list[SimulatedAgent], seed: int = 0, ceiling: float = 0.97) -> None:
        super().__init__(agents, seed, ceiling)
        self.calls = 0

    async def complete(self, agent, messages, decode):
        self.calls += 1
        if self.calls == int(os.environ.get("KILL_AT", "-1")):
            os.kill(os.getpid(), getattr(signal, os.environ["KILL_BY"]))
        return await super().complete(agent, messages, decode)
"""


@pytest.fixture
def small(tmp_path: Path) -> list[str]:
    """Arguments of a run that takes a second."""
    pool = {"class_path": "killing_pool.KillingPool"}
    tasks = {"train": 12, "validation": 3, "test": 9}
    overlay = small_run(tmp_path / "runs", tmp_path / "cache", 4, tasks, pool=pool)
    (tmp_path / "killing_pool.py").write_text(KILLING_POOL)
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(overlay))
    return ["--config", QUICKSTART, "--config", str(tmp_path / "small.yaml")]


def run(arguments: list[str], tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """trinity-fit in a process of its own."""
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-c", "from trinity.commands.fit import fit; fit()", *arguments],
        env={**os.environ, "PYTHONPATH": path, **environment},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )


def summary(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "summary.json").read_text())
    return found


@pytest.fixture
def importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_run_prints_its_folder_first_and_last_and_fills_it(
    small: list[str], tmp_path: Path, importable: None, capsys: pytest.CaptureFixture[str]
) -> None:
    fit(small)
    lines = capsys.readouterr().out.strip().splitlines()
    folder = tmp_path / "runs" / "quickstart" / "version_0"
    assert lines[0] == lines[-1] == f"Run folder: {folder}"
    # Head: (3 + 3) x 32. Scales: 16 for keys and for values (one head of 16), 32 for each other matrix.
    assert "theta: n = 384 = head.weight 192 + svf 192" in lines
    assert lines[1] == "Threads of tensor work: 1 (model.torch_threads)"
    assert any("Smallest detectable effect on 9 held-out tasks" in line for line in lines)

    found = summary(folder)
    assert found["seed"] == 0
    assert found["torch_threads"] == 1
    assert found["generations"] == 4
    with (folder / "generations.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["J/population_mean"]) for row in rows] == found["j_series"]
    assert [row["J/validation"] != "" for row in rows] == [False, True, False, True]
    for row in rows:
        ended = [float(row[f"trajectories/{kind}"]) for kind in ("right", "wrong", "dropped")]
        assert sum(ended) == float(row["trajectories/all"]) == 12
    assert list(folder.glob("events.out.tfevents.*"))
    assert (folder / "config.yaml").is_file()
    assert {path.name for path in (folder / "checkpoints").iterdir()} == {"last.ckpt", "best.ckpt"}
    held_out = json.loads((folder / "held_out.json").read_text())
    for agent in ("sim-math", "sim-choice", "sim-text"):
        # Simulated LLMs know no limit of tokens.
        assert held_out[f"single: {agent}"] == held_out[f"single: {agent}, 4 x 4,096 tokens"]


def test_the_checkpoint_holds_theta_and_no_language_model(
    small: list[str], tmp_path: Path, importable: None
) -> None:
    fit([*small, "--trainer.max_steps", "1"])
    path = tmp_path / "runs" / "quickstart" / "version_0" / "checkpoints" / "last.ckpt"
    checkpoint = torch.load(path, weights_only=True)
    assert set(checkpoint["state_dict"]) == {"head.weight", "svf_scales"}
    assert checkpoint["trinity"] == {"torch_threads": 1, "seed": 0}
    assert path.stat().st_size < 1_000_000


def test_a_run_that_sets_no_threads_says_how_many_it_uses(small: list[str], tmp_path: Path) -> None:
    arguments = [*small, "--model.torch_threads", "null", "--trainer.max_steps", "1"]
    done = run(arguments, tmp_path, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].startswith("Threads of tensor work: 1, torch's own number")
    assert summary(tmp_path / "runs" / "quickstart" / "version_0")["torch_threads"] == 1


def test_a_seed_gives_one_result_and_another_seed_another(
    small: list[str], tmp_path: Path, importable: None
) -> None:
    for seed in ("0", "0", "1"):
        fit([*small, "--trainer.max_steps", "2", "--seed_everything", seed])
    first, again, other = (
        summary(tmp_path / "runs" / "quickstart" / f"version_{version}") for version in range(3)
    )
    assert first == again
    assert first["theta_sha256"] != other["theta_sha256"]


@pytest.mark.slow
@pytest.mark.parametrize("kill", ["SIGKILL", "SIGINT"])
def test_a_killed_run_goes_on_bit_for_bit(
    small: list[str], tmp_path: Path, importable: None, kill: str
) -> None:
    """Killed in the middle of generation 2 (of 0 to 3) and resumed, it ends as if nothing had happened."""
    fit([*small, "--name", "whole"])
    wanted = summary(tmp_path / "runs" / "whole" / "version_0")

    killed = run([*small, "--name", "killed"], tmp_path, KILL_AT="120", KILL_BY=kill)
    assert killed.returncode != 0
    assert killed.returncode == -signal.SIGKILL or kill == "SIGINT"
    folder = tmp_path / "runs" / "killed"
    assert not (folder / "version_0" / "summary.json").exists()
    before = (folder / "version_0" / "generations.csv").read_bytes()
    assert before.count(b"\n") - 1 == 2

    last = folder / "version_0" / "checkpoints" / "last.ckpt"
    if kill == "SIGINT":
        assert f"Stopped. Go on with --ckpt_path {last}" in killed.stderr
    resumed = run([*small, "--name", "killed", "--ckpt_path", str(last)], tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert summary(folder / "version_1") == wanted
    assert (folder / "version_0" / "generations.csv").read_bytes() == before


BAD_INPUT = {
    "unknown key": (["--model.nonsense", "1"], "model.nonsense"),
    "abbreviated key": (["--trainer.max_step", "1"], "trainer.max_step"),
    "unknown head": (["--model.head", "NoSuchHead"], "NoSuchHead"),
    "K": (["--model.episode.max_turns", "0"], "max_turns (K) is 0"),
    "lambda": (["--model.optimizer.init_args.population_size", "1"], "population_size must be at least 2"),
    "one model": (
        ["--model.pool.init_args.agents", '[{"name": "a", "skill": {"math": 0.5}}]'],
        "at least two",
    ),
    "minibatch": (["--data.minibatch", "99"], "data.minibatch is 99"),
    "no checkpoint": (["--ckpt_path", "/nowhere/last.ckpt"], "/nowhere/last.ckpt"),
    "several processes": (
        ["--trainer.devices", "2", "--trainer.strategy", "ddp_spawn"],
        "strategy is 'ddp_spawn'",
    ),
    "no GPU for it": (["--trainer.devices", "2", "--trainer.strategy", "fsdp"], "fsdp` requires a GPU"),
    "no place for a call": (["--model.concurrency", "0"], "model.concurrency is 0"),
    "less than nothing": (["--model.engine.tail_bytes", "-1"], "engine.tail_bytes is -1"),
    "no model": (["--model.slm.source", "gguf:no_such_package"], "no_such_package"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_answered_by_a_sentence(
    small: list[str], importable: None, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    arguments, named = BAD_INPUT[case]
    with pytest.raises(SystemExit) as stopped:
        fit([*small, *arguments])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert named in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (None, "tasks.jsonl"),
        ("", "no tasks"),
        ('{"id": "a", "query": "x"}\n', "reference"),
        ("not json\n", "line 1"),
    ],
)
def test_bad_task_files(
    small: list[str],
    importable: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    content: str | None,
    named: str,
) -> None:
    path = tmp_path / "tasks.jsonl"
    if content is not None:
        path.write_text(content)
    source = ["--data.source", "trinity.tasks.local.JsonLinesTasks", "--data.source.path", str(path)]
    with pytest.raises(SystemExit) as stopped:
        fit([*small, *source])
    assert stopped.value.code == 2
    assert named in capsys.readouterr().err


def test_a_missing_key_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    config = str(ROOT / "configs" / "lcb_sepcma.yaml")
    with pytest.raises(SystemExit) as stopped:
        fit(["--config", config, "--trainer.default_root_dir", str(tmp_path)])
    assert stopped.value.code == 2
    assert "OPENROUTER_API_KEY" in capsys.readouterr().err


def test_a_checkpoint_of_another_shape_is_refused_and_left_alone(
    small: list[str], tmp_path: Path, importable: None, capsys: pytest.CaptureFixture[str]
) -> None:
    fit([*small, "--trainer.max_steps", "1"])
    last = tmp_path / "runs" / "quickstart" / "version_0" / "checkpoints" / "last.ckpt"
    before = last.read_bytes()
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        fit([*small, "--model.svf.enabled", "false", "--ckpt_path", str(last)])
    assert stopped.value.code == 2
    assert "svf_scales" in capsys.readouterr().err
    assert last.read_bytes() == before


def test_going_on_with_another_seed_gives_a_warning(
    small: list[str], tmp_path: Path, importable: None
) -> None:
    fit([*small, "--trainer.max_steps", "1"])
    last = tmp_path / "runs" / "quickstart" / "version_0" / "checkpoints" / "last.ckpt"
    with pytest.warns(UserWarning, match="written with seed = 0, and this run has 5"):
        fit([*small, "--seed_everything", "5", "--trainer.max_steps", "2", "--ckpt_path", str(last)])


OVERLAYS = sorted(
    str(path.relative_to(ROOT / "configs").with_suffix(""))
    for folder in ("presets", "heads", "ablations", "optimizers")
    for path in (ROOT / "configs" / folder).glob("*.yaml")
)
GRADIENTS = {
    "optimizers/sft": ["--trainer.check_val_every_n_epoch", "2", "--data.minibatch", "3"],
    "optimizers/sft_paper": ["--trainer.check_val_every_n_epoch", "2", "--data.minibatch", "3"],
    "optimizers/random": ["--data.minibatch", "3"],
    "presets/spec": ["--data.minibatch", "3", "--model.optimizer.init_args.population_size", "4"],
}


def on_top(overlay: str) -> list[str]:
    return ["--config", str(ROOT / "configs" / f"{overlay}.yaml"), *GRADIENTS.get(overlay, [])]


# The call in the middle of generation 2 (of 0 to 3), found by trying; the rows before it prove it.
KILL_AT = {
    "pycma": "120",
    "random": "120",
    "blockwise": "120",
    "reinforce": "600",
    "sft": "32",
}


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", KILL_AT)
def test_every_optimizer_goes_on_bit_for_bit_after_a_kill(
    small: list[str], tmp_path: Path, importable: None, optimizer: str
) -> None:
    arguments = [*small, *on_top(f"optimizers/{optimizer}"), "--trainer.max_steps", "4"]
    fit([*arguments, "--name", "whole"])
    wanted = summary(tmp_path / "runs" / "whole" / "version_0")
    killed = run([*arguments, "--name", "killed"], tmp_path, KILL_AT=KILL_AT[optimizer], KILL_BY="SIGKILL")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    folder = tmp_path / "runs" / "killed"
    assert (folder / "version_0" / "generations.csv").read_bytes().count(b"\n") - 1 == 2
    last = folder / "version_0" / "checkpoints" / "last.ckpt"
    state = torch.load(last, weights_only=True)
    assert only_plain(state), "tensors and plain values alone"
    fit([*arguments, "--name", "killed", "--ckpt_path", str(last)])
    assert summary(folder / "version_1") == wanted


def only_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str | int) and only_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(only_plain, value))
    return value is None or isinstance(value, torch.Tensor | str | int | float | bool)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_overlays_run_on_top_of_an_experiment(
    small: list[str], tmp_path: Path, importable: None, overlay: str
) -> None:
    fit([*small, *on_top(overlay), "--trainer.max_steps", "1"])
    assert summary(tmp_path / "runs" / "quickstart" / "version_0")["generations"] == 1


def test_a_full_disk_is_a_sentence_whatever_was_being_written(
    small: list[str], importable: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "last.ckpt")

    monkeypatch.setattr("callbacks.j_logger.JLogger._write", full)
    with pytest.raises(SystemExit) as ended:
        fit(small)
    assert ended.value.code == 2
    assert (
        "trinity-fit: Cannot write last.ckpt (No space left on device): make room" in capsys.readouterr().err
    )


def test_a_dry_run_says_what_it_would_cost_and_plays_nothing(
    small: list[str], tmp_path: Path, importable: None, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("trinity.pool.simulated.SimulatedPool.complete", None)
    with pytest.raises(SystemExit) as ended:
        fit([*small, "--dry_run"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("│")] for line in out.splitlines()]
    training = next(row for row in rows if row[1:2] == ["training"])
    # 4 generations x 4 candidates x 3 tasks, at most 4 turns each.
    assert training[2:5] == ["48", "at most", "192"]
    # 3 agents on 9 held-out tasks, once each with the 4,096 tokens of a turn and with those of 4 turns.
    single, whole = (
        next(row for row in rows if row[1:2] == [name])
        for name in ("single models", "single models, whole budget")
    )
    assert single[2:5] == whole[2:5] == ["27", "at most", "27"]
    assert [row[6] for row in (single, whole)] == [f"{27 * 4096:,}", f"{27 * 4 * 4096:,}"]
    assert not list((tmp_path / "runs").rglob("last.ckpt"))
