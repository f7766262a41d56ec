"""Right programs pass; wrong ones do not, whatever they try."""

import asyncio
import gzip
import json
import time
from dataclasses import replace

import pytest

from trinity.errors import UserError
from trinity.rewards.code import CodeGrader
from trinity.rewards.grade import GraderClosedError
from trinity.rewards.sandbox import Limits

ADD = {"tests": ["assert add(1,2)==3", "assert add(2,2)==4"]}
CALL = {"tests": [{"input": "1\n2", "output": "3", "testtype": "functional"}], "fn_name": "add"}
CHECK = {"test": "def check(candidate):\n    assert candidate(1, 2) == 3", "entry_point": "add"}
CLOSE = {"tests": ["import math\nassert math.isclose(add(1, 2), 3)"]}
UNIT = {
    "test": "import unittest\nclass TestCases(unittest.TestCase):\n"
    "    def test_add(self):\n        self.assertEqual(add(1, 2), 3)\n",
    "entry_point": "add",
}
FUNCTION = {"assert": ADD, "call": CALL, "check": CHECK, "close": CLOSE, "unittest": UNIT}
WALL = 30  # seconds
RIGHT = "def add(a, b):\n    return a + b"


def stdin(output, given=""):
    return {"tests": [{"input": given, "output": output, "testtype": "stdin"}]}


@pytest.fixture(scope="module")
def patient(bubblewrap):
    """A grader whose programs reach the limit of their CPU time on a busy machine, too."""
    grader = CodeGrader(2, replace(bubblewrap._limits, wall_seconds=WALL))
    yield grader
    grader.close()


@pytest.fixture
def grade(grader):
    async def grade(program, reference):
        return await grader.grade(f"```python\n{program}\n```", json.dumps(reference))

    return grade


async def test_the_bank(grader, code_case):
    started = time.monotonic()
    reference = json.dumps(code_case["reference"])
    if code_case["reference"]["tests"]:
        grade = await grader.grade(code_case["output"], reference)
        assert bool(grade.reward) is code_case["expected"], grade.reason
    else:
        with pytest.raises(ValueError, match="no tests"):
            await grader.grade(code_case["output"], reference)
    assert time.monotonic() - started < 10, "a generous bound: the machine may be busy"


@pytest.mark.parametrize("form", FUNCTION)
async def test_every_form_tells_right_from_wrong(grade, form):
    assert (await grade(RIGHT, FUNCTION[form])).reward == 1
    for wrong in (
        "def add(a, b): return a - b", "def add(a): return a", "def ad(a, b): return a + b",
        "def add(a, b) return 3",
        "def add(a, b): return str(a + b)", "def add(a, b): pass", "1/0", "x = 3",
    ):  # fmt: skip
        grade_of_wrong = await grade(wrong, FUNCTION[form])
        assert grade_of_wrong.reward == 0, wrong
        assert grade_of_wrong.extracted == wrong


