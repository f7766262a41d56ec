"""What a run would cost, before it calls anybody."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from trinity.episode.roles import Role
from trinity.episode.rollout import EpisodeSettings
from trinity.pool.base import Price

_CHARACTERS_A_TOKEN = 3.5
_SYSTEM_TOKENS = 150
_PROBABLE_SHARE = 0.25  # of max_tokens that an answer takes: a guess, and said to be one


@dataclass(frozen=True)
class Part:
    """One part of a run: so many trajectories of at most so many turns.

    An answer may take the tokens of `turns_an_answer` turns.
    """

    name: str
    trajectories: int
    max_turns: int
    turns_an_answer: int = 1


@dataclass(frozen=True)
class Cost:
    """Calls, tokens and dollars; None dollars where a price is missing."""

    calls: float
    prompt_tokens: float
    completion_tokens: float
    usd: float | None


@dataclass(frozen=True)
class Forecast:
    """What the parts of a run would cost at most, and probably.

    At most: every trajectory plays all its turns, every answer fills its token limit, nothing is shared or
    found in a cache. Probably: as many turns as a policy plays that picks roles uniformly, with Verifiers
    that accept every second time, and answers of a quarter of their limit. Dollars are the mean of the
    agents' prices, since nobody knows yet whom the coordinator will ask.

    Args:
        parts: what would be played.
        episode: the rules of a trajectory.
        query_characters: mean length of a task's query.
        prices: the agents'.
    """

    parts: Sequence[Part]
    episode: EpisodeSettings
    query_characters: float
    prices: Sequence[Price | None]

    def at_most(self, part: Part) -> Cost:
        """The upper bound of one part, but for queries of unusual scripts."""
        return self._cost(part.trajectories, [1.0] * part.max_turns, self._limit(part))

    def probably(self, part: Part) -> Cost:
        """The expectation under the assumptions above."""
        played = turns_played(part.max_turns, self.episode)
        return self._cost(part.trajectories, played, _PROBABLE_SHARE * self._limit(part))

    def _limit(self, part: Part) -> float:
        decode = self.episode.decode
        return float(part.turns_an_answer * decode.turns * decode.max_tokens)

    def _cost(self, trajectories: int, played: Sequence[float], answer: float) -> Cost:
        """`played[t]` is the share of trajectories that reach turn t."""
        shown = min(answer, self.episode.max_output_tokens)
        query = _SYSTEM_TOKENS + self.query_characters / _CHARACTERS_A_TOKEN
        calls = trajectories * sum(played)
        prompt = trajectories * sum(share * (query + t * shown) for t, share in enumerate(played))
        completion = calls * answer
        known = [price for price in self.prices if price is not None]
        usd = None
        if len(known) == len(self.prices):
            usd = sum(p.prompt * prompt + p.completion * completion for p in known) / len(known) / 1e6
        return Cost(calls, prompt, completion, usd)

    def print(self, console: Console) -> None:
        """One row a part, and their sum."""
        table = Table("", "trajectories", "", "calls", "prompt tokens", "completion tokens", "usd")
        for name, bound in (("at most", self.at_most), ("probably", self.probably)):
            costs = [bound(part) for part in self.parts]
            for part, cost in zip(self.parts, costs, strict=True):
                table.add_row(part.name, f"{part.trajectories:,}", name, *_cells(cost))
            known = [cost.usd for cost in costs if cost.usd is not None]
            total = Cost(
                sum(cost.calls for cost in costs),
                sum(cost.prompt_tokens for cost in costs),
                sum(cost.completion_tokens for cost in costs),
                sum(known) if len(known) == len(costs) else None,
            )
            table.add_row("all", "", name, *_cells(total), end_section=True)
        console.print(table)
        console.print(
            "At most: all turns, answers as long as allowed, nothing shared or cached. Probably: uniform "
            "roles, every second verdict accepts, answers of a quarter of their limit. Identical calls under "
            "way are made once, and answers in the cache cost nothing: neither is counted."
        )
        if None in self.prices:
            console.print(
                "No dollars: give each model of the pool a price {prompt, completion} a million tokens."
            )


def _cells(cost: Cost) -> list[str]:
    usd = "?" if cost.usd is None else f"{cost.usd:,.2f}"
    return [f"{value:,.0f}" for value in (cost.calls, cost.prompt_tokens, cost.completion_tokens)] + [usd]


def turns_played(max_turns: int, episode: EpisodeSettings) -> list[float]:
    """The share of trajectories that reach each turn under the assumptions of `Forecast`."""
    offered = [role for role in Role if role.name.lower() in episode.roles]
    is_worker = (Role.WORKER in offered) / len(offered)
    ends = 0.5 * (Role.VERIFIER in offered) / len(offered)
    first_ends = (Role.VERIFIER in offered) / len(offered) if episode.verifier_first == "end" else 0.0
    without, with_worker = 1.0, 0.0
    played = []
    for _ in range(max_turns):
        played.append(without + with_worker)
        with_worker = with_worker * (1 - ends) + without * is_worker
        without *= 1 - is_worker - first_ends
    return played
