"""What became of a trajectory survives its record."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from trinity.episode.records import from_record, to_record
from trinity.episode.roles import Role
from trinity.episode.rollout import Trajectory
from trinity.episode.scheduler import Failure, Graded
from trinity.episode.transcript import Turn
from trinity.episode.verdict import Judgement, Verdict
from trinity.pool.base import Completion, Paid

# Anything that an LLM can write, lone surrogates included.
texts = st.text(st.characters(), max_size=30)
counts = st.integers(0, 10**9)
payments = st.builds(Paid, st.floats(0, 1e6), counts, counts, counts)
completions = st.builds(
    Completion,
    texts,
    counts,
    counts,
    st.floats(0, 1e6),
    st.sampled_from(["stop", "length", "refused"]),
    texts,
    st.sampled_from(["call", "shared"]),
    texts,
    st.booleans(),
    payments,
)
judgements = st.builds(Judgement, st.sampled_from(Verdict), texts)
turns = st.builds(
    Turn,
    st.integers(0, 20),
    st.sampled_from(Role),
    completions,
    texts,
    st.none() | judgements,
    st.floats(0, 1),
    st.floats(0, 1),
)
trajectories = st.builds(
    Trajectory,
    st.integers(0, 500),
    texts,
    st.lists(turns, max_size=4).map(tuple),
    st.sampled_from(["accepted", "turns", "verifier_first"]),
    st.none() | texts,
)
results = st.builds(
    Graded, trajectories, st.integers(0, 1), st.lists(completions, max_size=2).map(tuple)
) | st.builds(Failure, st.integers(0, 500), texts, texts, texts, payments)


@settings(max_examples=200, deadline=None)
@given(results)
def test_a_record_holds_everything(result: Graded | Failure) -> None:
    again = from_record(json.loads(json.dumps(to_record(result))))
    # repr shows also what does not count in comparisons: who paid.
    assert repr(again) == repr(result)


def test_a_record_is_readable() -> None:
    judgement = Judgement(Verdict.ACCEPT, "fine")
    turn = Turn(2, Role.VERIFIER, Completion("VERDICT: ACCEPT", 3, 2, 0.5), "VERDICT: ACCEPT", judgement)
    record = to_record(Graded(Trajectory(1, "t", (turn,), "accepted", "4"), 1))
    assert (record["candidate"], record["task"], record["reward"]) == (1, "t", 1)
    assert record["turns"][0]["role"] == "verifier"
    assert record["turns"][0]["judgement"] == {"verdict": "ACCEPT", "diagnosis": "fine"}