LIAR = (
    "class A:\n    def __eq__(self, other): return True\n    def __hash__(self): return 3\n"
    "    def __sub__(self, other): return 0\n"
)
ATTACKS = {
    "exits at once": "import sys; sys.exit(0)",
    "exits hard at once": "import os; os._exit(0)",
    "raises SystemExit": "raise SystemExit",
    "quits": "quit()",
    "exits when called": "import sys\ndef add(a, b): sys.exit(0)",
    "exits hard when called": "import os\ndef add(a, b): os._exit(0)",
    "is equal to all": LIAR + "def add(a, b): return A()",
    "is equal to all, in a list": LIAR + "def add(a, b): return [A()]",
    "is an int equal to all": LIAR.replace("class A", "class A(int)") + "def add(a, b): return A(7)",
    "is text equal to all": LIAR.replace("class A", "class A(str)") + "def add(a, b): return A('')",
    "is a list equal to all": LIAR.replace("class A", "class A(list)") + "def add(a, b): return A()",
    "is a type equal to all": LIAR.replace("class A", "class M(type)")
    + "class A(metaclass=M): pass\ndef add(a, b): return A",
    "exits in an exit handler": "import atexit, os\natexit.register(os._exit, 0)\ndef add(a, b): return 0",
    "forges a report": "import os\ndef add(a, b):\n    report = b'{\"passed\": true, \"value\": 4}'\n"
    "    for fd in range(64):\n        try: os.write(fd, report)\n        except OSError: pass\n"
    "    os._exit(0)",
    "forges a report on stdout": "print('{\"passed\": true}', 'OK')\n"
    "def add(a, b): print('{\"passed\": true}')",
    "closes all files": "import os\nos.closerange(0, 1000)\ndef add(a, b): return 0",
    "patches equality of builtins": "import builtins\nbuiltins.all = lambda x: True\nbuiltins.isinstance = "
    "lambda a, b: True\nbuiltins.AssertionError = ZeroDivisionError\ndef add(a, b): return 0",
    "patches json": "import json, sys\njson.dumps = lambda *a, **k: '{\"passed\": true}'\n"
    "json.loads = lambda *a, **k: {}\ndef add(a, b): return 0",
    "patches the harness": "import sys\nfor name, module in list(sys.modules.items()):\n"
    "    if name.startswith('trinity'):\n        for key, value in list(vars(module).items()):\n"
    "            if callable(value): setattr(module, key, lambda *a, **k: {'passed': True})\n"
    "def add(a, b): return 0",
    "patches unittest": "import unittest\nunittest.TestCase.assertEqual = lambda *a: None\ndef add(a, b): return 0",
    "patches unittest when called": "import unittest\ndef add(a, b):\n"
    "    unittest.TestCase.assertEqual = lambda *a: None\n    return 0",
    "patches the test's result": "import unittest\nunittest.TestResult.addFailure = lambda *a: None\n"
    "unittest.TestResult.addError = lambda *a: None\ndef add(a, b): return 0",
    "skips the tests": "import unittest\ndef add(a, b): raise unittest.SkipTest",
    "defines the checks itself": "isclose = lambda *a: True\nclass math:\n    isclose = lambda *a: True\n"
    "def check(f): pass\nset = len = bool = lambda *a: 1\ndef add(a, b): return 0",
    "interrupts": "def add(a, b): raise KeyboardInterrupt",
    "hides in a generator": "def add(a, b): yield 3",
    "answers for ever": "def add(a, b):\n    while True: yield 3",
    "looks for constants": "import gc\ndef add(a, b):\n    found = [c for f in gc.get_objects() if type(f).__name__ == "
    "'function' for c in f.__code__.co_consts or () if c in (3, 4) and f.__module__ == 'test']\n"
    "    return found[0] if found else 0",
    "recurses without end": "import sys\nsys.setrecursionlimit(10**9)\ndef add(a, b): return add(a, b)",
    "crashes": "import ctypes\ndef add(a, b): ctypes.string_at(0)",
    "kills its parent": "import os, signal\ndef add(a, b):\n    os.kill(os.getppid(), signal.SIGKILL)\n    return 0",
    "kills everything": "import os, signal\ndef add(a, b):\n    os.kill(-1, signal.SIGKILL)\n    return 0",
    "stops its parent": "import os, signal\ndef add(a, b):\n    os.kill(os.getppid(), signal.SIGSTOP)\n    return 0",
    "leaves threads": "import threading, time\nthreading.Thread(target=time.sleep, args=(99,)).start()\n"
    "def add(a, b): return 0",
    "leaves a process": "import os, time\nif os.fork() == 0: time.sleep(99)\ndef add(a, b): return 0",
    "nests without end": "def add(a, b):\n    x = []\n    for _ in range(10**5): x = [x]\n    return x",
    "contains itself": "def add(a, b):\n    x = []\n    x.append(x)\n    return x",
    "returns a flood": "def add(a, b): return ['x' * 1000] * 10**5",
    "raises what cannot be shown": "class E(Exception):\n    def __str__(self): raise E\ndef add(a, b): raise E",
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
async def test_no_attack_earns_a_reward(grade, attack):
    """In all forms at once. After each, a right program still passes."""
    grades = await asyncio.gather(*(grade(ATTACKS[attack], reference) for reference in FUNCTION.values()))
    assert [grade.reward for grade in grades] == [0] * len(FUNCTION), [grade.reason for grade in grades]


SEEK = r"""
import re
needle = re.compile(r'97735\d')
def add(a, b):
    for text in texts():
        if found := needle.search(text): return int(found[0])
    return 0
"""
SEEKERS = {
    "frames": "import sys\ndef texts():\n    frame = sys._getframe()\n    while frame:\n        for value in "
    "[*frame.f_locals.values(), *frame.f_globals.values(), *frame.f_code.co_consts]: yield repr(value)\n"
    "        frame = frame.f_back\n",
    "memory": "import gc\ndef texts():\n    for thing in gc.get_objects():\n"
    "        if type(thing) in (list, tuple, dict): yield repr(thing)\n"
    "        if hasattr(thing, '__code__'): yield repr(thing.__code__.co_consts)\n",
    "files": "import os\ndef texts():\n    for root in ('/tmp', '/sandbox/trinity', '/dev/shm', '/home', '/proc', '/opt/none'):\n"
    "        for folder, _, names in os.walk(root):\n            for name in names:\n"
    "                if name.endswith(('.py', '.json', '.jsonl', 'cmdline', 'environ')):\n"
    "                    yield open(os.path.join(folder, name), errors='replace').read()\n",
    "descriptors": "import os\ndef texts():\n    for fd in range(64):\n"
    "        try: yield os.pread(fd, 10**6, 0).decode(errors='replace')\n        except OSError: pass\n",
}


@pytest.mark.parametrize("place", SEEKERS)
async def test_no_expected_value_is_within_reach(grade, place):
    """These return what they find. Where a format keeps its check apart, there is nothing to find."""
    for reference in (
        {"tests": ["assert add(1, 2) == 977351"]},
        {"tests": [{"input": "1\n2", "output": "977351", "testtype": "functional"}], "fn_name": "add"},
        {"tests": ["x = add(1, 2)\nassert x == 977351"]},
        {"test": "def check(f):\n    assert f(1, 2) == 977351", "entry_point": "add"},
    ):
        result = await grade(SEEKERS[place] + SEEK, reference)
        assert result.reward == 0
        assert "wrong" in result.reason or "AssertionError" in result.reason, "it ran, and found nothing"
        assert (await grade("def add(a, b): return 977351", reference)).reward == 1


async def test_the_seekers_would_find_a_value_that_is_there(grade):
    """In the one process of unit tests there is one: `docs/rewards_code.md` says so."""
    unit = UNIT | {"test": UNIT["test"].replace(", 3)", ", 977351)")}
    assert (await grade(SEEKERS["memory"] + SEEK, unit)).reward == 1


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("while True: pass", "CPU time"),
        ("import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass", "CPU time"),
        ("import time\ntime.sleep(99)", "more than 2 s"),
        ("import time, threading\nthreading.Thread(target=time.sleep, args=(99,)).start()\nprint(5)", "2 s"),
        ("x = bytearray(6 * 10**9)\nprint(5)", "MemoryError"),
        ("x = []\nwhile True: x.append(bytearray(10**7))", "MemoryError|CPU time"),
        ("while True: print('a' * 10**6)", "OSError"),
        ("import os\nwhile True: os.write(2, b'a' * 10**6)", "CPU time"),
        ("import os\nwhile True: os.fork()", "PermissionError"),
        ("import subprocess\nsubprocess.run(['/bin/true'])", "PermissionError"),
        ("import os\nos.memfd_create('x')", "PermissionError"),
        ("import socket\nsocket.create_connection(('1.1.1.1', 53), 1)", "PermissionError"),
        ("f = open('/tmp/x', 'wb')\nwhile True: f.write(b'a' * 10**6)", "OSError"),
        ("import os\nos.abort()", "SIGABRT"),
        ("import os\nos.kill(os.getpid(), 9)", "SIGKILL"),
        ("print(5)\nraise ValueError('x')", "ValueError: x"),
        ("print(5)\nimport os\nos._exit(3)", "exit status 3"),
        ("print(", "SyntaxError"),
        ("(" * 20_000, "SyntaxError"),
        ("-" * 100_000 + "1", "MemoryError|RecursionError|SyntaxError|SIGSEGV"),
        ("print(6)", "wrong output"),
        ("", "no answer found"),
    ],
)
async def test_what_stops_a_program(grader, patient, program, reason):
    started = time.monotonic()
    grader = patient if "CPU time" in reason else grader
    result = await grader.grade(f"```python\n{program}\n```", json.dumps(stdin("5")))
    assert result.reward == 0
    assert any(part in result.reason for part in reason.split("|")), result.reason
    assert time.monotonic() - started < (WALL + 8 if grader is patient else 10)


