"""Runs that pay for their calls: nothing lost, nothing paid twice, no fault taken for a wrong answer."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from tests.conftest import simulated_pool
from tests.fake_openrouter import (
    FAULTS,
    PAID_FAULTS,
    REFUSALS,
    FakeOpenRouter,
    any_form,
    sometimes,
)
from tests.small_run import small_run
from trinity.commands.fit import fit
from trinity.data import TaskDataModule
from trinity.episode.scheduler import Graded
from trinity.module import CoordinatorModule
from trinity.objectives.ledger import account
from trinity.pool.base import DecodeParameters, Message, RetrySettings
from trinity.pool.cache import CacheSettings, CompletionCache
from trinity.pool.litellm_pool import LiteLLMPool, ModelConfig
from trinity.pool.reliable import ReliablePool
from trinity.tasks.synthetic import SyntheticTasks

ROOT = Path(__file__).parent.parent
QUICKSTART = str(ROOT / "configs" / "quickstart.yaml")
KEY = "sk-or-v1-0123456789abcdef-unlikely"
RETRY = {"attempts": 10, "first_wait": 0.001, "longest_wait": 0.01}

Arguments = Callable[..., list[str]]


@pytest.fixture
def server() -> Iterator[FakeOpenRouter]:
    with FakeOpenRouter(simulated_pool()) as running:
        yield running


@pytest.fixture
def arguments(server: FakeOpenRouter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Arguments:
    """Arguments of a short run on the server, with a cache."""
    monkeypatch.setenv("FAKE_API_KEY", KEY)

    def make(*more: str, steps: int = 3, retry: Any = RETRY, price: Any = None, **model: Any) -> list[str]:
        names = ("agent-0", "agent-1")
        models = [
            {
                "model": f"openai/{name}",
                "name": name,
                "api_base": server.base,
                "api_key_variable": "FAKE_API_KEY",
                "price": price,
            }
            for name in names
        ]
        pool = {
            "class_path": "trinity.pool.litellm_pool.LiteLLMPool",
            "init_args": {"models": models, "retry": retry},
        }
        section = {"pool": pool, "cache": {"path": str(tmp_path / "cache.sqlite")}, **model}
        tasks = {"train": 12, "validation": 3, "test": 6}
        overlay = small_run(tmp_path / "runs", tmp_path / "cache", steps, tasks, **section)
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.yaml"
        path.write_text(yaml.safe_dump(overlay))
        return ["--config", QUICKSTART, "--config", str(path), *more]

    return make


def folder(tmp_path: Path, version: int) -> Path:
    return tmp_path / "runs" / "quickstart" / f"version_{version}"


def outcome(tmp_path: Path, version: int) -> Any:
    """All of the summary: theta's hash, the J series, and the final table."""
    return json.loads((folder(tmp_path, version) / "summary.json").read_text())


def column(tmp_path: Path, version: int, name: str) -> list[float]:
    with (folder(tmp_path, version) / "generations.csv").open() as file:
        return [float(row[name] or 0) for row in csv.DictReader(file)]


def test_faults_change_no_reward_and_lose_nothing(
    make_module: Callable[..., CoordinatorModule], tmp_path: Path
) -> None:
    """20 % random faults of every kind on 528 trajectories: the results of the pool without a network."""
    data = TaskDataModule(SyntheticTasks(train=16, validation=3, test=6), minibatch=16)
    quiet = make_module()
    quiet.configure_model()
    thetas = quiet.initial_theta + 0.3 * torch.randn(
        33, quiet.layout.n, generator=torch.Generator().manual_seed(0)
    )

    def play(module: CoordinatorModule) -> list[Any]:
        return module.play(thetas, data.splits.train, stage="train", generation=0)

    expected = play(quiet)
    assert len(expected) == 528
    with FakeOpenRouter(simulated_pool(), sometimes(0.2)) as server:
        server.form = any_form
        models = [ModelConfig(f"openai/agent-{i}", f"agent-{i}", 64, api_base=server.base) for i in range(2)]
        pool = LiteLLMPool(models, retry=RetrySettings(**RETRY))  # type: ignore[arg-type]
        faulty = make_module(pool=pool, cache=CacheSettings(str(tmp_path / "cache.sqlite")))
        faulty.configure_model()
        played = play(faulty)
    assert all(isinstance(result, Graded) for result in played), "nothing lost"
    ledgers = [account(results, 0.0) for results in (expected, played)]
    assert torch.equal(*(ledger.fitness(33) for ledger in ledgers)), "nothing scored 0 by a fault"
    assert [r.trajectory.answer for r in played] == [r.trajectory.answer for r in expected]
    assert server.made.total() > 1.15 * server.answered.total(), "there were faults"
    assert max(server.answered.values()) == 1, "none was paid for twice"
    assert server.thrown.total() > 20
    assert ledgers[1].paid.usd == pytest.approx(server.usd), "every dollar is accounted for"
    assert [faulty.spent.usd, faulty.player.spent()["amounts"]["usd"]] == pytest.approx([server.usd] * 2)


