"""What became of a trajectory <-> one plain, readable JSON object."""

from dataclasses import asdict
from typing import Any

from trinity.episode.roles import Role
from trinity.episode.rollout import Trajectory
from trinity.episode.scheduler import Failure, Graded
from trinity.episode.transcript import Turn
from trinity.episode.verdict import Judgement, Verdict
from trinity.pool.base import Completion, Paid

Record = dict[str, Any]


def to_record(result: Graded | Failure) -> Record:
    """Strings, numbers, lists and dicts that hold everything."""
    if isinstance(result, Failure):
        return {"failure": asdict(result)}
    path = result.trajectory
    return {
        "candidate": path.candidate,
        "task": path.task_id,
        "reward": result.reward,
        "stop": path.stop,
        "answer": path.answer,
        "turns": [_turn_record(turn) for turn in path.turns],
        "judged": [asdict(completion) for completion in result.judged],
    }


def from_record(record: Record) -> Graded | Failure:
    """What `to_record` was given."""
    if "failure" in record:
        failure = record["failure"]
        return Failure(**{**failure, "paid": Paid(**failure["paid"])})
    turns = tuple(_turn(turn) for turn in record["turns"])
    path = Trajectory(record["candidate"], record["task"], turns, record["stop"], record["answer"])
    return Graded(path, record["reward"], tuple(map(_completion, record["judged"])))


def _completion(record: Record) -> Completion:
    return Completion(**{**record, "wasted": Paid(**record["wasted"])})


def _turn_record(turn: Turn) -> Record:
    return {**asdict(turn), "role": turn.role.name.lower()}


def _turn(record: Record) -> Turn:
    judgement = record["judgement"]
    if judgement is not None:
        judgement = Judgement(Verdict(judgement["verdict"]), judgement["diagnosis"])
    changed = {
        "role": Role[record["role"].upper()],
        "completion": _completion(record["completion"]),
        "judgement": judgement,
    }
    return Turn(**{**record, **changed})