@pytest.mark.parametrize(
    ("program", "given", "printed"),
    [
        ("import sys\nprint(sum(map(int, sys.stdin.buffer.read().split())))", "1 " * 10**6, str(10**6)),
        ("print(open(0).read())", "é\n", "é"),
        ("print(input() + input())", "a\r\nb", "ab"),
        ("import sys\nfor line in sys.stdin: print(line.strip())", "a\nb\n", "a\nb"),
        ("print(5); exit()", "", "5"),
        ("import sys\nprint(5); sys.exit(1)", "", "5"),
        ("import sys\nsys.stdout.write('5')", "", "5"),
        ("import os\nos.write(1, b'5')\nos._exit(0)", "", "5"),
        ("import atexit\natexit.register(print, 5)", "", "5"),
        ("import threading\nthreading.Thread(target=print, args=(5,)).start()", "", "5"),
        ("import sys, threading\nsys.setrecursionlimit(10**7)\nthreading.stack_size(2**27)\n"
         "def f(n): return n and 1 + f(n - 1)\n"
         "t = threading.Thread(target=lambda: print(f(10**5)))\nt.start()\nt.join()", "", str(10**5)),
        ("def f(n): return n and 1 + f(n - 1)\nprint(f(40_000))", "", "40000"),
        ("@cache\ndef f(n): return n and 1 + f(n - 1)\nprint(f(20_000))", "", "20000"),
        ("print(Counter('aab')['a'], gcd(4, 6), math.pi > 3, heapq.heappop([5]))", "", "2 2 True 5"),
        ("print(len(str(3**20_000)))", "", "9543"),
        ("import numpy as np\nprint(np.arange(4).sum())", "", "6"),
        ("from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\n"
         "print(A(5).x)", "", "5"),
        ("def main():\n    print(5)\nif __name__ == '__main__': main()", "", "5"),
        ("open('/tmp/a', 'w').write('5')\nprint(open('/tmp/a').read())", "", "5"),
        ("import random\nprint(random.random())", "", "0.8444218515250481"),
        ("print({'a', 'b', 'c'} == {'c', 'b', 'a'}, hash('a') == hash('a'))", "", "True True"),
        ("import asyncio\nasync def f(): print(5)\nasyncio.run(f())", "", "5"),
        ("import tempfile, pathlib\nprint(pathlib.Path(tempfile.mkdtemp()).exists())", "", "True"),
    ],
)  # fmt: skip
async def test_what_a_program_may_do(grade, program, given, printed):
    result = await grade(program, stdin(printed, given))
    assert result.reward == 1, result.reason


