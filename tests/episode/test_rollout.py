"""S4: the loop of one trajectory with a mock LLM."""

from dataclasses import FrozenInstanceError, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trinity.episode.calls import Calls
from trinity.episode.policy import Logits, Position
from trinity.episode.roles import Role
from trinity.episode.rollout import Draw, EpisodeSettings, Rollout
from trinity.episode.verdict import Verdict
from trinity.errors import UserError
from trinity.pool.base import Completion, DecodeParameters, InfrastructureError

T, W, V = Role
ACCEPT, REVISE = "Fine.\nVERDICT: ACCEPT", "No.\nVERDICT: REVISE"


async def test_s4_accept_ends_the_trajectory_once_a_worker_has_spoken(play: Any) -> None:
    played = await play([(0, T, "plan"), (1, W, "four"), (2, V, ACCEPT), (0, W, "five")])
    assert played.roles == [T, W, V]
    assert (played.trajectory.stop, played.trajectory.answer) == ("accepted", "four")
    judgement = played.trajectory.turns[-1].judgement
    assert (judgement.verdict, judgement.diagnosis) == (Verdict.ACCEPT, "Fine.")
    assert [turn.judgement for turn in played.trajectory.turns[:2]] == [None, None]


async def test_s4_accept_without_a_worker_output_is_ignored(play: Any) -> None:
    played = await play([(0, V, ACCEPT), (0, T, ACCEPT), (0, V, ACCEPT), (1, W, "four"), (2, V, ACCEPT)])
    assert len(played.trajectory.turns) == 5
    assert (played.trajectory.stop, played.trajectory.answer) == ("accepted", "four")


@pytest.mark.parametrize(
    "text", [REVISE, "Looks right, ACCEPT", "VERDICT: ACCEPT? No.", "", "VERDICT: ACCEPTED"]
)
async def test_s4_anything_but_a_clear_accept_goes_on(play: Any, text: str) -> None:
    played = await play([(0, W, "four"), (1, V, text), (0, W, "five")], max_turns=3)
    assert played.trajectory.turns[1].judgement.verdict is Verdict.REVISE
    assert (played.roles, played.trajectory.stop) == ([W, V, W], "turns")
    assert played.trajectory.answer == "five"


async def test_s4_only_a_verifier_can_accept(play: Any) -> None:
    played = await play([(0, W, ACCEPT), (0, T, ACCEPT)], max_turns=2)
    assert (played.trajectory.stop, played.trajectory.answer) == ("turns", ACCEPT)


async def test_s4_without_a_worker_there_is_no_answer(play: Any) -> None:
    played = await play([(0, T, "plan"), (1, V, REVISE)], max_turns=2)
    assert (played.trajectory.stop, played.trajectory.answer) == ("turns", None)


@pytest.mark.parametrize("text", [ACCEPT, REVISE])
async def test_s4_verifier_first_can_end_with_no_answer(play: Any, text: str) -> None:
    turns = [(0, T, "plan"), (0, V, text), (1, W, "four")]
    ended = await play(turns, verifier_first="end", final_answer="last_output", max_turns=3)
    assert (ended.roles, ended.trajectory.stop, ended.trajectory.answer) == ([T, V], "verifier_first", None)
    went_on = await play(turns, max_turns=3)
    assert (went_on.roles, went_on.trajectory.answer) == ([T, V, W], "four")


async def test_s4_verifier_first_spares_a_verifier_after_a_worker(play: Any) -> None:
    played = await play([(0, W, "four"), (0, V, REVISE)], verifier_first="end", max_turns=2)
    assert (played.trajectory.stop, played.trajectory.answer) == ("turns", "four")


async def test_s4_a_thinker_may_name_the_next_role_but_not_the_agent(play: Any) -> None:
    turns = [(0, T, "Plan.\nNEXT ROLE: WORKER"), (2, V, "four"), (1, T, "?"), (0, V, REVISE)]
    played = await play(turns, thinker_names_role=True, max_turns=4)
    assert played.roles == [T, W, T, V]
    assert [turn.agent for turn in played.trajectory.turns] == [0, 2, 1, 0]
    assert played.trajectory.turns[1].role_probability == 1.0
    assert played.trajectory.turns[3].role_probability < 1.0
    assert "You are the Worker" in played.pool.calls[1][1][0]["content"]
    assert (await play(turns, max_turns=4)).roles == [T, V, T, V]


