"""The wheel: built, installed where the checkout can't be imported, and used from another folder."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
pytest.importorskip(
    "setuptools", minversion="77", reason="building a wheel needs setuptools (the test extra)"
)
NO_SOURCE = shutil.ignore_patterns(".*", "__pycache__", "logs", "build", "dist", "*.egg-info")
SMALL = """
extends: [quickstart, heads/sparse]
name: mine
trainer: {max_steps: 1, check_val_every_n_epoch: 1}
model: {slm: {cache_dir: slm, random: {hidden_size: 32, heads: 2}}}
data: {minibatch: 3, source: {init_args: {train: 12, validation: 3, test: 9}}}
evaluation: {controls: false}
"""


def run(command: list[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    """A program that finds nothing of this checkout by the environment."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        list(map(str, command)), cwd=folder, env=environment, capture_output=True, text=True, timeout=600
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the checkout in which an older build has left a config."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, folder / "source", ignore=NO_SOURCE)
    stale = folder / "source" / "build" / "lib" / "trinity" / "shipped_configs" / "stale.yaml"
    stale.parent.mkdir(parents=True)
    stale.write_text("name: stale\n")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder]
    built = run([sys.executable, "-m", "pip", "wheel", *options, folder / "source"], folder)
    assert built.returncode == 0, built.stderr
    (path,) = folder.glob("*.whl")
    return path


def install(folder: Path, *what: str | Path) -> Path:
    """Makes an environment that has this, and this one's packages; returns the folder of its scripts.

    The packages are on its path as a folder only: the .pth file of an editable install there isn't read.
    """
    venv.create(folder, with_pip=False)
    scripts = folder / "bin"
    shared = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    ask = [scripts / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    own = Path(run(ask, folder).stdout.strip())
    (own / "packages.pth").write_text("".join(f"{path}\n" for path in sorted(shared)))
    missing = run([scripts / "python", "-c", "import yaml, trinity"], folder)
    assert "No module named 'trinity'" in missing.stderr, "the checkout can be imported"
    command = [sys.executable, "-m", "pip", "--python", scripts / "python", "install"]
    installed = run([*command, "--no-deps", "--no-index", "--no-build-isolation", *what], folder)
    assert installed.returncode == 0, installed.stderr
    return scripts


@pytest.fixture(scope="module")
def scripts(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the console scripts that the wheel brought."""
    return install(tmp_path_factory.mktemp("venv"), wheel)


def test_the_wheel_holds_the_package_and_every_config_and_no_more(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        names = {name for name in file.namelist() if ".dist-info/" not in name}
    modules = {
        p.relative_to(ROOT) for folder in ("trinity", "callbacks") for p in (ROOT / folder).rglob("*.py")
    }
    configs = {p.relative_to(ROOT / "configs") for p in (ROOT / "configs").rglob("*.yaml")}
    shipped = {Path("trinity", "shipped_configs", path) for path in configs}
    assert len(modules) > 100 and len(shipped) > 30
    assert names == {path.as_posix() for path in modules | shipped}


def test_shipped_configs_run_from_any_folder(scripts: Path, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    done = run([scripts / "trinity-fit", "--config", "quickstart", "--config", "small"], tmp_path)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "logs" / "mine" / "version_0"
    assert json.loads((folder / "summary.json").read_text())["generations"] == 1
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert config["model"]["head"]["class_path"].endswith("SparseHead")
    assert {path.name for path in tmp_path.iterdir()} == {"small.yaml", "logs", "slm"}


def test_presets_are_found_and_other_names_are_answered(scripts: Path, tmp_path: Path) -> None:
    shown = run(
        [scripts / "trinity-fit", "-c", "lcb_sepcma", "-c", "presets/spec", "--print_config"], tmp_path
    )
    assert shown.returncode == 0, shown.stderr
    assert yaml.safe_load(shown.stdout)["name"] == "lcb_sepcma"
    for script in ("trinity-fit", "trinity-compare"):
        wrong = run([scripts / script, "--config", "quickstrat"], tmp_path)
        assert wrong.returncode == 2
        assert "There is no config 'quickstrat'" in wrong.stderr and "near names: quickstart" in wrong.stderr
        assert len(wrong.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_an_editable_install_finds_the_configs_of_the_checkout(tmp_path: Path) -> None:
    shutil.copytree(ROOT, tmp_path / "source", ignore=NO_SOURCE)
    scripts = install(tmp_path / "venv", "-e", tmp_path / "source")
    code = "from trinity.configs import find_config; print(find_config('presets/spec'))"
    found = run([scripts / "python", "-c", code], tmp_path)
    assert found.stdout.strip() == str(tmp_path / "source" / "configs" / "presets" / "spec.yaml"), (
        found.stderr
    )
