"""Config files that extend others, and the package's own ones."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from trinity.commands.fit import fit
from trinity.configs import Config, as_arguments, expand, find_config
from trinity.errors import UserError

CONFIGS = Path(__file__).parent.parent / "configs"


def configs(*arguments: str) -> list[Config]:
    """The configs that arguments stand for."""
    return [part for part in expand(arguments) if isinstance(part, Config)]


def test_bases_come_first_then_the_file_itself(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "base.yaml").write_text("a: 1\n")
    (tmp_path / "sub" / "middle.yaml").write_text("extends: [../base.yaml]\nb: 1.0e-06\n")
    (tmp_path / "top.yaml").write_text("# says why\nextends: [sub/middle.yaml, sub/plain]\nc: 3\n")
    (tmp_path / "sub" / "plain.yaml").write_text("d: 4\n")
    found = expand(["--x", "1", "--config", str(tmp_path / "top.yaml"), "--seed", "2"])
    assert [part for part in found if isinstance(part, str)] == [*found[:2], *found[-2:]]
    assert [*found[:2], *found[-2:]] == ["--x", "1", "--seed", "2"]
    parts = [part for part in found if isinstance(part, Config)]
    assert [part.path.resolve() for part in parts] == [
        tmp_path / name for name in ("base.yaml", "sub/middle.yaml", "sub/plain.yaml", "top.yaml")
    ]
    assert [part.text for part in parts] == ["a: 1\n", "b: 1.0e-06\n", "d: 4\n", "# says why\nc: 3\n"]
    assert [part.whole for part in parts] == [True, False, True, False]


def test_all_spellings_and_other_arguments(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: 1\n")
    for spelling in ([f"--config={path}"], ["--config", str(path)], ["-c", str(path)]):
        assert expand([*spelling, "--a=2"]) == [Config(path, "a: 1\n", whole=True), "--a=2"]
    text = ["--config", "{a: 1}", "--config", "a: 1\nb: 2", "--config", "s3://bucket/a.yaml"]
    assert expand(text) == text
    for nothing in (["--config"], ["--config="], ["-c"], ["--config", "--name"]):
        with pytest.raises(UserError, match="needs the name of a config, such as -"):
            expand(nothing)


def test_a_name_is_looked_up_here_then_among_the_shipped_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("quickstart", "quickstart.yaml", "configs/quickstart.yaml", "configs/quickstart"):
        assert find_config(name) == CONFIGS / "quickstart.yaml"
    assert find_config("presets/spec") == CONFIGS / "presets" / "spec.yaml"
    assert find_config("heads/sparse.yaml") == CONFIGS / "heads" / "sparse.yaml"

    (tmp_path / "quickstart.yaml").write_text("name: mine\n")
    (tmp_path / "heads").mkdir()
    (tmp_path / "heads" / "sparse").write_text("name: mine, too\n")
    (tmp_path / "presets").mkdir()
    assert find_config("quickstart").resolve() == tmp_path / "quickstart.yaml"
    assert find_config("heads/sparse").resolve() == tmp_path / "heads" / "sparse"
    assert find_config("presets/spec") == CONFIGS / "presets" / "spec.yaml", "a folder hides nothing in it"


def test_what_extends_finds_its_own_folder_then_the_shipped_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine.yaml").write_text(
        "extends: [lcb_sepcma, heads/sparse.yaml, base]\nname: mine\n"
    )
    (tmp_path / "there" / "base.yaml").write_text("extends: [heads/sparse]\nlabel: there\n")
    (tmp_path / "base.yaml").write_text("label: here\n")
    monkeypatch.chdir(tmp_path)
    sparse = CONFIGS / "heads" / "sparse.yaml"
    found = [part.path for part in configs("--config", "there/mine")]
    assert found == [
        CONFIGS / "lcb_sepcma.yaml",
        sparse,
        sparse,
        Path("there/base.yaml"),
        Path("there/mine.yaml"),
    ]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("quickstrat", "near names: quickstart"),
        ("quickstrat.yaml", "near names: quickstart"),
        ("presets/spce", "near names: presets/spec"),
        ("spec", "near names: presets/spec"),
        ("mime", "near names: mine"),
        ("/nowhere/quickstart.yaml", "near names: quickstart"),
        ("../quickstart", "near names: quickstart"),
        ("zzzzzz", "the shipped ones are lcb_pycma, lcb_random,"),
        ("x" * 3000, "the shipped ones are lcb_pycma, lcb_random,"),
        ("nul\0", "the shipped ones are lcb_pycma, lcb_random,"),
    ],
)
def test_a_name_that_is_nowhere_is_answered_with_near_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, near: str
) -> None:
    (tmp_path / "mine.yaml").write_text("name: mine\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as stopped:
        find_config(name)
    said = str(stopped.value)
    assert said.startswith(
        f"There is no config {name[:60]!r}, neither in this folder nor among the shipped ones; "
    )
    assert near in said and "\n" not in said and len(said) < 600


def test_a_byte_order_mark_and_crlf_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_bytes(b"\xef\xbb\xbfname: b\r\n")
    (tmp_path / "top.yaml").write_bytes(b"\xef\xbb\xbfextends: [base.yaml]\r\nname: t\r\n")
    base, top = configs("--config", str(tmp_path / "top.yaml"))
    assert (base.values(), top.values()) == ({"name": "b"}, {"name": "t"})
    arguments = as_arguments([base, top], tmp_path)
    assert [Path(path).read_bytes() for path in arguments[1::2]] == [b"name: b\n", b"name: t\n"]


def test_arguments_are_names_of_files_alone(tmp_path: Path) -> None:
    (tmp_path / "long.yaml").write_text("name: whole\n")
    (tmp_path / "top.yaml").write_text("extends: [long.yaml]\n" + "".join(f"k{i}: {i}\n" for i in range(99)))
    (tmp_path / "only.yaml").write_text("extends: [top.yaml]\n")
    folder = tmp_path / "written"
    folder.mkdir()
    found = as_arguments(expand(["--config", str(tmp_path / "only.yaml"), "--x", "1"]), folder)
    assert found[::2] == ["--config"] * 3 + ["--x"]
    whole, top, only = (Path(path) for path in found[1:6:2])
    assert whole == tmp_path / "long.yaml"
    assert yaml.safe_load(top.read_text()) == {f"k{i}": i for i in range(99)}
    assert yaml.safe_load(only.read_text()) == {}
    assert {top.parent, only.parent} == {folder}


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"a: [1\n", "broken.yaml, line 2 is no YAML"),
        (b"extends: [quickstart]\na: [1\n", "broken.yaml is no YAML"),
        (b"- a\n", "broken.yaml holds '- a', but it takes lines such as"),
        (b"just words\n", "broken.yaml holds 'just words'"),
        (b"a: \xff\n", "broken.yaml is not UTF-8"),
    ],
)
def test_what_is_no_config_is_named_before_anything_is_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, named: str
) -> None:
    path = tmp_path / "broken.yaml"
    path.write_bytes(content)
    with pytest.raises(SystemExit) as ended:
        fit(["--config", str(path)])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert named in error and len(error.splitlines()) == 1


def test_what_can_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "mine.yaml").write_text("name: mine\n")
    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(UserError, match=r"Cannot read the config .*mine\.yaml \(Permission denied\)"):
        expand(["--config", str(tmp_path / "mine.yaml")])


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit((tmp_path / "pipe").write_text, "name: piped\n")
        (piped,) = configs("--config", str(tmp_path / "pipe"))
        written.result()
    arguments = as_arguments([piped], tmp_path)
    assert Path(arguments[1]).read_text() == "name: piped\n"
    assert arguments[1] != str(tmp_path / "pipe")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("extends: [gone.yaml]\n", "extends 'gone.yaml', but there is no file"),
        ("extends: [quickstrat]\n", "extends 'quickstrat', but .* near names: quickstart"),
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
    "model.rewards.init_args.math_fallback": "last_number",
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