@pytest.mark.parametrize("fault", FAULTS)
async def test_each_fault_is_retried(fault: str, server: FakeOpenRouter) -> None:
    server.fault = lambda name, before, body: fault if before < 2 else None
    models = [ModelConfig(f"openai/agent-{i}", f"agent-{i}", api_base=server.base) for i in range(2)]
    pool = ReliablePool(LiteLLMPool(models, retry=RetrySettings(**RETRY)))  # type: ignore[arg-type]
    messages: list[Message] = [
        {"role": "system", "content": "You are the Worker of a small team."},
        {"role": "user", "content": "Compute 12 * 30 + 4."},
    ]
    completion = await pool.complete(0, messages, DecodeParameters())
    await pool.aclose()
    assert "boxed" in completion.text
    assert list(server.made.values()) == [3]
    assert completion.cost == 0.001
    assert completion.paid.usd == pytest.approx(0.003 if fault in PAID_FAULTS else 0.001)


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_each_refusal_is_an_answer_which_is_asked_for_once(
    refusal: str, server: FakeOpenRouter, tmp_path: Path
) -> None:
    server.fault = lambda name, before, body: refusal if "12 * 30" in str(body["messages"]) else None
    models = [ModelConfig(f"openai/agent-{i}", f"agent-{i}", api_base=server.base) for i in range(2)]
    store = CompletionCache(tmp_path / "cache.sqlite")
    messages: list[Message] = [{"role": "user", "content": "Compute 12 * 30 + 4."}]
    for source in ("call", "cache"):
        pool = ReliablePool(LiteLLMPool(models, retry=RetrySettings(**RETRY)), store)  # type: ignore[arg-type]
        completion = await pool.complete(0, messages, DecodeParameters())
        await pool.aclose()
        assert completion.refusal and completion.source == source
        assert completion.text == ("I can't help with that." if refusal == "refusal" else "")
    asked_whether_it_answers = refusal[:3].isdigit()
    assert server.made.total() == 1 + asked_whether_it_answers


