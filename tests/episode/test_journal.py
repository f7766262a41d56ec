import json
from pathlib import Path

import pytest

from trinity.episode.journal import Journal
from trinity.episode.roles import Role
from trinity.episode.rollout import Draw, Trajectory
from trinity.episode.scheduler import Failure, Graded
from trinity.episode.transcript import Turn
from trinity.errors import UserError
from trinity.pool.base import Completion, Paid

DRAW = Draw(0, "train", 3)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_failure_is_a_line_at_once(tmp_path):
    journal = Journal(tmp_path / "run" / "journal.jsonl")
    journal.add(DRAW, "candidate", Failure(2, "t7", "m", "timeout", Paid(0.5, 1, 7, 5)))
    assert lines(tmp_path / "run" / "journal.jsonl") == [
        {
            "stage": "train",
            "generation": 3,
            "policy": "candidate",
            "candidate": 2,
            "task": "t7",
            "cost_usd": 0.5,
            "failure": {"agent": "m", "cause": "timeout"},
        }
    ]
    journal.close()


def test_tokens_are_those_of_the_answers_and_cost_is_what_was_paid(tmp_path):
    """A cached answer is as long as a bought one and costs nothing; what judged or was thrown away costs."""
    said = [
        Completion("1", 7, 5, 0.25, wasted=Paid(0.5, 2, 14, 10)),
        Completion("1", 7, 5, 0.0, source="cache"),
        Completion("", 7, 0, 0.0, "refused", source="shared", refusal="status 403"),
    ]
    turns = tuple(Turn(0, Role.WORKER, completion, completion.text) for completion in said)
    path = Trajectory(1, "t", turns, "turns", "1")
    journal = Journal(tmp_path / "journal.jsonl")
    journal.add(DRAW, "single:m", Graded(path, 1, (Completion("SAME", 30, 2, 0.125),)))
    journal.close()
    (line,) = lines(tmp_path / "journal.jsonl")
    assert (line["policy"], line["reward"]) == ("single:m", 1)
    assert (line["prompt_tokens"], line["completion_tokens"], line["cost_usd"]) == (21, 10, 0.875)
    assert [
        (d["source"], d["prompt_tokens"], d["completion_tokens"], d["cost_usd"], d.get("refusal"))
        for d in line["decisions"]
    ] == [("call", 7, 5, 0.75, None), ("cache", 7, 5, 0.0, None), ("shared", 7, 0, 0.0, "status 403")]
    assert [(j["completion_tokens"], j["cost_usd"]) for j in line["judged"]] == [(2, 0.125)]


def test_a_journal_is_appended_to_and_a_torn_line_stays_alone(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_text('{"whole": 1}\n{"torn": ')
    journal = Journal(path)
    journal.add(DRAW, "candidate", Failure(0, "t", "m", "c"))
    journal.close()
    whole, torn, added = path.read_text().splitlines()
    assert (json.loads(whole), torn) == ({"whole": 1}, '{"torn": ')
    assert json.loads(added)["task"] == "t"


def test_a_full_disk_is_a_sentence(tmp_path):
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    path = tmp_path / "journal.jsonl"
    path.symlink_to("/dev/full")
    journal = Journal(path)
    with pytest.raises(UserError, match=r"journal.jsonl \(No space left on device\).*--ckpt_path"):
        journal.add(DRAW, "candidate", Failure(0, "t", "m", "c"))


def test_a_folder_that_can_t_be_written_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="Cannot write the journal"):
        Journal(tmp_path / "file" / "journal.jsonl")
