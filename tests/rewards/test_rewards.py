import asyncio
import contextlib
import os
import select
import subprocess
import sys

import pytest
import sympy
from sympy.parsing import sympy_parser

from trinity.errors import UserError
from trinity.rewards import algebra
from trinity.rewards.grade import Grade
from trinity.rewards.rewards import KINDS, Rewards


@pytest.mark.parametrize(
    ("grader", "reference"),
    [
        ("code", '{"tests": []}'), ("code", "assert f(1) == 2"),
        ("math", ""), ("math", r"\frac{1"), ("math", "(" * 100), ("math", "x +* = ) 2"), ("choice", "E"),
        ("choice", ""), ("text", "  "), ("json_number", "many"), ("json_math", ""), ("json_literal", "f(x)"),
    ],
)  # fmt: skip
def test_check_refuses_what_no_answer_could_equal(rewards, question, grader, reference):
    with pytest.raises(UserError, match="cannot be read"):
        rewards.check(question(grader, reference))


@pytest.mark.parametrize(
    ("grader", "reference"),
    [
        ("math", "5"), ("math", r"x \in [-2,7]"), ("math", r"\{1\pm\sqrt{5},-2\}"), ("math", r"\text{east}"),
        ("math", r"5x - 7y + 11z + 4 = 0"), ("choice", "d"), ("text", "a b"), ("json_number", "12.5"),
        ("json_math", "18"), ("json_literal", "{'a': [1]}"),
    ],
)  # fmt: skip
def test_check_takes_good_references(rewards, question, grader, reference):
    rewards.check(question(grader, reference))


PRINTS_A = '{"tests": [{"input": "", "output": "A", "testtype": "stdin"}]}'


def test_check_names_unknown_graders(rewards, question):
    with pytest.raises(UserError, match=r"'poem'.*choose one of math"):
        rewards.check(question("poem", "x"))


def test_check_names_a_missing_sandbox(question, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match="install bubblewrap"):
        Rewards().check(question("code", PRINTS_A))


async def test_a_program_is_run_once_for_equal_answers(bubblewrap, question, monkeypatch):
    with Rewards(code_limits=bubblewrap._limits) as rewards:
        task = question("code", PRINTS_A)
        rewards.check(task)
        assert (await rewards.grade(task, "print('A')")).reward == 1
        monkeypatch.setattr(rewards._code, "grade", None)
        assert (await rewards.grade(task, "print('A')")).reward == 1


@pytest.mark.parametrize("grader", KINDS)
async def test_no_worker_output_is_worth_nothing(rewards, question, grader):
    assert (await rewards.grade(question(grader, "1"), None)).reward == 0


async def test_simple_grades_start_no_process(question):
    with Rewards() as rewards:
        assert (await rewards.grade(question("math", "1457"), r"So \boxed{1457}.")).reward == 1
        assert (await rewards.grade(question("choice", "B"), "Answer: B")).reward == 1
        assert rewards._algebra._started is None


async def test_equal_questions_in_flight_are_asked_once(question):
    asked = []

    class Counting:
        async def equal(self, reference, answer):
            asked.append(answer)
            await asyncio.sleep(0)
            return True

        def close(self): ...

    rewards = Rewards()
    rewards._algebra = Counting()
    outputs = [f"Draft {n % 3}: " + r"\boxed{\sqrt{8}}" for n in range(9)]
    tasks = [asyncio.create_task(rewards.grade(question("math", r"2\sqrt{2}"), output)) for output in outputs]
    await asyncio.sleep(0)
    tasks[0].cancel()  # takes nothing from the others
    grades = await asyncio.gather(*tasks[1:])
    assert [grade.reward for grade in grades] == [1] * 8
    assert asked == [r"\sqrt{8}"]


class Graders:
    """In the place of the code grader, or of the judge: counts its calls, which all end alike."""

    def __init__(self, outcome):
        self.calls = 0
        self._outcome = outcome

    async def grade(self, *_):
        self.calls += 1
        await asyncio.sleep(0)
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    def close(self): ...


async def test_equal_programs_at_once_run_once(question):
    rewards = Rewards()
    rewards._code = Graders(Grade(1, "print('A')", "passed"))
    task = question("code", PRINTS_A)
    grades = await asyncio.gather(*(rewards.grade(task, "print('A')") for _ in range(33)))
    assert [grade.reward for grade in grades] == [1] * 33
    await rewards.grade(task, "print('B')")
    await rewards.grade(question("code", PRINTS_A.replace("A", "C")), "print('A')")
    assert rewards._code.calls == 3, "once; another program; another task"


