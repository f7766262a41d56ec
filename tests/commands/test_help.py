"""What every console script answers at once: help, and a mistake in an option's name.

Not timed here (see tests/benchmarks/first_contact.py): imports are what takes the time, and what is imported
is looked at.
"""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from trinity.commands.fit import HELP, fit
from trinity.configs import find_config
from trinity.options import Names

ROOT = Path(__file__).parents[2]
SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
HEAVY = {
    "torch", "lightning", "transformers", "litellm", "evotorch", "torchmetrics", "cma", "datasets",
    "matplotlib", "scipy", "sympy", "math_verify", "pandas", "numpy",
}  # fmt: skip
RUN = """
import atexit, importlib, json, sys
place, function = sys.argv[1].split(":")
sys.argv = sys.argv[1:]
packages = lambda: sorted({name.split(".")[0] for name in sys.modules})
atexit.register(lambda: print(json.dumps(packages()), file=sys.stderr))
getattr(importlib.import_module(place), function)()
"""


def answer(script: str, *arguments: str, folder: Path) -> tuple[int, str, str, set[str]]:
    """Exit code, output, errors, and the packages that were imported, of a console script."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, SCRIPTS[script], *arguments], cwd=folder, capture_output=True, text=True
    )
    *said, modules = done.stderr.splitlines()
    return done.returncode, done.stdout, "\n".join(said), set(json.loads(modules))


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_fits_a_screen_and_imports_nothing_heavy(script: str, tmp_path: Path) -> None:
    code, out, err, imported = answer(script, "--help", folder=tmp_path)
    assert (code, err) == (0, "")
    assert script in out
    assert 10 < len(out.splitlines()) <= 40
    assert max(map(len, out.splitlines())) <= 100
    assert not imported & HEAVY


@pytest.mark.parametrize(
    ("script", "arguments", "named"),
    [
        ("trinity-fit", ["--modle.seed", "3"], "--modle.seed"),
        ("trinity-fit", ["--config", "quickstart", "--trainer.max_step", "3"], "--trainer.max_step"),
        ("trinity-fit", ["--nmae", "x"], "--nmae"),
        (
            "trinity-fit",
            ["--config", "quickstart", "--model.optimizer.init_args.sigma", "1"],
            "init_args.sigma",
        ),
        ("trinity-fit", ["--config", "quickstrat"], "'quickstrat'"),
        ("trinity-fit", ["quickstart"], "'quickstart'"),
        ("trinity-fit", ["--config"], "--config"),
        ("trinity-compare", ["--sedes", "3"], "--sedes"),
        ("trinity-compare", ["--config", "quickstart", "--", "--nmae", "x"], "--nmae"),
        ("trinity-grade", ["--jsn", "x"], "--jsn"),
        ("trinity-cache", ["stats", "x", "--jsn"], "--jsn"),
        ("trinity-local", ["up", "--prot", "1"], "--prot"),
    ],
)
def test_a_mistyped_option_is_named_and_imports_nothing_heavy(
    script: str, arguments: list[str], named: str, tmp_path: Path
) -> None:
    code, out, err, imported = answer(script, *arguments, folder=tmp_path)
    assert (code, out) == (2, "")
    assert named in err
    assert "Traceback" not in err
    assert script != "trinity-fit" or len(err.splitlines()) == 1
    assert not imported & HEAVY
    assert list(tmp_path.iterdir()) == []


def test_nothing_at_all_is_answered_by_the_help(tmp_path: Path) -> None:
    code, out, err, _ = answer("trinity-fit", folder=tmp_path)
    assert (code, out, err) == (2, "", HELP.rstrip("\n"))


def test_the_help_names_options_and_configs_that_there_are() -> None:
    names = Names()
    words = [word.strip("(),") for word in HELP.split()]
    options = {word for word in words if word.startswith("--")} - {"--OPTION", "--model.pool.help"}
    assert len(options) > 15
    assert [o for o in options if names.unknown(tuple(p for p in o[2:].split(".") if p != "init_args"))] == []
    examples = [line.split() for line in HELP.splitlines() if line.startswith("  trinity-fit")]
    assert len(examples) == 2
    named = {line[i + 1] for line in examples for i, word in enumerate(line) if word == "--config"}
    for name in {*named, "heads/sparse", "optimizers/sft", "quickstart", "lcb_sepcma"}:
        assert name in HELP
        find_config(name)


def test_help_all_lists_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        fit(["--help-all"])
    assert ended.value.code == 0
    listed = set(capsys.readouterr().out.split())
    beside = {("help-all",), ("model", "cache", "path"), ("model", "cache", "mode")}
    options = [keys for keys in Names().all() if len(keys) > 1 and keys not in beside]
    assert len(options) > 100
    assert [keys for keys in options if f"--{'.'.join(keys)}" not in listed] == []
