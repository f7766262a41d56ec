"""Programs: extracted, run in a sandbox against tests, compared outside of it."""

import asyncio
import json
import os
import secrets
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from trinity.errors import UserError
from trinity.rewards.child.plain import decode
from trinity.rewards.code_tests import CallTest, CheckTest, StdinTest, UnitTest, ValueTest, read_tests
from trinity.rewards.comparison import same_output, same_value
from trinity.rewards.grade import NO_ANSWER, Grade
from trinity.rewards.launcher import Launcher, SandboxKind
from trinity.rewards.program import extract_program
from trinity.rewards.sandbox import Limits, Sandbox, SandboxEnded

_REPLY = ("value", "raised", "reason")


class CodeGrader:
    """Grades programs against the tests of their task, see `trinity.rewards.code_tests`.

    Args:
        workers: how many programs run at a time; None is one for each core.
        limits: of each test.
        sandbox: "bubblewrap", or "rlimits", see `trinity.rewards.launcher`.
    """

    def __init__(
        self, workers: int | None = None, limits: Limits | None = None, sandbox: SandboxKind = "bubblewrap"
    ) -> None:
        if workers is not None and workers < 1:
            raise UserError(f"The code grader's workers must be at least 1, but are {workers}; raise it.")
        self._launcher = Launcher(sandbox, limits or Limits())
        self._workers = workers or len(os.sched_getaffinity(0))
        self._threads: ThreadPoolExecutor | None = None

    def check(self, reference: str) -> None:
        """Raises ValueError if there are no tests in it, UserError if no sandbox starts on this machine."""
        read_tests(reference)
        self._launcher.probe()

    async def grade(self, output: str, reference: str) -> Grade:
        """The grade of a whole output. Does not block the event loop.

        Raises ValueError for a reference that `check` refuses, UserError if no sandbox starts here,
        RuntimeError if one that did start before does not, GraderClosedError if `close` comes first.
        """
        if self._threads is None:
            self._launcher.go_on()
            self._threads = ThreadPoolExecutor(self._workers, thread_name_prefix="code")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._grade, output, reference)

    def close(self) -> None:
        """Kill what runs, and end the threads. A later program starts them again.

        Programs under way or waiting have no grade: who waits for one gets GraderClosedError.
        """
        threads = self._threads
        if threads is not None:
            self._threads = None
            with ExitStack() as stack:  # each, also where an interrupt ends the one before
                stack.callback(threads.shutdown)  # does not take long: all that they may wait for is killed
                stack.callback(self._launcher.stop)

    def _grade(self, output: str, reference: str) -> Grade:
        self._launcher.check_not_stopped()
        tests = read_tests(reference)
        program = extract_program(output, tests.names)
        if program is None:
            return NO_ANSWER
        sources = tests.sources(program)
        together = [test for test in tests.tests if not isinstance(test, CheckTest)]
        try:
            if together:
                proc = isinstance(together[0], UnitTest)
                with self._launcher.start(len(together), proc=proc) as sandbox:
                    for number, test in enumerate(together, 1):
                        failure = _failure(sandbox, sources, test)
                        if failure:
                            return Grade(0, program, f"test {number}: {failure}")
            for check in tests.tests:
                failure = self._check_failure(sources, check) if isinstance(check, CheckTest) else ""
                if failure:
                    return Grade(0, program, failure)
        except SandboxEnded as error:
            return Grade(0, program, str(error))
        return Grade(1, program, f"passed {len(tests.tests)} of {len(tests.tests)} tests")

    def _check_failure(self, sources: list[str], test: CheckTest) -> str:
        """The check and the program run in sandboxes apart; between them go arguments and plain results."""
        with self._launcher.start(1) as candidate, self._launcher.start(1) as checker:
            candidate.send({"kind": "serve", "program": sources, "setup": test.setup})
            message = checker.do({"kind": "check", "sources": test.sources, "entry_point": test.entry_point})
            while "call" in message:
                reply = candidate.do(message)
                if "ending" in reply:
                    return _problem(reply)
                message = checker.do({key: reply[key] for key in _REPLY if key in reply})
            failure, result = _outcome(message)
            return failure or ("" if result.get("passed") is True else "the check did not finish")


def _failure(sandbox: Sandbox, sources: list[str], test: StdinTest | CallTest | ValueTest | UnitTest) -> str:
    """Why the program does not pass the test; "" if it does."""
    job: dict[str, Any] = {"program": sources}
    match test:
        case StdinTest(given=given, expected=expected):
            report = sandbox.do(job | {"kind": "stdin", "input": given})
            printed = report.get("output")
            right = isinstance(printed, str) and same_output(printed, expected)
            return _outcome(report)[0] or ("" if right else "wrong output")
        case CallTest(function=function, arguments=arguments):
            job |= {"kind": "call", "function": function, "arguments": arguments}
        case ValueTest(setup=setup, expression=expression):
            job |= {"kind": "value", "setup": setup, "expression": expression}
        case UnitTest(source=source, entry_point=entry_point):
            nonce = secrets.token_hex(16)
            job |= {"kind": "unittest", "test": source, "entry_point": entry_point, "nonce": nonce}
            failure, result = _outcome(sandbox.do(job))
            return failure or ("" if result.get("nonce") == nonce else "the tests did not finish")
    failure, result = _outcome(sandbox.do(job))
    if failure:
        return failure
    try:
        value = decode(result["value"])
    except (KeyError, ValueError, OverflowError, RecursionError):
        return "no plain value came back"
    right = same_value(value, test.expected, from_json=isinstance(test, CallTest))
    return "" if right else "wrong value"


def _outcome(report: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """What went wrong in a job ("" if nothing did), and what it reported itself."""
    try:
        result = json.loads(report.get("result") or "{}")
    except (ValueError, TypeError, RecursionError):
        return "the report cannot be read", {}
    if not isinstance(result, dict):
        return "the report cannot be read", {}
    return str(result.get("error") or report.get("ending") or "")[:200], result


def _problem(report: dict[str, Any]) -> str:
    return _outcome(report)[0] or "the program ended early"