@pytest.mark.parametrize("grader", ["code", "text"])
async def test_a_failure_reaches_all_who_wait_and_is_not_remembered(question, grader):
    failing = Graders(UserError("the sandbox is gone, or the judge's model"))
    working = Graders(Grade(1, "x", "passed") if grader == "code" else "VERDICT: SAME")
    rewards = Rewards(judge="judge")
    task, output = question(grader, PRINTS_A), "Answer: the letter A"
    rewards._code = failing
    grades = (rewards.grade(task, output, failing.grade) for _ in range(9))
    outcomes = await asyncio.gather(*grades, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [UserError] * 9
    rewards._code = working
    assert (await rewards.grade(task, output, working.grade)).reward == 1
    assert (failing.calls, working.calls) == (1, 1)


async def test_the_judge_is_asked_once_by_equal_answers_at_once(question):
    judge = Graders("VERDICT: SAME")
    rewards = Rewards(judge="judge")
    task = question("text", "a big dog", query="Who barks?")
    assert (await rewards.grade(task, "Answer: a large dog")).reward == 0, "nobody asks the judge yet"
    grades = await asyncio.gather(
        *(rewards.grade(task, "Answer: a large dog", judge.grade) for _ in range(33))
    )
    assert [grade.reward for grade in grades] == [1] * 33
    assert judge.calls == 1
    await rewards.grade(question("text", "a big dog", query="Who howls?"), "Answer: a large dog", judge.grade)
    assert judge.calls == 2, "the judge reads the question, too"


async def test_grading_does_not_block_the_event_loop(question):
    async with Rewards(math_timeout=0.5) as rewards:
        grading = asyncio.create_task(rewards.grade(question("math", "1"), r"\boxed{2^{10^{10}}}"))
        turns = 0
        while not grading.done():
            await asyncio.sleep(0.01)
            turns += 1
        assert grading.result().reason == "algebra ran out of time or memory"
        assert turns > 10
        again = await rewards.grade(question("math", r"\sqrt{2}"), r"\boxed{\frac{\sqrt{8}}{2}}")
        assert again.reward == 1, "a killed worker is replaced"


_PROBES = [
    "__import__('os').system('touch {path}')",
    "open('{path}','w')",
    r"\text{{__import__('os').system('touch {path}')}}",
    "().__class__.__bases__[0].__subclasses__()",
    "exec(\"open('{path}','w')\")",
    r"\operatorname{{open('{path}','w')}}",
    "x + __import__('os').system('touch {path}')",
    r"\frac{{__import__('os').system('touch {path}')}}{{2}}",
]


async def test_no_grader_executes_what_it_grades(bubblewrap, rewards, question, tmp_path):
    """Each probe would write a file if any path evaluated it as Python; sympy's own parser does.

    Programs are executed, in the sandbox, where there is no such file.
    """
    path = tmp_path / "executed"
    references = {
        "code": PRINTS_A,
        "math": r"\sqrt{2}+x",
        "json_math": r"\sqrt{2}+x",
        "json_literal": "'x'",
        "json_number": "1",
    }
    for probe in (probe.format(path=path) for probe in _PROBES):
        for grader in KINDS:
            reference = references.get(grader, "A")
            field = probe.replace('"', '\\"')
            for output in (
                probe,
                rf"\boxed{{{probe}}}",
                f'{{"answer": "{field}"}}',
                f"The answer is {probe}",
            ):
                assert (await rewards.grade(question(grader, reference), output)).reward == 0
    assert not path.exists()


def test_the_probe_would_be_seen(tmp_path):
    path = tmp_path / "executed"
    with contextlib.suppress(Exception):
        sympy.sympify(_PROBES[0].format(path=path))
    assert path.exists()


def test_parsing_evaluates_nothing_but_numbers(monkeypatch):
    """Without the guard in place: what latex2sympy hands to Python's eval are bare number tokens only."""
    evaluated = []
    original = sympy_parser.eval_expr

    def watched(code, local_dict, global_dict):
        evaluated.append(code)
        return original(code, local_dict, global_dict)

    monkeypatch.setattr(sympy_parser, "eval_expr", watched)
    for reference, answer in [
        (r"\sqrt{2}+0.5x", r"x/2+2^{1/2}"),
        (r"\cot x", r"\frac{1}{\tan x}"),
        ("y=x/2", "2y=x"),
    ]:
        assert algebra.equal(reference, answer)
    assert evaluated
    for code in evaluated:
        assert algebra.only_numbers(code, {}, {}) == original(code, {}, vars(sympy))


async def test_workers_refuse_to_evaluate(rewards, question, tmp_path):
    await rewards.grade(question("math", "x+1"), r"\boxed{1+x}")
    path = tmp_path / "executed"
    future = rewards._algebra._started.pool.schedule(sympy.sympify, args=(_PROBES[0].format(path=path),))
    with pytest.raises(ValueError, match="no text is evaluated"):
        future.result()
    assert not path.exists()


def test_workers_end_with_their_parent():
    """Also when it is killed outright."""
    script = (
        "import asyncio, os, signal, types\n"
        "from trinity.rewards.rewards import Rewards\n"
        "if __name__ == '__main__':\n"
        "    rewards = Rewards()\n"
        "    task = types.SimpleNamespace(grader='math', reference='x+1', letters='', options=())\n"
        "    print(asyncio.run(rewards.grade(task, r'\\boxed{1+x}')).reward, flush=True)\n"
        "    print(*rewards._algebra._started.pool._pool_manager.worker_manager.workers, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    reward, worker = done.stdout.split()
    assert reward == "1"
    with contextlib.suppress(ProcessLookupError):
        ended, _, _ = select.select([os.pidfd_open(int(worker))], [], [], 20)
        assert ended, "an orphan is left"
