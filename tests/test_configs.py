"""Config files that extend others, and the package's own ones."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from trinity.commands.fit import fit
from trinity.configs import expand
from trinity.errors import UserError

CONFIGS = Path(__file__).parent.parent / "configs"


def test_bases_come_first_then_the_file_itself(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "base.yaml").write_text("a: 1\n")
    (tmp_path / "sub" / "middle.yaml").write_text("extends: [../base.yaml]\nb: 1.0e-06\n")
    (tmp_path / "top.yaml").write_text("# says why\nextends: [sub/middle.yaml, sub/plain.yaml]\nc: 3\n")
    (tmp_path / "sub" / "plain.yaml").write_text("d: 4\n")
    found = expand(["--x", "1", "--config", str(tmp_path / "top.yaml"), "--seed", "2"])
    base, middle, plain, top = (found[i] for i in (3, 5, 7, 9))
    assert found == [
        "--x",
        "1",
        *(w for p in (base, middle, plain, top) for w in ("--config", p)),
        "--seed",
        "2",
    ]
    assert Path(base).resolve() == (tmp_path / "base.yaml").resolve()
    assert Path(plain) == tmp_path / "sub" / "plain.yaml"
    assert (middle, top) == ("b: 1.0e-06\n", "# says why\nc: 3\n")


def test_both_spellings_and_other_arguments(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: 1\n")
    assert expand([f"--config={tmp_path / 'a.yaml'}", "--a=2"]) == [
        "--config",
        str(tmp_path / "a.yaml"),
        "--a=2",
    ]
    assert expand(["--config", "missing.yaml"]) == ["--config", "missing.yaml"]
    assert expand(["--config"]) == ["--config"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("extends: [gone.yaml]\n", "extends 'gone.yaml', but there is no file"),
        ("extends: [self.yaml]\n", "extends itself"),
        ("extends: base.yaml\n", "takes a list on one line"),
        ("extends: [\n", "takes a list on one line"),
        ("extends: []\n", "takes a list on one line"),
        ("extends: [1]\n", "takes a list on one line"),
    ],
)
def test_what_can_not_be_extended_is_named(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "self.yaml").write_text(text)
    with pytest.raises(UserError, match=named):
        expand(["--config", str(tmp_path / "self.yaml")])


@pytest.mark.parametrize("experiment", ["lcb", "quickstart", "recorded"])
def test_every_experiment_has_its_five_optimizers_and_no_copies(experiment: str) -> None:
    for optimizer in ("sepcma", "pycma", "random", "sft", "reinforce"):
        path = CONFIGS / f"{experiment}_{optimizer}.yaml"
        if "extends" not in path.read_text():
            assert optimizer == "sepcma"
            continue
        content = yaml.safe_load(path.read_text())
        assert content["name"] == f"{experiment}_{optimizer}"
        assert f"optimizers/{optimizer}.yaml" in content["extends"]
        assert len(path.read_text().splitlines()) < 10


@pytest.mark.parametrize("name", sorted(path.name for path in CONFIGS.glob("*.yaml")))
def test_every_config_is_one_that_the_parser_takes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        fit(["--config", str(CONFIGS / name), "--print_config"])
    assert ended.value.code == 0
    config = yaml.safe_load(capsys.readouterr().out)
    assert config["name"] == name.removesuffix(".yaml")


SPEC = {
    # Section 0.2 and 0.3, then 3.2, 4.1 to 4.7, 5.2, 5.3 of the method's text.
    "model.optimizer.init_args.population_size": 33,
    "model.svf.enabled": True,
    "model.svf.layer": None,
    "model.svf.energy_preserving": False,
    "model.extraction.hidden_norm": "l2",
    "evaluation.whole_budget": True,
    "model.episode.verifier_first": "continue",
    "model.extraction.rendering": "raw",
    "model.extraction.read_position": "penultimate",
    "model.head.class_path": "trinity.coordinator.heads.LinearHead",
    "model.episode.max_turns": 5,
    "model.episode.final_answer": "last_output",
    "model.episode.decode.max_tokens": 4096,
    "model.episode.decode.temperature": 0.0,
    "model.episode.decode.top_p": 1.0,
    "model.episode.decode.reasoning_effort": "minimal",
    "model.selection.training": "sample",
    "model.selection.evaluation": "argmax",
    "model.episode.thinker_names_role": False,
    "model.episode.router_view": "all",
    "model.episode.max_output_tokens": 2000,
    "model.episode.roles": ["thinker", "worker", "verifier"],
    "model.objective.init_args.common_random_numbers": False,
    "model.objective.init_args.again": 0,
    "data.minibatch": 16,
    "model.optimizer.class_path": "trinity.optimizers.sep_cma.SepCMAES",
    "model.optimizer.init_args.sigma0": 0.1,
    "trainer.max_steps": 60,
}


def printed(capsys: pytest.CaptureFixture[str], *names: str) -> dict[str, Any]:
    """The configuration that these files make together."""
    arguments = [word for name in names for word in ("--config", str(CONFIGS / f"{name}.yaml"))]
    with pytest.raises(SystemExit):
        fit([*arguments, "--print_config"])
    found: dict[str, Any] = yaml.safe_load(capsys.readouterr().out)
    return found


def at(config: Any, place: str) -> Any:
    for part in place.split("."):
        config = config[part]
    return config


def test_the_spec_preset_is_the_methods_text_on_any_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    for experiment in ("lcb_sepcma", "quickstart"):
        config = printed(capsys, experiment, "presets/spec")
        assert {place: at(config, place) for place in SPEC} == SPEC
        assert len(config["model"]["svf"]["matrices"]) == 7
    assert config["model"]["block_scales"] == {"head": 1.0, "svf": 1.0}, "the quickstart's own is 6"


def test_the_spec_preset_keeps_an_experiments_sandbox(capsys: pytest.CaptureFixture[str]) -> None:
    config = printed(capsys, "lcb_sepcma", "presets/spec")
    assert at(config, "model.rewards.init_args.sandbox") == "bubblewrap"


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("lcb_random", "lcb_sepcma"),
        ("quickstart_random", "quickstart"),
        ("recorded_random", "recorded_sepcma"),
    ],
)
def test_random_search_plays_as_many_trajectories_with_32_trials_a_candidate(
    name: str, base: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # n of each experiment, from which an evolution strategy has its population size.
    populations = {"lcb_sepcma": 33, "quickstart": 24, "recorded_sepcma": 29}
    played = []
    for one in (name, base):
        with pytest.raises(SystemExit):
            fit(["--config", str(CONFIGS / f"{one}.yaml"), "--print_config"])
        config = yaml.safe_load(capsys.readouterr().out)
        size = config["model"]["optimizer"]["init_args"]["population_size"] or populations[base]
        played.append(size * config["data"]["minibatch"] * config["trainer"]["max_steps"])
        if one == name:
            assert config["data"]["minibatch"] == 32
    assert played[0] == played[1]