async def test_the_values_of_calls(grade):
    def calls(given, output):
        return {"tests": [{"input": given, "output": output, "testtype": "functional"}], "fn_name": "f"}

    assert (await grade("def f(a): return a * 10**5000", calls("3", "3" + "0" * 5000))).reward == 1
    assert (await grade("def f(a): return a * 10**5000 + 1", calls("3", "3" + "0" * 5000))).reward == 0
    assert (await grade("def f(a): return a == 1", calls("1", "1"))).reward == 0
    assert (await grade("import numpy as np\ndef f(a): return np.int64(a)", calls("1", "1"))).reward == 1
    assert (
        await grade("class Solution:\n    def f(self): return ((1, 2.0),)", calls("", "[[1,2]]"))
    ).reward == 1
    assert (await grade("class Solution:\n    x = 1\ndef f(a): return a", calls("1", "1"))).reward == 1


async def test_setup_comes_after_the_program_and_may_use_its_classes(grade):
    reference = {
        "tests": ["assert total(root) == 3"],
        "test_setup_code": "root = Node(1)\nroot.next = Node(2)",
    }
    program = "class Node:\n    def __init__(self, x): self.x, self.next = x, None\n"
    program += "def total(n): return n.x + total(n.next) if n else 0"
    assert (await grade(program, reference)).reward == 1
    assert (await grade(program.replace("n.x +", "1 +"), reference)).reward == 0


