from collections.abc import Callable
from math import log

import pytest

from trinity.episode.roles import Role
from trinity.episode.scheduler import Graded
from trinity.episode.transcript import Turn
from trinity.objectives.shaping import Shaping
from trinity.pool.base import Completion


def turn(agent: int) -> Turn:
    return Turn(agent, Role.WORKER, Completion("4"), "4")


def test_entropy_of_the_agents_asked_and_a_price_for_turns(graded: Callable[..., Graded]) -> None:
    kept = [
        graded(0, "t0", 1, turn(0), turn(0)),
        graded(0, "t1", 0, turn(0), turn(1)),
        graded(1, "t0", 1, turn(2)),
        graded(1, "t1", 1, turn(2), turn(2), turn(2)),
    ]
    entropy = -(0.75 * log(0.75) + 0.25 * log(0.25)) / log(3)
    spread = Shaping(agent_entropy=0.1).terms(kept, 2, agents=3, max_turns=4)
    assert spread.tolist() == pytest.approx([0.1 * entropy, 0.0])
    price = Shaping(turns=0.2).terms(kept, 2, agents=3, max_turns=4)
    assert price.tolist() == pytest.approx([-0.2 * 2 / 4, -0.2 * 2 / 4])
    both = Shaping(agent_entropy=0.1, turns=0.2).terms(kept, 2, agents=3, max_turns=4)
    assert both.tolist() == pytest.approx((spread + price).tolist())


def test_it_is_off_by_default() -> None:
    assert not Shaping().active
    assert Shaping(turns=0.1).active and Shaping(agent_entropy=0.1).active
