"""trinity-compare: a planted winner is found, none where there is none, and what users get wrong."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from transformers import PreTrainedModel

from tests.evaluation.finished_runs import outcomes, write_run
from trinity.commands.compare import main
from trinity.commands.fit import fit
from trinity.coordinator.slm import RandomShape, SLMConfig, load_slm

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "configs"

# The planted landscape, in three turns. Alone, each agent solves a task in five; a plan by the second or the
# third raises any Worker after it to 0.95. Imitation learns from single agents, whose labels know nothing of
# plans: it can't pass 0.2 by much. See `half_blind` for the head.
RARELY = {"math": 0.2, "choice": 0.2, "text": 0.2}
AGENTS = [
    {"name": "first", "skill": RARELY, "verifier_accuracy": 0.5},
    {"name": "second", "skill": RARELY, "thinker_bonus": 0.75, "verifier_accuracy": 0.5},
    {"name": "third", "skill": RARELY, "thinker_bonus": 0.75, "verifier_accuracy": 0.5},
]


def half_blind(folder: Path) -> Path:
    """A language model whose hidden state is zero in its first half, whatever it reads.

    Block-diagonal-2 reads the agents' logits from that half: they are equal in every state, and argmax takes
    the first agent, without a plan. A linear head reads the other half as well.
    """
    slm = load_slm(SLMConfig(device="cpu", random=RandomShape(hidden_size=64, layers=2)))
    decoder: Any = slm.decoder
    assert isinstance(decoder, PreTrainedModel)
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            if name.endswith("embed_tokens.weight"):
                parameter[:, :32] = 0
            elif name.endswith(("o_proj.weight", "down_proj.weight")):
                parameter[:32] = 0
    decoder.save_pretrained(folder)
    slm.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The landscape's config."""
    folder = tmp_path_factory.mktemp("planted")
    config = {
        "trainer": {"max_steps": 30, "check_val_every_n_epoch": 30},
        "model": {
            "slm": {"source": str(half_blind(folder / "slm"))},
            "svf": {"enabled": False},
            "episode": {"max_turns": 3},
            "pool": {"class_path": "trinity.pool.simulated.SimulatedPool", "init_args": {"agents": AGENTS}},
        },
        "data": {
            "source": {
                "class_path": "trinity.tasks.synthetic.SyntheticTasks",
                "init_args": {"train": 300, "validation": 6, "test": 150},
            }
        },
        "evaluation": {"controls": False},
    }
    (folder / "planted.yaml").write_text(yaml.safe_dump(config))
    return folder


def run(planted: Path, label: str, seed: int, *overlays: str) -> Path:
    """One run of a method on the landscape."""
    configs = [CONFIGS / "quickstart.yaml", planted / "planted.yaml", *(CONFIGS / name for name in overlays)]
    arguments = [word for path in configs for word in ("--config", str(path))]
    where = ["--trainer.default_root_dir", str(planted / label), "--name", f"seed_{seed}"]
    fit([*arguments, *where, "--label", label, "--seed_everything", str(seed)])
    return planted / label / f"seed_{seed}"


