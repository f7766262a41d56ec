import json
from pathlib import Path

import pytest

from trinity.episode.journal import Journal
from trinity.episode.rollout import Draw
from trinity.episode.scheduler import Failure
from trinity.errors import UserError

DRAW = Draw(0, "train", 3)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_failure_is_a_line_at_once(tmp_path):
    journal = Journal(tmp_path / "run" / "journal.jsonl")
    journal.add(DRAW, Failure(2, "t7", "m", "timeout"))
    assert lines(tmp_path / "run" / "journal.jsonl") == [
        {
            "stage": "train",
            "generation": 3,
            "candidate": 2,
            "task": "t7",
            "cost_usd": 0.0,
            "failure": {"agent": "m", "cause": "timeout"},
        }
    ]
    journal.close()


def test_a_journal_is_appended_to_and_a_torn_line_stays_alone(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_text('{"whole": 1}\n{"torn": ')
    journal = Journal(path)
    journal.add(DRAW, Failure(0, "t", "m", "c"))
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
        journal.add(DRAW, Failure(0, "t", "m", "c"))


def test_a_folder_that_can_t_be_written_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="Cannot write the journal"):
        Journal(tmp_path / "file" / "journal.jsonl")
