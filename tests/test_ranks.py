"""Who plays which trajectories, and how all processes come to know everything."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trinity.ranks import Ranks

ROOT = Path(__file__).parent.parent

GATHER = """
import json, sys
from torch import distributed
from trinity.ranks import Ranks
rank, count, where = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
distributed.init_process_group("gloo", init_method=f"file://{where}", rank=rank, world_size=count)
ranks = Ranks.here()
for value in ({"rank": ranks.rank, "text": "x" * (1000 * rank), "odd": "\\ud800"}, None, [0.1, rank]):
    found = ranks.gather(value)
    assert found[rank] == value
    print(json.dumps([str(one)[:40] for one in found]))
distributed.barrier()
distributed.destroy_process_group()
"""


@given(st.integers(1, 6), st.lists(st.integers(0, 9), min_size=1, max_size=40))
def test_every_job_is_somebodys_and_nobody_elses(count: int, candidates: list[int]) -> None:
    shares = [Ranks(rank, count).share(candidates) for rank in range(count)]
    assert Counter(job for share in shares for job in share) == Counter(range(len(candidates)))
    if len(set(candidates)) > 1:
        for rank, share in enumerate(shares):
            assert all(candidates[job] % count == rank for job in share)


def test_one_candidates_jobs_are_dealt_out() -> None:
    assert [Ranks(rank, 2).share([3] * 5) for rank in (0, 1)] == [[0, 2, 4], [1, 3]]


def test_without_a_process_group_a_process_is_alone() -> None:
    assert Ranks.here() == Ranks(0, 1)


@pytest.mark.slow
def test_all_ranks_get_every_ranks_value(tmp_path: Path) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", GATHER, str(rank), "3", str(tmp_path / "store")],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    said = [process.communicate(timeout=120)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0]
    assert said[0] == said[1] == said[2]
    assert len(said[0].splitlines()) == 3
