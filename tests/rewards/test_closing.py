"""However grading ends, who waits is told, and no process is left behind."""

import asyncio
import json
import subprocess
import sys
from concurrent.futures.process import BrokenProcessPool

import pytest

from trinity.rewards.code import CodeGrader
from trinity.rewards.grade import GraderClosedError
from trinity.rewards.rewards import Rewards
from trinity.rewards.worker import AlgebraWorkers


async def test_closing_ends_questions_under_way(question):
    rewards = Rewards(math_timeout=60)
    gradings = [
        asyncio.create_task(rewards.grade(question("math", r"\sqrt{2}"), rf"\boxed{{{n}^{{10^{{10}}}}}}"))
        for n in (2, 3)
    ]
    while rewards._algebra._started is None or len(rewards._algebra._started.under_way) < 2:
        await asyncio.sleep(0.01)
    await rewards.aclose()
    for grading in gradings:  # one at work, one waiting; neither is wrong
        with pytest.raises(GraderClosedError):
            await asyncio.wait_for(grading, 20)
    async with rewards:
        again = await rewards.grade(question("math", r"\sqrt{2}"), r"\boxed{\frac{\sqrt{8}}{2}}")
        assert again.reward == 1


async def test_a_broken_pool_of_workers_is_replaced_for_all_who_wait(question):
    async with Rewards(math_timeout=60) as rewards:
        await rewards.grade(question("math", "x+1"), r"\boxed{1+x}")
        broken = rewards._algebra._started.pool
        gradings = [
            asyncio.create_task(
                rewards.grade(question("math", r"\sqrt{2}"), rf"\boxed{{\frac{{\sqrt{{{n}}}}}{{2}}}}")
            )
            for n in (8, 7, 6, 5)
        ]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        broken._pool_manager.handle_broken_pool(BrokenProcessPool("all workers expired"))
        grades = await asyncio.wait_for(asyncio.gather(*gradings), 20)
        assert [grade.reward for grade in grades] == [1, 0, 0, 0]
        assert rewards._algebra._started.pool is not broken


def test_one_part_that_fails_to_close_leaves_the_other_no_excuse(monkeypatch):
    closed = []

    def failing(self):
        closed.append(type(self).__name__)
        raise KeyboardInterrupt if len(closed) == 1 else OSError

    monkeypatch.setattr(CodeGrader, "close", failing)
    monkeypatch.setattr(AlgebraWorkers, "close", failing)
    with pytest.raises(OSError):
        Rewards().close()
    assert closed == ["CodeGrader", "AlgebraWorkers"]


_INTERRUPTED = r"""
import asyncio, importlib, json, os, select, signal, sys, time, types
from pathlib import Path
from trinity.rewards.rewards import Rewards
from trinity.rewards.sandbox import Limits

def children(pid):
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    except FileNotFoundError:
        return []

def below(pid):
    return [found for child in children(pid) for found in (child, *below(child))]

def at_work():
    # All processes below this one, but for the two that serve multiprocessing as long as this one lives.
    def serves(pid):
        return b"from multiprocessing." in Path(f"/proc/{pid}/cmdline").read_bytes()
    return [pid for pid in below(os.getpid()) if not (pid in children(os.getpid()) and serves(pid))]

def task(grader, reference):
    return types.SimpleNamespace(grader=grader, reference=reference, letters="", options=(), query="")

async def work(rewards):
    tests = '{"tests": [{"input": "", "output": "A", "testtype": "stdin"}]}'
    gradings = [
        asyncio.create_task(rewards.grade(task("code", tests), program))
        for program in ("while True: pass", "while 1: pass", "while 2: pass")
    ]
    gradings.append(asyncio.create_task(rewards.grade(task("math", "x+1"), r"\boxed{x+2^{10^{10}}}")))
    def all_at_work():
        started = rewards._algebra._started
        asked = started is not None and any(question.running() for question in started.under_way)
        return asked and len(rewards._code._launcher._running) == 2

    while not all_at_work():
        await asyncio.sleep(0.01)
    signal.raise_signal(signal.SIGINT)
    await asyncio.wait(gradings)

def interrupt_in(place):
    module, name, method = place.split(":")
    kind = getattr(importlib.import_module(module), name)
    original = getattr(kind, method)
    interrupts = [signal.SIGINT]
    def interrupted(*arguments, **options):
        if interrupts:
            signal.raise_signal(interrupts.pop())
        return original(*arguments, **options)
    setattr(kind, method, interrupted)

if __name__ == "__main__":
    rewards = Rewards(math_timeout=60, code_workers=2, code_limits=Limits(cpu_seconds=60, wall_seconds=60))
    interrupts = []
    try:
        asyncio.run(work(rewards))
    except KeyboardInterrupt:
        interrupts.append("grading")
    before = at_work()
    if sys.argv[1]:
        interrupt_in(sys.argv[1])
    begin = time.monotonic()
    try:
        rewards.close()
    except KeyboardInterrupt:
        interrupts.append("closing")
    seconds = time.monotonic() - begin
    left = []
    for pid in {*before, *at_work()}:
        try:
            ended, _, _ = select.select([os.pidfd_open(pid)], [], [], 20)
        except ProcessLookupError:
            continue
        left += [] if ended else [pid]
    rewards.close()
    print(json.dumps({"interrupts": interrupts, "before": len(before), "left": left, "seconds": seconds}))
"""


@pytest.mark.parametrize(
    "place",
    [
        "",
        "trinity.rewards.sandbox:Sandbox:kill",
        "concurrent.futures:ThreadPoolExecutor:shutdown",
        "pebble:ProcessPool:stop",
        "pebble:ProcessPool:join",
    ],
)
def test_no_process_survives_an_interrupt_and_another_while_closing(bubblewrap, place):
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED, place], capture_output=True, text=True, timeout=100
    )
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found["interrupts"] == (["grading", "closing"] if place else ["grading"])
    assert found["before"] >= 5, "two sandboxes with a program in each, and an algebra worker"
    assert found["left"] == []
    assert found["seconds"] < 15, "nobody waits for a program's or a question's 60 s"
