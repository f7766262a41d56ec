"""Whether runs were made under the same conditions: what a comparison of methods takes for granted."""

from collections.abc import Sequence
from typing import Any

from trinity.evaluation.runs import Run

# What must be the same in all runs, by the sections of their configs. What a method may choose (optimizer,
# head, roles, agents on offer, minibatch) is none of it.
_CONDITIONS = {
    "pool": ("model.pool",),
    "tasks": ("data.source", "data.test"),
    "decode settings": ("model.episode.decode",),
    "graders": ("model.rewards",),
    "budget": ("model.budget", "model.episode.max_turns", "model.episode.max_output_tokens"),
}
# How a pool is reached and paid, which changes no answer.
_NO_CONDITION = {"concurrency", "api_base", "api_key_variable", "pace", "price", "timeout", "retry"}
_NAMED = 3
_BUDGET_TOLERANCE = 0.1


def mismatches(runs: Sequence[Run]) -> list[str]:
    """One sentence for each kind of condition that is not the same in all runs."""
    found = [sentence for kind in _CONDITIONS if (sentence := _of_configs(kind, runs))]
    return [*found, *_of_tasks(runs), *_of_training(runs)]


def _of_configs(kind: str, runs: Sequence[Run]) -> str | None:
    sections = [_section(run, _CONDITIONS[kind]) for run in runs]
    # What another version of the package, or another class, has no word for, can't be compared.
    shared = [key for key in sections[0] if all(key in section for section in sections)]
    differing = [key for key in shared if len({repr(section[key]) for section in sections}) > 1]
    if not differing:
        return None
    named = [_named(key, [section[key] for section in sections], runs) for key in differing[:_NAMED]]
    more = f"; and {len(differing) - _NAMED} more options" if len(differing) > _NAMED else ""
    return f"The runs differ in their {kind}: {'; '.join(named)}{more}."


def _section(run: Run, places: Sequence[str]) -> dict[str, Any]:
    """The options of a run at these places; one that holds others counts as set, in contrast to null."""
    found: dict[str, Any] = {}
    for place in places:
        for key, value in flat(_at(run.config, place), place).items():
            parts = key.split(".")
            if not _NO_CONDITION & set(parts):
                found[key] = value
                for end in range(place.count(".") + 1, len(parts)):
                    found.setdefault(".".join(parts[:end]), "set")
    return found


def _named(key: str, values: Sequence[Any], runs: Sequence[Run]) -> str:
    """An option with its values, each with the methods that have it."""
    who: dict[str, list[str]] = {}
    for value, run in zip(values, runs, strict=True):
        who.setdefault(_short(value), []).append(run.label)
    return f"{key} is " + ", ".join(
        f"{value} ({', '.join(dict.fromkeys(labels))})" for value, labels in who.items()
    )


def _of_tasks(runs: Sequence[Run]) -> list[str]:
    everyone = [set(run.trained) for run in runs]
    shared, union = set.intersection(*everyone), set.union(*everyone)
    if shared == union:
        return []
    return [
        f"The runs differ in the held-out tasks they finished: of {len(union)} only the {len(shared)} that "
        "all of them finished are compared."
    ]


def _of_training(runs: Sequence[Run]) -> list[str]:
    spent: dict[str, list[float]] = {}
    for run in runs:
        spent.setdefault(run.label, []).append(run.trajectories)
    means = {label: sum(values) / len(values) for label, values in spent.items()}
    if max(means.values()) <= (1 + _BUDGET_TOLERANCE) * min(means.values()):
        return []
    named = ", ".join(f"{label} {mean:,.0f}" for label, mean in means.items())
    return [f"The methods differ in the trajectories that they trained on: {named}."]


def _at(config: Any, place: str) -> Any:
    for part in place.split("."):
        config = config.get(part) if isinstance(config, dict) else None
    return config


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """A nested config as one level, with dotted keys; a list by its length and its items' places."""
    if isinstance(value, list):
        value = {"length": len(value), **{str(place): item for place, item in enumerate(value)}}
    if not isinstance(value, dict):
        return {} if value is None and not prefix else {prefix: value}
    found: dict[str, Any] = {}
    for key, inner in value.items():
        found |= flat(inner, f"{prefix}.{key}" if prefix else str(key))
    return found


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:59] + "…"
