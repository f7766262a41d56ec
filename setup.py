"""Puts the configs, which lie beside the package in a checkout, inside of it in a wheel.

An editable install takes them from the checkout (see `trinity.configs.shipped_folder`). Everything else about
the build is in pyproject.toml.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

CONFIGS = Path("configs")


class BuildWithConfigs(build_py):
    """Copies `configs/` to `trinity/shipped_configs/` of what is built."""

    def run(self) -> None:
        """Build the modules, then copy; files of an earlier build, which may be gone, are not kept."""
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib, "trinity", "shipped_configs")
        shutil.rmtree(target, ignore_errors=True)
        for source in sorted(CONFIGS.rglob("*.yaml")):
            place = target / source.relative_to(CONFIGS)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, place)

    def get_source_files(self) -> list[str]:
        """What a source distribution needs for this."""
        return [*super().get_source_files(), *map(str, sorted(CONFIGS.rglob("*.yaml")))]


setup(cmdclass={"build_py": BuildWithConfigs})
