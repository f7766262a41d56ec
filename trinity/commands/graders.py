"""The graders of an experiment, made from its configs as trinity-fit makes them, without the rest of it."""

import argparse
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jsonargparse import ArgumentParser

from trinity.configs import Config, expand
from trinity.errors import UserError
from trinity.rewards.rewards import Rewards

_FRAME = (  # lines of jsonargparse's messages that say nothing by themselves
    "Parser key",
    "Problem with given",
    "Does not validate",
    "Subtypes:",
    "Errors:",
    "Expected a <class 'None",
)


def make_graders(configs: Sequence[str], given: Mapping[str, Any]) -> Rewards:
    """The graders of `model.rewards` in these configs, later ones win; without any, the defaults.

    Args:
        configs: names or files, also a finished run's config.yaml.
        given: options of `Rewards` by dotted name that win over all configs; None leaves one to them.

    Raises UserError for a config that can't be read, and for options that no graders take.
    """
    base = {"class_path": f"{Rewards.__module__}.{Rewards.__qualname__}"}
    sections: list[Any] = [base]
    for section in (section for config in configs for section in _sections(config)):
        sections = [base] if section is None else [*sections, section]
    arguments = [f"--config={json.dumps({'rewards': section})}" for section in sections]
    arguments += [f"--rewards.{name}={value}" for name, value in given.items() if value is not None]
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--config", action="config")
    parser.add_argument("--rewards", type=Rewards)
    try:
        rewards = parser.instantiate_classes(parser.parse_args(arguments)).rewards
    except (argparse.ArgumentError, ValueError) as error:
        if isinstance(error.__cause__, UserError):
            raise error.__cause__ from None
        raise UserError(f"These graders can't be made: {_essence(str(error))}; correct it.") from error
    assert isinstance(rewards, Rewards)
    return rewards


def _sections(config: str) -> Iterator[Any]:
    """What a config has in its model.rewards, after those that it extends."""
    for part in expand(["--config", config]):
        if not isinstance(part, Config):
            raise UserError(f"{config[:60]!r} is no name of a config; give a file or a shipped config.")
        model = part.values().get("model") or {}
        if not isinstance(model, dict):
            raise UserError(
                f"The config {part.path} is none of trinity-fit's: give an experiment's, or a run's."
            )
        if "rewards" in model:
            yield model["rewards"]


def _essence(message: str) -> str:
    """Of jsonargparse's many lines: where, and what."""
    place = ".".join(re.findall(r'Parser key "([\w.]+)"', message))
    lines = [line.strip(" -") for line in message.splitlines()]
    said = next((line for line in lines if line and not line.startswith(_FRAME)), message)
    return " ".join(f"model.{place}: {said}".split()).rstrip(".")
