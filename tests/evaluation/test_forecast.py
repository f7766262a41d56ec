import pytest

from trinity.episode.rollout import EpisodeSettings
from trinity.evaluation.forecast import Forecast, Part, turns_played
from trinity.pool.base import DecodeParameters, Price


def forecast(price=None, **episode):
    settings = EpisodeSettings(decode=DecodeParameters(max_tokens=1000), **episode)
    return Forecast([Part("p", 10, 3)], settings, 350.0, [price, price])


def test_at_most_all_turns_are_played_and_all_answers_are_long():
    """A query of 350 characters is 100 tokens, a system message 150; turn t shows t answers before it."""
    cost = forecast(Price(prompt=1.0, completion=10.0)).at_most(Part("p", 10, 3))
    assert cost.calls == 30
    assert cost.prompt_tokens == 10 * (250 + 1250 + 2250)
    assert cost.completion_tokens == 30 * 1000
    assert cost.usd == pytest.approx((37_500 * 1.0 + 30_000 * 10.0) / 1e6)


def test_what_is_shown_is_cut():
    cost = forecast(max_output_tokens=100).at_most(Part("p", 10, 3))
    assert cost.prompt_tokens == 10 * (250 + 350 + 450)


def test_dollars_need_a_price_of_every_model():
    assert forecast().at_most(Part("p", 10, 3)).usd is None


def test_one_answer_may_take_the_tokens_of_all_turns():
    part = Part("whole budget", 10, 1, turns_an_answer=5)
    cost = forecast().at_most(part)
    assert (cost.calls, cost.completion_tokens) == (10, 10 * 5000)
    assert forecast().probably(part).completion_tokens == 10 * 5000 / 4


def test_probably_is_less():
    parts = forecast(Price(1.0, 1.0))
    assert parts.probably(parts.parts[0]).usd < parts.at_most(parts.parts[0]).usd / 2


def test_turns_under_uniform_roles():
    """A third of turns works; then a sixth of turns is a Verifier that accepts."""
    third, sixth = 1 / 3, 1 / 6
    assert turns_played(3, EpisodeSettings()) == pytest.approx([1, 1, 1 - third * sixth])
    assert turns_played(3, EpisodeSettings(roles=["worker"])) == [1, 1, 1]
    ends = EpisodeSettings(verifier_first="end")
    assert turns_played(2, ends) == pytest.approx([1, 1 - third])