async def test_a_check_may_expect_an_exception(grade):
    test = "def check(f):\n    try: f(-1)\n    except ValueError: return\n    assert False"
    reference = {"test": test, "entry_point": "f"}
    assert (await grade("def f(x): raise ValueError", reference)).reward == 1
    assert (await grade("def f(x): raise KeyError", reference)).reward == 0
    assert (await grade("def f(x): return x", reference)).reward == 0


async def test_unit_tests_may_patch_read_and_start_processes(grade):
    test = (
        "import subprocess, unittest\nfrom unittest.mock import patch\nclass TestCases(unittest.TestCase):\n"
        "    @patch('builtins.open')\n    def test_open(self, opened):\n"
        "        opened.side_effect = OSError\n        self.assertIsNone(f('x'))\n"
        "    def test_run(self):\n        self.assertEqual(subprocess.run(['true']).returncode, 0)\n"
    )
    program = "def f(x):\n    try: return open(x)\n    except OSError: return None"
    assert (await grade(program, {"test": test, "entry_point": "f"})).reward == 1
    assert (await grade("def f(x): return 1", {"test": test, "entry_point": "f"})).reward == 0
    empty = "import unittest\nclass TestCases(unittest.TestCase):\n    pass"
    assert (await grade(program, {"test": empty, "entry_point": "f"})).reward == 0


async def test_a_fork_bomb_of_unit_tests_is_bounded(grade):
    program = "import os\ndef add(a, b):\n    while True: os.fork()"
    assert (await grade(program, UNIT)).reward == 0
    assert (await grade(RIGHT, UNIT)).reward == 1


async def test_grading_does_not_block_the_event_loop(grade):
    grading = asyncio.create_task(grade("while True: pass", stdin("5")))
    turns = 0
    while not grading.done():
        await asyncio.sleep(0.01)
        turns += 1
    assert turns > 20


async def test_closing_ends_what_runs(bubblewrap):
    grader = CodeGrader(1, Limits(cpu_seconds=60, wall_seconds=60))
    endless = "```python\nwhile True: pass\n```"
    running = asyncio.create_task(grader.grade(endless, json.dumps(stdin("5"))))
    while not grader._launcher._running:
        await asyncio.sleep(0.01)
    waiting = asyncio.create_task(grader.grade(endless, json.dumps(stdin("6"))))
    await asyncio.sleep(0)
    started = time.monotonic()
    await asyncio.to_thread(grader.close)
    for grading in (running, waiting):  # it is nobody's fault: neither right nor wrong
        with pytest.raises(GraderClosedError):
            await grading
    assert time.monotonic() - started < 10
    assert (await grader.grade("```python\nprint(5)\n```", json.dumps(stdin("5")))).reward == 1
    grader.close()


def test_no_workers_are_refused():
    with pytest.raises(UserError, match="at least 1"):
        CodeGrader(0)


@pytest.mark.slow
async def test_reference_solutions_pass(grader, shared_data):
    """A sample; `tests/benchmarks/code_references.py` runs them all."""

    def read(name):
        return [json.loads(line) for line in gzip.decompress((shared_data / name).read_bytes()).splitlines()]

    rows = read("mbpp.jsonl.gz")
    for row in [
        *rows[::60],
        *(row for row in rows if row["test_setup_code"] or row["task_id"] in (414, 596)),
    ]:
        reference = {"tests": row["test_list"], "test_setup_code": row["test_setup_code"]}
        grade = await grader.grade(f"```python\n{row['code']}\n```", json.dumps(reference))
        assert grade.reward == 1, (row["task_id"], grade.reason)
    rows = read("humaneval.jsonl.gz")
    for row in [*rows[::12], rows[32], rows[33], rows[38], rows[50]]:
        reference = json.dumps({name: row[name] for name in ("prompt", "test", "entry_point")})
        whole = f"```python\n{row['prompt']}{row['canonical_solution']}\n```"
        stub = f"```python\n{row['prompt']}    return None\n```"
        grades = [
            await grader.grade(output, reference) for output in (row["canonical_solution"], whole, stub)
        ]
        assert [grade.reward for grade in grades] == [1, 1, 0], (row["task_id"], grades)