def compared(places: list[Path], output: Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    main([*map(str, places), "--output", str(output)])
    return capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_planted_winner_is_found_and_none_where_none_is(
    planted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    methods = {
        "evolved, linear": ["heads/linear.yaml"],
        "evolved, block-diagonal-2": ["heads/block_diagonal_2.yaml"],
        "imitation, linear": ["optimizers/sft.yaml"],
    }
    runs = {
        label: [run(planted, label, seed, *overlays) for seed in range(3)]
        for label, overlays in methods.items()
    }
    said = compared([place for places in runs.values() for place in places], tmp_path, capsys)
    assert "evolved, linear is better than every other method." in said
    text = (tmp_path / "comparison.md").read_text()
    assert "evolved, linear is better than every other method." in text
    assert (tmp_path / "j_by_trajectories.png").is_file() and (tmp_path / "held_out.png").is_file()

    # The same method under two names, with other seeds.
    twin = [run(planted, "twin", seed) for seed in range(3, 6)]
    said = compared([*runs["evolved, linear"], *twin], tmp_path, capsys)
    assert "No single winner" in said and "not distinguishable" in said


@pytest.mark.slow
def test_configs_are_run_with_every_seed_kept_and_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = tmp_path / "tiny.yaml"
    tiny.write_text(
        f"extends: [{CONFIGS / 'quickstart.yaml'}]\n"
        "trainer: {max_steps: 2, check_val_every_n_epoch: 1}\n"
        "model: {slm: {random: {hidden_size: 32, heads: 2}}, svf: {enabled: false}}\n"
        "data: {minibatch: 3, source: {init_args: {train: 12, validation: 3, test: 12}}}\n"
        "evaluation: {controls: false}\n"
    )
    root = tmp_path / "root"
    head = str(CONFIGS / "heads" / "sparse.yaml")
    command = ["--config", str(tiny), "--config", f"sparse={tiny}+{head}", "--seeds", "0", "1"]
    command += ["--root", str(root), "--jobs", "2"]
    options = ["--", "--model.concurrency", "50"]
    main([*command, *options])
    said = capsys.readouterr().out
    assert "0 of 4 runs are there; 4 to go." in said
    assert "tiny, seed 0: done" in said and "sparse, seed 1: done" in said
    assert (root / "comparison.md").is_file()
    assert len(list(root.glob("*/seed_*/version_0/summary.json"))) == 4
    config = yaml.safe_load((root / "sparse" / "seed_1" / "version_0" / "config.yaml").read_text())
    assert config["seed_everything"] == 1 and config["model"]["concurrency"] == 50
    assert config["model"]["head"]["class_path"].endswith("SparseHead")

    # One run was cut off after its last generation, before its report: it goes on from there.
    cut = root / "tiny" / "seed_0" / "version_0"
    (cut / "summary.json").unlink()
    main([*command, *options])
    said = capsys.readouterr().out
    assert "3 of 4 runs are there; 1 to go." in said
    assert (root / "tiny" / "seed_0" / "version_1" / "summary.json").is_file()

    with pytest.raises(SystemExit) as ended:
        main([*command, "--", "--model.concurrency", "60"])
    assert ended.value.code == 2
    assert "holds a run with other options" in capsys.readouterr().err


def test_a_run_that_fails_is_named_with_what_it_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text(f"extends: [{CONFIGS / 'quickstart.yaml'}]\nmodel: {{episode: {{max_turns: 0}}}}\n")
    with pytest.raises(SystemExit) as ended:
        main(["--config", str(broken), "--seeds", "0", "--root", str(tmp_path / "root")])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert "1 of 1 runs failed" in error and "max_turns (K) is 0" in error and "Traceback" not in error


WRONG = {
    "nothing": ([], "Nothing to compare"),
    "no folder": (["/nowhere"], "/nowhere is no folder"),
    "no config": (["--config", "gone.yaml"], "There is no config 'gone.yaml'"),
    "near config": (["--config", "quickstart+heads/sprase"], "near names: heads/sparse"),
    "mistyped option": (
        ["--config", "quickstart", "--", "--modle.seed", "3"],
        "There is no option --modle.seed",
    ),
    "no jobs": (["--config", str(CONFIGS / "quickstart.yaml"), "--jobs", "0"], "--jobs is 0"),
    "twice": (["--config", str(CONFIGS / "quickstart.yaml")] * 2, "Two runs would share"),
    "options for nobody": (["/nowhere", "--", "--seed_everything", "3"], "no --config is run"),
}


@pytest.mark.parametrize("case", WRONG)
def test_bad_input_is_answered_by_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    arguments, named = WRONG[case]
    with pytest.raises(SystemExit) as ended:
        main(["--root", str(tmp_path), *arguments])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert named in error and "Traceback" not in error


@pytest.fixture
def claimed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Jobs that were about to run; none does."""
    jobs: list[Any] = []

    def stop(job: Any, _: object) -> str:
        jobs.append(job)
        return "stopped before it ran."

    monkeypatch.setattr("trinity.commands.compare._run", stop)
    return jobs


def test_configs_and_options_may_be_long_or_hold_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], claimed: list[Any]
) -> None:
    config = tmp_path / "long.yaml"
    config.write_text("extends: [quickstart]\n# " + 300 * "x" + "\ndata: {minibatch: 3}\n")
    (tmp_path / "tasks.jsonl.gz").write_bytes(b"\x1f\x8b\xff\x00")
    agents = json.dumps([{"name": name, "skill": {"math": 0.5}} for name in ("a", "b", 99 * "c")])
    options = [
        "--model.pool.init_args.agents",
        agents,
        "--data.source.path",
        str(tmp_path / "tasks.jsonl.gz"),
    ]
    options += ["--data.source", "trinity.tasks.local.JsonLinesTasks", "--name", "nul\0"]
    with pytest.raises(SystemExit) as ended:
        main(["--config", str(config), "--seeds", "0", "--root", str(tmp_path / "root"), "--", *options])
    assert ended.value.code == 2
    assert "stopped before it ran." in capsys.readouterr().err

    # A folder is known by all that decides its runs.
    whole = (
        (CONFIGS / "quickstart.yaml").read_text(),
        config.read_text().replace("extends: [quickstart]\n", ""),
    )
    options = claimed[0].arguments[2:]
    options[options.index(str(tmp_path / "tasks.jsonl.gz"))] = "\x1f\udc8b\udcff\x00"
    parts = ["--config", whole[0], "--config", whole[1], *options]
    assert claimed[0].fingerprint() == hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    assert (claimed[0].folder / "fingerprint").read_text() == claimed[0].fingerprint()


def test_shipped_configs_are_named_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, claimed: list[Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["--config", "quickstart+presets/spec", "--config", "own=quickstart.yaml", "--seeds", "4"])
    assert [job.label for job in claimed] == ["quickstart+spec", "own"]
    shipped = [str(CONFIGS / name) for name in ("quickstart.yaml", "presets/spec.yaml")]
    assert claimed[0].arguments[:4] == ["--config", shipped[0], "--config", shipped[1]]


def test_a_level_outside_of_0_to_1_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "a", "a", 0, outcomes(50))
    with pytest.raises(SystemExit):
        main([str(tmp_path), "--level", "5"])
    assert "--level is 5.0" in capsys.readouterr().err