async def test_s4_a_named_role_counts_for_one_turn_and_from_thinkers_only(play: Any) -> None:
    turns = [(0, T, "NEXT ROLE: WORKER"), (0, T, "NEXT ROLE: VERIFIER"), (0, T, "plan")]
    assert (await play(turns, thinker_names_role=True, max_turns=3)).roles == [T, W, T]


async def test_s4_a_named_role_that_is_not_on_offer_is_ignored(play: Any) -> None:
    turns = [(0, T, "NEXT ROLE: VERIFIER"), (0, W, "four")]
    played = await play(turns, thinker_names_role=True, roles=["thinker", "worker"], max_turns=2)
    assert played.roles == [T, W]


async def test_s4_the_router_sees_all_turns_or_workers_only(play: Any) -> None:
    turns = [(0, T, "the plan"), (1, W, "four"), (2, V, "the doubt"), (0, W, "five")]
    last_seen = {
        view: (await play(turns, router_view=view, max_turns=4)).policy.seen[-1][1]
        for view in ("all", "workers")
    }
    assert len(last_seen["all"]) == 4
    assert len(last_seen["workers"]) == 2
    assert "the plan" in "".join(last_seen["all"]) and "the doubt" in "".join(last_seen["all"])
    assert last_seen["workers"][1].endswith("four")


async def test_s4_the_final_answer_is_the_last_workers_or_the_last_output(play: Any) -> None:
    turns = [(0, W, "four"), (0, W, "five"), (0, T, "on second thoughts")]
    assert (await play(turns, max_turns=3)).trajectory.answer == "five"
    last = await play(turns, max_turns=3, final_answer="last_output")
    assert last.trajectory.answer == "on second thoughts"


async def test_s4_the_number_of_turns_is_a_bound(play: Any) -> None:
    turns = [(0, W, f"answer {i}") for i in range(9)]
    for most in (1, 5):
        played = await play(turns, max_turns=most)
        assert len(played.pool.calls) == len(played.trajectory.turns) == most
        assert played.trajectory.answer == f"answer {most - 1}"
        assert [position.turn for position, _ in played.policy.seen] == list(range(most))


async def test_s4_roles_not_on_offer_are_never_played(play: Any) -> None:
    played = await play([(0, T, "a"), (1, V, "b"), (2, W, "c")], roles=["worker"], max_turns=3)
    assert played.roles == [W, W, W]
    assert [turn.role_probability for turn in played.trajectory.turns] == [1.0, 1.0, 1.0]
    some = await play([(0, V, "b")], roles=["thinker", "worker"], max_turns=1)
    assert some.roles == [T] and some.trajectory.turns[0].role_probability == 0.5


async def test_s4_the_transcripts_cut_touches_neither_answer_nor_verdict(play: Any) -> None:
    turns = [(0, W, "four and more"), (1, V, "Far too long a diagnosis.\nVERDICT: ACCEPT")]
    played = await play(turns, clip=lambda text, tokens: text[:tokens], max_output_tokens=4)
    assert (played.trajectory.stop, played.trajectory.answer) == ("accepted", "four and more")
    assert [turn.shown for turn in played.trajectory.turns] == ["four", "Far "]
    asked = played.pool.calls[1][1][1]["content"]
    assert "four" in asked and "and more" not in asked
    assert played.policy.seen[1][1][1].endswith("four")


async def test_s4_a_thinkers_named_role_survives_the_cut(play: Any) -> None:
    turns = [(0, T, "A long plan.\nNEXT ROLE: WORKER"), (0, V, "four")]
    options = {"clip": lambda text, tokens: text[:tokens], "max_output_tokens": 3, "max_turns": 2}
    assert (await play(turns, thinker_names_role=True, **options)).roles == [T, W]


async def test_s4_a_reply_cut_by_its_own_limit_is_a_result(play: Any) -> None:
    cut = Completion("the answer is fo", 7, 4096, 0.5, "length")
    played = await play([(0, W, cut), (0, V, Completion(ACCEPT, 3, 2, 0.25))])
    assert (played.trajectory.stop, played.trajectory.answer) == ("accepted", "the answer is fo")
    found = played.trajectory
    assert (found.prompt_tokens, found.completion_tokens, found.paid.usd) == (10, 4098, 0.75)


async def test_s4_a_longer_transcript_extends_what_the_policy_saw(play: Any) -> None:
    turns = [(i % 3, role, f"text {i}") for i, role in enumerate([T, W, V, T, W])]
    for view in ("all", "workers"):
        seen = [segments for _, segments in (await play(turns, router_view=view)).policy.seen]
        for before, after in pairwise(seen):
            assert after[: len(before)] == before


