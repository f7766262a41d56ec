"""Options known from the source: all that the parser knows, and what is refused the parser refuses, too."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from trinity.commands.fit import fit
from trinity.commands.training import TrinityCLI, train
from trinity.configs import expand, shipped_folder
from trinity.errors import UserError
from trinity.options import CALLBACKS, LINKED, Names, check_options

QUICKSTART = ["--config", "quickstart"]


class Reached(Exception):
    """The parser is there, and no arguments have been parsed."""


@pytest.fixture(scope="module")
def parser() -> Any:
    """The parser that trinity-fit ends up with."""
    found: list[Any] = []

    def stop(cli: TrinityCLI, *_: Any) -> None:
        found.append(cli._subcommand_parsers["fit"])
        raise Reached

    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack, pytest.raises(Reached):
        patch.setattr(TrinityCLI, "parse_arguments", stop)
        train([], stack)
    return found[0]


def refusal(*arguments: str) -> str | None:
    """What is said of arguments on top of the quickstart."""
    try:
        check_options(expand([*QUICKSTART, *arguments]))
    except UserError as error:
        return str(error)
    return None


def names_of(parser: Any) -> set[str]:
    """Every option, without dashes."""
    return {name[2:] for action in parser._actions for name in action.option_strings if name[:2] == "--"}


def test_every_option_of_the_parser_passes(parser: Any) -> None:
    names = names_of(parser)
    assert len(names) > 130
    assert refusal(*(f"--{name}=1" for name in names - {"config"})) is None


def test_what_passes_by_name_is_an_option_of_the_parser(parser: Any) -> None:
    """No name is known here alone. Below `model.cache`, which may be none, the parser lists none."""
    names = names_of(parser)
    known = set(map(".".join, Names().all()))
    without_options = {name for name in CALLBACKS if not any(n.startswith(f"{name}.") for n in names)}
    assert known - names == {"help-all", "model.cache.path", "model.cache.mode"} | without_options


def test_what_is_refused_the_parser_refuses(parser: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Each option with a slip in one of its parts."""
    slips: list[Callable[[str], str]] = [
        lambda part: f"{part}x",
        lambda part: part[:-1],
        lambda part: part[1:],
    ]
    names, refused = Names(), []
    for number, keys in enumerate(sorted(names.all())):
        place = number % len(keys)
        slipped = (*keys[:place], slips[number % len(slips)](keys[place]), *keys[place + 1 :])
        # Below what may be none, the parser stops at the first one.
        if names.unknown(slipped) is not None and slipped[:2] != ("model", "cache"):
            refused.append(f"--{'.'.join(slipped)}")
    assert len(refused) > 120
    with pytest.raises(SystemExit):
        parser.parse_args(
            ["--config", str(shipped_folder() / "quickstart.yaml"), *(f"{r}=1" for r in refused)]
        )
    said = capsys.readouterr().err.split()
    assert [name for name in refused if f"{name}=1" not in said] == []


@pytest.mark.parametrize(
    "name", sorted(p.relative_to(shipped_folder()).as_posix() for p in shipped_folder().rglob("*.yaml"))
)
def test_every_shipped_config_passes(name: str) -> None:
    check_options(expand([*QUICKSTART, "--config", name]))


