"""What a run holds open is closed, each by itself, however it ends."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import simulated_pool
from trinity.episode.journal import Journal
from trinity.episode.rollout import EpisodeSettings
from trinity.player import Player
from trinity.pool.budget import Budget
from trinity.pool.cache import CacheSettings
from trinity.rewards.rewards import Rewards


@pytest.mark.parametrize(
    "interrupted", [set(), {"pool"}, {"pool", "cache"}, {"pool", "cache", "journal", "rewards"}]
)
def test_an_interrupt_while_closing_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted: set[str]
) -> None:
    rewards = Rewards()
    cache = CacheSettings(str(tmp_path / "cache.sqlite"))
    player = Player(simulated_pool(), EpisodeSettings(), rewards, cache, Budget(), 8)
    player.check()
    player.journal = Journal(tmp_path / "journal.jsonl")
    assert player._cache is not None and player._calls_pool is not None
    closed: list[str] = []

    def noting(name: str, close: Callable[[], None]) -> Callable[[], None]:
        def noted() -> None:
            closed.append(name)
            close()
            if name in interrupted:
                raise KeyboardInterrupt

        return noted

    async def aclose() -> None:
        closed.append("pool")
        if "pool" in interrupted:
            raise KeyboardInterrupt

    monkeypatch.setattr(player._calls_pool, "aclose", aclose)
    monkeypatch.setattr(player._cache, "close", noting("cache", player._cache.close))
    monkeypatch.setattr(player.journal, "close", noting("journal", player.journal.close))
    monkeypatch.setattr(rewards, "close", noting("rewards", rewards.close))
    if interrupted:
        with pytest.raises(KeyboardInterrupt):
            player.close()
    else:
        player.close()
    assert closed == ["pool", "cache", "journal", "rewards"]