def test_a_flagged_input_costs_its_pick_and_not_the_run(
    arguments: Arguments, server: FakeOpenRouter, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One agent's provider flags whatever holds a product: its picks are wrong, counted, shown, and kept."""

    def fault(name: str, before: int, body: dict[str, Any]) -> str | None:
        return "403" if body["model"] == "agent-1" and " * " in body["messages"][-1]["content"] else None

    server.fault = fault
    fit(arguments(steps=2))
    said = capsys.readouterr().out
    assert re.search(r"without a proper answer.*agent-1: status 403 \(\d+x\)", said)
    refused = column(tmp_path, 0, "refusals/agent-1/status 403")
    lines = [json.loads(line) for line in (folder(tmp_path, 0) / "journal.jsonl").read_text().splitlines()]
    found = [
        decision["refusal"]
        for line in lines
        if line["stage"] == "train"
        for decision in line["decisions"]
        if "refusal" in decision
    ]
    assert found and set(found) == {"status 403"} and len(found) == sum(refused)
    assert column(tmp_path, 0, "trajectories/dropped") == [0, 0]


def test_a_flagged_input_drops_its_task_where_that_is_wanted(
    arguments: Arguments, server: FakeOpenRouter, tmp_path: Path
) -> None:
    def fault(name: str, before: int, body: dict[str, Any]) -> str | None:
        return "403" if body["model"] == "agent-1" and " * " in body["messages"][-1]["content"] else None

    server.fault = fault
    objective = {
        "class_path": "trinity.objectives.evolution.Evolution",
        "init_args": {"max_dropped_share": 0.99},
    }
    fit(arguments(steps=2, episode={"refused_request": "drop"}, objective=objective))
    assert sum(column(tmp_path, 0, "trajectories/dropped")) > 0
    assert sum(column(tmp_path, 0, "failures/agent-1/request refused (status 403)")) > 0


def test_a_recorded_run_is_replayed_without_the_server(
    arguments: Arguments, server: FakeOpenRouter, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit(arguments())
    paid = server.made.total()
    export = [sys.executable, "-c", "from trinity.commands.cache import main; main()"]
    subprocess.run(
        [*export, "export", str(tmp_path / "cache.sqlite"), str(tmp_path / "x.jsonl.gz")], check=True
    )
    subprocess.run(
        [*export, "import", str(tmp_path / "other.sqlite"), str(tmp_path / "x.jsonl.gz")], check=True
    )
    server.stop()
    fit(arguments(cache={"path": str(tmp_path / "other.sqlite"), "mode": "replay"}))
    assert server.made.total() == paid
    assert outcome(tmp_path, 1) == outcome(tmp_path, 0), "theta, J series and table"
    assert column(tmp_path, 1, "cost_usd") == [0, 0, 0]
    assert sum(column(tmp_path, 1, "calls_cached")) > 0
    with pytest.raises(SystemExit):
        fit(
            arguments(
                "--seed_everything", "7", cache={"path": str(tmp_path / "other.sqlite"), "mode": "replay"}
            )
        )
    assert "holds no answer of agent-" in capsys.readouterr().err


KILLED = "import sys; from trinity.commands.fit import fit; fit(sys.argv[1:])"


def test_a_kill_pays_for_no_answer_twice(
    arguments: Arguments, server: FakeOpenRouter, tmp_path: Path
) -> None:
    """SIGKILL in the middle of generation 2 of 4; the resumed run asks for nothing that had come back."""
    fit(arguments(steps=4, cache={"path": str(tmp_path / "whole.sqlite")}))
    whole = sum(column(tmp_path, 0, "calls")[:2])
    server.made.clear()
    server.answered.clear()

    given = arguments(steps=4)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", KILLED, *given], cwd=tmp_path, env=environment)
    killed_at = int(whole) + 20

    def kill(count: int) -> None:
        if count == killed_at:
            os.kill(process.pid, signal.SIGKILL)

    server.on_request = kill
    assert process.wait(120) == -signal.SIGKILL
    server.on_request = lambda count: None
    known, sent = answers(tmp_path / "cache.sqlite"), server.answered.total()
    assert known > whole

    fit([*given, "--ckpt_path", str(folder(tmp_path, 1) / "checkpoints" / "last.ckpt")])
    assert outcome(tmp_path, 2) == outcome(tmp_path, 0)
    in_flight = sum(count > 1 for count in server.answered.values())
    assert in_flight <= sent - known, "only answers that were on their way when it was killed"
    assert answers(tmp_path / "cache.sqlite") == answers(tmp_path / "whole.sqlite")


def answers(path: Path) -> int:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from trinity.commands.cache import main; main()",
            "stats",
            str(path),
            "--json",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return sum(row["answers"] for row in json.loads(done.stdout))


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404])
def test_a_model_that_refuses_all_stops_cleanly_after_saving_and_the_run_goes_on_later(
    arguments: Arguments,
    server: FakeOpenRouter,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    status: int,
) -> None:
    given = arguments(steps=2)
    refused = {"now": False}
    server.fault = lambda name, before, body: str(status) if refused["now"] else None
    generation_1 = 30
    server.on_request = lambda count: refused.update(now=count > generation_1)
    with pytest.raises(SystemExit) as ended:
        fit(given)
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert f"status {status}" in error and "Traceback" not in error
    made = server.made.total()
    server.on_request = lambda count: None
    refused.update(now=False)
    checkpoint = folder(tmp_path, 0) / "checkpoints" / "last.ckpt"
    fit([*given, *(["--ckpt_path", str(checkpoint)] if checkpoint.exists() else [])])
    assert max(server.answered.values()) == 1, "what came back before is not asked for again"
    assert server.made.total() > made


OUTAGE = {"attempts": 2, "first_wait": 0.001, "longest_wait": 0.005, "probe_every": 0.01}