@pytest.mark.parametrize("name", ["quickstart", "lcb_sepcma", "recorded_reinforce"])
def test_a_run_s_own_config_passes(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        fit(["--config", name, "--print_config"])
    (tmp_path / "config.yaml").write_text(capsys.readouterr().out)
    check_options(expand(["--config", str(tmp_path / "config.yaml")]))


MISTAKES = {
    "--modle.seed": "--seed_everything",
    "--trainer.max_step": "--trainer.max_steps",
    "--nmae": "--name",
    "--seed": "--seed_everything",
    "--model.seed": "--seed_everything",
    "--data.seed": "--seed_everything",
    "--max_steps": "--trainer.max_steps",
    "--dry-run": "--dry_run",
    "--model.slm.sorce": "--model.slm.source",
    "--model.slm.random.head": "--model.slm.random.heads",
    "--mdoel.slm.sorce": "--model.slm.source",
    "--model.cache.pth": "--model.cache.path",
    "--model.optimizer.init_args.sigma": "--model.optimizer.sigma0",
    "--model.pool.ceilin": "--model.pool.ceiling",
    "--data.source.init_args.trian": "--data.source.train",
    "--evaluation.control": "--evaluation.controls",
    "--helpall": "--help-all",
    "--zzz": None,
}


@pytest.mark.parametrize("mistyped", MISTAKES)
def test_a_mistyped_option_is_named_with_the_nearest(mistyped: str) -> None:
    nearest = MISTAKES[mistyped]
    meant = f"; did you mean {nearest}?" if nearest else ""
    assert (
        refusal(mistyped, "3")
        == f"There is no option {mistyped}{meant} (all options: trinity-fit --help-all)"
    )


def test_a_value_may_be_joined_to_its_name() -> None:
    assert refusal("--name=--nmae", "--data.minibatch=3") is None
    assert "There is no option --nmae; did" in str(refusal("--nmae=--name"))


@pytest.mark.parametrize(
    ("text", "named", "nearest"),
    [
        ("trainer: {max_step: 3}", "trainer.max_step", "trainer.max_steps"),
        ("trainer.max_step: 3", "trainer.max_step", "trainer.max_steps"),
        ("extends: [quickstart]\nmodle: {slm: {source: random}}", "modle.slm.source", "model.slm.source"),
        (
            "model: {optimizer: {init_args: {sigma: 1}}}",
            "model.optimizer.init_args.sigma",
            "model.optimizer.sigma0",
        ),
        ("model: {seed: 3}", "model.seed", "seed_everything"),
        ("nmae: x", "nmae", "name"),
    ],
)
def test_a_mistyped_key_is_named_with_its_file(tmp_path: Path, text: str, named: str, nearest: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    said = refusal("--config", str(path))
    assert said is not None
    assert said.startswith(f"There is no option {named}, which {path} sets; did you mean {nearest}? (")


@pytest.mark.parametrize(
    "passing",
    [
        [
            "--model.head",
            "SparseHead",
            "--model.head.anything",
            "1",
        ],  # a short name: whose, only the parser knows
        ["--model.pool.init_args.anything", "1", "--model.pool", "my.own.Pool"],
        [
            "--model.optimizer",
            "trinity.optimizers.random_search.RandomSearch",
            "--model.optimizer.sigma0",
            "1",
        ],
        ["--trainer.callbacks+", "x.Y", "--trainer.callbacks.anything", "1"],
        ["--trainer.logger", "true", "--model.slm.source", "--data.minibatch=3"],
        ["--model.pool.dict_kwargs.anything", "1", "--model.pool.help", "--model.cache.init_args.path", "x"],
        ["--config", "trainer: {max_step: 1}"],  # text in the place of a file
        ["--config={name: x}", "-3"],
    ],
)
def test_what_the_source_leaves_open_is_left_to_the_parser(passing: list[str]) -> None:
    assert refusal(*passing) is None


def test_a_class_s_options_are_those_of_the_classes_that_are_named(tmp_path: Path) -> None:
    pool = ["--model.pool", "trinity.pool.recorded.RecordedPool"]
    assert refusal(*pool, "--model.pool.path", "x") is None
    assert refusal(*pool, "--model.pool.agents", "x") is None, "the quickstart's pool has it; it may be meant"
    assert refusal("--model.pool.path", "x") is not None


@pytest.mark.parametrize("arguments", [["--trainer.max_steps", "3"], ["--name=x"], ["--dry_run"]])
def test_without_an_experiment_nothing_is_imported(arguments: list[str]) -> None:
    with pytest.raises(UserError, match=r"no experiment to run; give one .* such as --config quickstart"):
        check_options(expand(arguments))


def test_a_name_alone_is_no_config() -> None:
    with pytest.raises(UserError, match=r"'quickstart' stands alone; .* give it as --config quickstart"):
        check_options(expand(["quickstart"]))


def test_what_is_linked_is_set_by_an_option_of_the_parser(parser: Any) -> None:
    assert set(LINKED.values()) <= names_of(parser)
    assert not {".".join(keys) for keys in LINKED} & names_of(parser)