async def test_s4_reasoning_enters_no_transcript_and_no_answer(play: Any) -> None:
    played = await play([(0, W, Completion("four", reasoning="secret")), (0, V, ACCEPT)])
    assert "secret" not in repr((played.policy.seen, played.pool.calls, played.trajectory.answer))


async def test_s4_the_chosen_agent_is_asked_with_the_decode_parameters(play: Any) -> None:
    decode = DecodeParameters(max_tokens=7, temperature=0.3)
    played = await play([(2, W, "four"), (1, W, "five")], decode=decode, max_turns=2)
    named = replace(decode, sample="0/evaluation/0")
    assert [(agent, used) for agent, _, used in played.pool.calls] == [(2, named), (1, named)]


async def test_s4_a_lost_call_is_no_trajectory(play: Any) -> None:
    with pytest.raises(InfrastructureError, match="b: timeout"):
        await play([(0, W, "four"), (1, V, InfrastructureError("b", "timeout"))])


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_turns": 0}, "max_turns.*0"),
        ({"roles": ["thinker"]}, "roles.*thinker"),
        ({"roles": []}, r"roles.*\[\]"),
        ({"max_output_tokens": 0}, "max_output_tokens.*0"),
    ],
)
def test_unplayable_rules_are_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=named):
        EpisodeSettings(**options)


def test_rules_do_not_change_under_way() -> None:
    with pytest.raises(FrozenInstanceError):
        EpisodeSettings().max_turns = 3  # type: ignore[misc]


class Even:
    async def logits(self, position: Position, segments: Any) -> tuple[Logits, Logits]:
        return np.zeros(3), np.zeros(3)


async def choices(draw: Draw, candidate: int, make: Any, question: Any) -> list[tuple[int, Role]]:
    rollout = Rollout(Even(), Calls(make(["x"] * 5)), EpisodeSettings(), lambda text, tokens: text, "sample")
    return [(turn.agent, turn.role) for turn in (await rollout.run(question, candidate, draw)).turns]


async def test_candidates_share_their_numbers_unless_they_are_told_not_to(play: Any, question: Any) -> None:
    make = type((await play([(0, W, "x")], max_turns=1)).pool)
    shared = [await choices(Draw(0, "train", 3), c, make, question) for c in range(8)]
    assert all(one == shared[0] for one in shared)
    own = [await choices(Draw(0, "train", 3, candidate=c), c, make, question) for c in range(8)]
    assert len({tuple(one) for one in own}) > 4


def test_every_part_of_a_draws_key_counts() -> None:
    drawn = [
        Draw(seed, stage, generation, candidate).uniform(task, turn, what)
        for seed in (0, 1)
        for stage in ("train", "validation")
        for generation in (0, 1)
        for candidate in (None, 0, 1)
        for task in ("t", "u")
        for turn in (0, 1)
        for what in ("agent", "role")
    ]
    assert len(set(drawn)) == len(drawn)


def test_every_part_of_a_draws_key_names_another_sample() -> None:
    named = [
        Draw(seed, stage, generation, candidate).sample
        for seed in (0, 1, 11)
        for stage in ("train", "again", "label-0", "label-1", "validation", "evaluation", "random")
        for generation in (0, 1, 11)
        for candidate in (None, 0, 1, 11)
    ]
    assert len(set(named)) == len(named)


async def test_a_greedy_request_is_one_request_for_every_seed(play: Any) -> None:
    decode = DecodeParameters(temperature=0.0)
    played = await play([(2, W, "four")], decode=decode, max_turns=1)
    assert [used for *_, used in played.pool.calls] == [decode]


keys = st.tuples(st.integers(0, 9), st.text(max_size=3), st.integers(0, 9), st.none() | st.integers(0, 9))
places = st.tuples(st.text(max_size=3), st.integers(0, 5), st.sampled_from(["agent", "role"]))


@settings(max_examples=100, deadline=None)
@given(keys, places, keys, places)
def test_a_draw_is_a_function_of_its_key(one: Any, here: Any, other: Any, there: Any) -> None:
    assert Draw(*one).uniform(*here) == Draw(*one).uniform(*here)
    assert 0 <= Draw(*one).uniform(*here) < 1
    assert (Draw(*one).uniform(*here) == Draw(*other).uniform(*there)) is ((one, here) == (other, there))