def test_a_run_waits_for_a_model_that_is_down(
    arguments: Arguments, server: FakeOpenRouter, tmp_path: Path
) -> None:
    fit(arguments(cache=None))
    state = {"down": 0}

    def fault(name: str, before: int, body: dict[str, Any]) -> str | None:
        """From its 20th request on, agent-1 is down for 60 requests."""
        state["down"] += body["model"] == "agent-1"
        return "503" if body["model"] == "agent-1" and 20 <= state["down"] < 80 else None

    server.fault = fault
    fit(arguments(cache=None, retry={**OUTAGE, "pause_after": 60.0}))
    assert state["down"] > 80
    assert outcome(tmp_path, 1) == outcome(tmp_path, 0)
    assert column(tmp_path, 1, "trajectories/dropped") == [0, 0, 0]


def test_a_model_that_stays_down_ends_the_run_which_goes_on_later(
    arguments: Arguments, server: FakeOpenRouter, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit(arguments(cache={"path": str(tmp_path / "whole.sqlite")}))
    first = int(column(tmp_path, 0, "calls")[0])
    state = {"down": False}
    server.made.clear()
    server.on_request = lambda count: state.update(down=count > first + 10)
    server.fault = lambda name, before, body: "503" if state["down"] else None
    given = arguments(retry={**OUTAGE, "pause_after": 0.2, "give_up_after": 0.2})
    with pytest.raises(SystemExit) as ended:
        fit(given)
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert re.search(r"agent-. has answered nothing for .* the run is paused", error)
    assert re.search(r"agent-. has not answered for .*--ckpt_path", error)
    assert "Traceback" not in error
    server.on_request = lambda count: None
    state.update(down=False)
    fit([*given, "--ckpt_path", str(folder(tmp_path, 1) / "checkpoints" / "last.ckpt")])
    assert outcome(tmp_path, 2) == outcome(tmp_path, 0)


@pytest.mark.parametrize("budget", [{"calls": 45}, {"usd": 0.045}, {"tokens": 12000}, {"trajectories": 30}])
def test_a_budget_ends_the_run_at_a_complete_generation(
    arguments: Arguments,
    server: FakeOpenRouter,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    budget: dict[str, float],
) -> None:
    """Three generations of 12 trajectories do not fit; what was spent is never more than allowed."""
    price = {"prompt": 15.0, "completion": 0.0}  # about what the server states, which is what counts
    with pytest.raises(SystemExit) as ended:
        fit(arguments(steps=9, budget=budget, price=price))
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert f"The budget is used up: {''.join(re.findall(r'used up: (.*?) of', error))} of" in error
    assert server.answered.total() <= budget.get("calls", 10**9)
    assert server.usd <= budget.get("usd", 10**9) + 1e-9
    assert 100 * server.answered.total() <= budget.get("tokens", 10**9)
    if "Go on with" in error:
        assert (folder(tmp_path, 0) / "checkpoints" / "last.ckpt").is_file()
    spent = server.answered.total()
    given = arguments(steps=9, budget=budget, price=price)
    checkpoint = folder(tmp_path, 0) / "checkpoints" / "last.ckpt"
    if checkpoint.exists():
        with pytest.raises(SystemExit):
            fit([*given, "--ckpt_path", str(checkpoint)])
        assert server.answered.total() == spent, "a resumed run knows what was spent"


def test_the_journal_has_a_line_for_every_trajectory(
    arguments: Arguments, server: FakeOpenRouter, tmp_path: Path
) -> None:
    fit(arguments())
    lines = [json.loads(line) for line in (folder(tmp_path, 0) / "journal.jsonl").read_text().splitlines()]
    trained = [line for line in lines if line["stage"] == "train"]
    assert sorted({(line["generation"], line["candidate"]) for line in trained}) == [
        (generation, candidate) for generation in range(3) for candidate in range(4)
    ]
    assert len(trained) == 3 * 12
    rewards = column(tmp_path, 0, "trajectories/right")
    assert [sum(line["reward"] for line in trained if line["generation"] == g) for g in range(3)] == rewards
    paid = sum(line["cost_usd"] for line in lines)
    assert paid == pytest.approx(server.usd)
    singles = {f"single:agent-{i}{budget}" for i in range(2) for budget in ("", ", 4 x 4,096 tokens")}
    assert {(line["stage"], line["policy"]) for line in lines} == {
        ("train", "candidate"),
        ("validation", "trained"),
        ("initial", "initial"),
        ("random", "random"),
        *(("evaluation", name) for name in (*singles, "trained")),
    }
    for decision in trained[0]["decisions"]:
        assert decision["agent"] in (0, 1)
        assert decision["role"] in ("thinker", "worker", "verifier")
        assert 0 < decision["agent_probability"] <= 1


def test_one_sum_in_all_places_in_a_faulty_run_with_a_judge(
    arguments: Arguments, server: FakeOpenRouter, tmp_path: Path
) -> None:
    """The server's bill is the journal's sum, the log's, and the cache's, whatever went wrong on the way."""
    tasks = tmp_path / "tasks.jsonl"
    rows = [
        {"id": f"q{i}", "query": f"Compute {i} * 30 + 4.", "reference": f"word {i}", "grader": "text"}
        for i in range(18)
    ]
    tasks.write_text("".join(json.dumps(row) + "\n" for row in rows))
    plain = server.reply

    async def reply(body: dict[str, Any]) -> str:
        if body["messages"][0]["content"].startswith("You compare a student's answer"):
            return "VERDICT: SAME"
        return await plain(body)

    server.reply = reply  # type: ignore[method-assign]
    server.fault, server.form = sometimes(0.3, (*FAULTS, *REFUSALS)), any_form
    split = {"path": str(tasks), "test": 4, "validation": 3}
    source = {"class_path": "trinity.tasks.local.JsonLinesTasks", "init_args": split}
    judged = {"class_path": "trinity.rewards.rewards.Rewards", "init_args": {"judge": "agent-0"}}
    overlay = tmp_path / "source.yaml"
    overlay.write_text(yaml.safe_dump({"data": {"source": source}}))
    fit(arguments("--config", str(overlay), rewards=judged))
    lines = [json.loads(line) for line in (folder(tmp_path, 0) / "journal.jsonl").read_text().splitlines()]
    assert sum(len(line.get("judged", ())) for line in lines) > 5
    assert server.thrown.total() > 5
    assert sum(line["cost_usd"] for line in lines) == pytest.approx(server.usd)
    before_the_end = [line for line in lines if line["stage"] in ("train", "validation")]
    assert sum(line["cost_usd"] for line in before_the_end) == pytest.approx(
        column(tmp_path, 0, "spent/usd")[-1]
    )
    trained = sum(line["cost_usd"] for line in lines if line["stage"] == "train")
    assert sum(column(tmp_path, 0, "cost_usd")) == pytest.approx(trained)
    assert json.loads((folder(tmp_path, 0) / "spent.json").read_text())["usd"] == pytest.approx(server.usd)
    cache = CompletionCache(tmp_path / "cache.sqlite")
    runs = [row[0] for row in cache._database.execute("SELECT DISTINCT run FROM completions")]
    assert [cache.spent(run).usd for run in runs] == [pytest.approx(server.usd)]


def test_two_interrupts_still_close_everything(
    arguments: Arguments, server: FakeOpenRouter, tmp_path: Path
) -> None:
    """The second one comes while the run waits for answers under way, which never arrive."""
    given = arguments()
    held = threading.Event()
    stuck = threading.Event()

    def hold(count: int) -> None:
        if count == 25:
            stuck.set()
            held.wait(120)

    server.on_request = hold
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, *given],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert stuck.wait(120)
        os.killpg(process.pid, signal.SIGINT)
        assert process.stderr is not None
        said = ""
        while "Waiting for" not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        os.killpg(process.pid, signal.SIGINT)
        said += process.stderr.read()
        assert process.wait(60) != 0
    finally:
        held.set()
        process.kill()
    assert "Traceback" not in said
    assert (tmp_path / "cache.sqlite").exists()
    assert not (tmp_path / "cache.sqlite-wal").exists(), "the cache was closed"
    with pytest.raises(ProcessLookupError):  # no worker is left
        os.killpg(process.pid, 0)


def test_no_key_is_in_anything_that_a_run_writes(
    arguments: Arguments, server: FakeOpenRouter, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    server.fault = sometimes(0.3)
    fit(arguments())
    server.fault = lambda name, before, body: "401"
    with pytest.raises(SystemExit):
        fit(arguments("--seed_everything", "5"))
    assert server.keys == {f"Bearer {KEY}"}
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {".ckpt", ".sqlite", ".jsonl", ".csv", ".yaml", ".json"} <= {path.suffix for path in written}
    assert [path for path in written if KEY.encode() in path.read_bytes()] == []
    printed = capfd.readouterr()
    assert KEY not in printed.out + printed.err
