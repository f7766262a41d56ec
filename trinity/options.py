"""Which options trinity-fit has, known from the source alone: a mistyped one is answered at once.

The parser itself has to import everything that an option can name, which takes seconds. Nothing here replaces
it: what passes here may still be refused there. But what is refused here is no option there, so wherever the
source leaves doubt, an option passes.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trinity.configs import Config
from trinity.errors import UserError
from trinity.signatures import Parameter, Signatures

CALLBACKS = {
    "j_logger": "callbacks.j_logger.JLogger",
    "journal": "callbacks.journal.TrajectoryJournal",
    "progress": "callbacks.progress.GenerationProgress",
    "uniform_check": "callbacks.uniform.UniformPolicyCheck",
    "divergence": "callbacks.divergence.DivergenceMonitor",
    "best_checkpoint": "callbacks.checkpoint.BestCheckpoint",
    "last_checkpoint": "callbacks.checkpoint.LastCheckpoint",
}
"""The callbacks that every run has; their options stand below these names."""

LINKED: dict[tuple[str, ...], str] = {
    ("model", "seed"): "seed_everything",
    ("data", "seed"): "seed_everything",
}
"""What another option sets, and so is none itself."""

_TRAINER = "lightning.pytorch.trainer.trainer.Trainer"
_GROUPS = {
    "trainer": _TRAINER,
    "model": "trinity.module.CoordinatorModule",
    "data": "trinity.data.TaskDataModule",
    "evaluation": "trinity.evaluation.protocol.EvaluationSettings",
    **CALLBACKS,
}
# Modules that add options of the top level one by one.
_ADDING = ("lightning.pytorch.cli", "trinity.commands.training")
# Options that no module writes out: the parser library's own, ours, and those that Lightning puts together.
_OTHERS = ("help", "help-all", "print_config", "optimizer", "lr_scheduler")
_NOT_OF_FIT = {"model", "train_dataloaders", "val_dataloaders", "datamodule"}
# What may stand below any option that is a class.
_OF_CLASSES = {"class_path", "dict_kwargs", "help"}
_ALL = "all options: trinity-fit --help-all"

_Keys = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Given:
    """One option as it was given: its name in parts without `init_args`, its value, and the words for it."""

    keys: _Keys
    value: Any
    shown: str
    config: Config | None = None


def check_options(parts: Sequence[str | Config]) -> None:
    """Look at the names of all options, those of the command line and those of its configs.

    Raises UserError for the first that is none, or where no experiment is given at all.
    """
    given = list(_given(parts))
    names = Names(given)
    for option in given:
        if names.unknown(option.keys) is not None:
            raise UserError(_sentence(option, names.nearest(option.keys)))
    if not any(_gives_experiment(option) for option in given):
        raise UserError(
            "There is no experiment to run; give one by name or file, such as --config quickstart "
            "(trinity-fit --help says more)."
        )


def _sentence(option: Given, nearest: str | None) -> str:
    dashes = "" if option.config else "--"
    where = f", which {option.config.path} sets" if option.config else ""
    meant = f"; did you mean {dashes}{nearest}?" if nearest else ""
    return f"There is no option {option.shown}{where}{meant} ({_ALL})"


def _gives_experiment(option: Given) -> bool:
    return option.keys[0] in ("model", "config", "print_config") or option.keys[-1] == "help"


class Names:
    """The names of options.

    Args:
        given: options that may choose classes, whose parameters are then names, too.
    """

    def __init__(self, given: Sequence[Given] = ()) -> None:
        self._signatures = Signatures()
        self._chosen: dict[_Keys, list[Any]] = {}
        for option in given:
            place = option.keys[:-1] if option.keys[-1] == "class_path" else option.keys
            if option.value is not None:
                self._chosen.setdefault(place, []).append(option.value)
        added = [name for module in _ADDING for name in self._signatures.option_strings(module)]
        fit = self._signatures.method(_TRAINER, "fit") or {}
        plain = {*added, *_OTHERS, *(name for name in fit if name not in _NOT_OF_FIT)}
        self._top: dict[str, Parameter | None] = dict.fromkeys((*plain, *_GROUPS))

    def unknown(self, keys: _Keys) -> int | None:
        """The place of the first part that is no name of an option; None where there is no such part."""
        known: Mapping[str, Parameter | None] | None = self._top
        for place, key in enumerate(keys):
            if known is None or (place and key in _OF_CLASSES):
                return None
            if key not in known:
                return place
            known = self._below(keys[: place + 1], known[key])
        return None

    def nearest(self, keys: _Keys) -> str | None:
        """The name of an option that was probably meant."""
        mended = keys
        while (place := self.unknown(mended)) is not None:
            linked = LINKED.get(mended[: place + 1])
            if linked is not None:
                return linked
            close = difflib.get_close_matches(mended[place], self._siblings(mended[:place]), 1)
            if not close:
                return self._elsewhere(mended[-1])
            mended = (*mended[:place], close[0], *mended[place + 1 :])
        return ".".join(mended)

    def all(self) -> Iterator[_Keys]:
        """Every name that is known, such as ("trainer", "max_steps")."""
        waiting: list[tuple[_Keys, Mapping[str, Parameter | None]]] = [((), self._top)]
        while waiting:
            above, known = waiting.pop()
            for name, parameter in known.items():
                yield (*above, name)
                waiting.append(((*above, name), self._below((*above, name), parameter) or {}))

    def _siblings(self, above: _Keys) -> list[str]:
        known: Mapping[str, Parameter | None] | None = self._top
        for place, key in enumerate(above):
            known = self._below(above[: place + 1], known[key]) if known is not None else None
        linked = [keys[-1] for keys in LINKED if keys[:-1] == above]
        return [*(known or ()), *linked]

    def _elsewhere(self, last: str) -> str | None:
        """An option whose name ends in that."""
        linked = [name for keys, name in LINKED.items() if keys[-1] == last]
        found = sorted((len(keys), keys) for keys in self.all() if keys[-1] == last)
        return linked[0] if linked else ".".join(found[0][1]) if found else None

    def _below(self, keys: _Keys, parameter: Parameter | None) -> Mapping[str, Parameter | None] | None:
        """What an option's own options are called; None where anything may be one."""
        if len(keys) == 1:
            group = self._signatures.parameters(_GROUPS[keys[0]]) if keys[0] in _GROUPS else None
            return None if group is None else {k: v for k, v in group.items() if (keys[0], k) not in LINKED}
        if parameter is None:
            return None
        fields = self._signatures.fields(parameter)
        return self._of_chosen_classes(self._chosen.get(keys, [])) if fields is None else fields

    def _of_chosen_classes(self, classes: Sequence[Any]) -> Mapping[str, Parameter] | None:
        """What any of the classes takes: which of them is left in the end is the parser's to say."""
        if not classes:
            return None
        found: dict[str, Parameter] = {}
        for path in classes:
            parameters = self._signatures.parameters(path) if isinstance(path, str) else None
            if parameters is None:
                return None
            found |= parameters
        return found


def _given(parts: Sequence[str | Config]) -> Iterator[Given]:
    for place, part in enumerate(parts):
        if isinstance(part, Config):
            yield Given(("config",), None, "--config")
            for path, value in _leaves(part.values()):
                yield Given(_keys(path), value, path, part)
        elif part.startswith("--") and len(part) > 2:
            name, joined, value = part.partition("=")
            following = parts[place + 1] if place + 1 < len(parts) else None
            is_value = isinstance(following, str) and not following.startswith("--")
            yield Given(_keys(name[2:]), value if joined else following if is_value else None, name)
        elif place == 0 and not part.startswith("-"):
            raise UserError(f"{part!r} stands alone; if it is a config, give it as --config {part}.")


def _keys(path: str) -> _Keys:
    parts = tuple(part for part in path.removesuffix("+").split(".") if part != "init_args")
    return parts or ("",)


def _leaves(values: Mapping[Any, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted names of a config with their values; a list is a value."""
    for key, value in values.items():
        path = f"{above}{key}"
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{path}.")
        else:
            yield path, value
