"""(task, final answer) -> reward: the one door to all graders."""

import asyncio
import hashlib
from contextlib import ExitStack
from types import TracebackType
from typing import Self, get_args

from trinity.errors import UserError
from trinity.rewards.choice import grade_choice
from trinity.rewards.code import CodeGrader
from trinity.rewards.exact_text import bare, grade_exact
from trinity.rewards.grade import Gradable, Grade
from trinity.rewards.judge import Ask, means_the_same
from trinity.rewards.launcher import SandboxKind
from trinity.rewards.math import AlgebraQuestion, MathFallback, grade_math, needs_algebra
from trinity.rewards.number import exact
from trinity.rewards.once import Once
from trinity.rewards.recorded import grade_json_literal, grade_json_math, grade_json_number, literal
from trinity.rewards.sandbox import Limits
from trinity.rewards.text import grade_free
from trinity.rewards.worker import AlgebraWorkers

KINDS = ("math", "choice", "text", "exact", "json_number", "json_math", "json_literal", "code")
_REMEMBERED = 65_536


class Rewards:
    """Grades final answers: "math", "choice", "text" (free-form), "exact" (letter for letter), the recorded
    sets' "json_number", "json_math" and "json_literal", and "code". Only "code" executes what it grades, in a
    sandbox.

    Grading does not block the event loop: what only algebra can decide is decided in processes of its own,
    which start with the first such question, and programs run in sandboxes. Grades are remembered by grader,
    reference and answer; equal ones under way are graded once.

    Args:
        math_workers: how many processes for algebra.
        math_timeout: seconds of CPU time for one algebra question; beyond that the answer is wrong.
        code_workers: how many programs run at a time; None is one for each core.
        code_limits: what one test of a program may use.
        sandbox: "bubblewrap"; or "rlimits" where bubblewrap cannot run and programs may read and write this
            user's files.
        judge: the pool's model that is asked, where a free-form answer differs from its reference, whether it
            means the same; each such answer costs a call. None asks nobody.
        math_fallback: what a "math" output that commits to no answer is taken to answer: "none", nothing; or
            "last_number", the last number in it (as in the method's text), which also rewards lucky ones.
    """

    def __init__(
        self,
        math_workers: int = 1,
        math_timeout: float = 1.5,
        code_workers: int | None = None,
        code_limits: Limits | None = None,
        sandbox: SandboxKind = "bubblewrap",
        judge: str | None = None,
        math_fallback: MathFallback = "none",
    ) -> None:
        if math_workers < 1 or math_timeout <= 0:
            raise UserError(
                f"math_workers must be at least 1 and math_timeout above 0, but they are {math_workers} and "
                f"{math_timeout}; raise them."
            )
        if math_fallback not in get_args(MathFallback):
            raise UserError(f"There is no math_fallback {math_fallback!r}; choose none or last_number.")
        self.judge = judge
        self._math_fallback = math_fallback
        self._algebra = AlgebraWorkers(math_workers, math_timeout)
        self._code = CodeGrader(code_workers, code_limits, sandbox)
        self._grades = Once[Grade](_REMEMBERED)  # of whole outputs, and of questions for algebra

    def check(self, task: Gradable) -> None:
        """Look at a task's reference, when it is loaded.

        Raises UserError for an unknown grader, for a reference that is empty or that its grader cannot read
        (no answer could ever be graded against it), and for "code" on a machine where no sandbox starts.
        """
        if task.grader not in KINDS:
            raise UserError(
                f"The task with reference {task.reference[:80]!r} has the unknown grader {task.grader!r}; "
                f"choose one of {', '.join(KINDS)}."
            )
        if not self._is_readable(task):
            raise UserError(
                f"The reference {task.reference[:80]!r} cannot be read by the grader {task.grader!r}; "
                f"mend or remove this task."
            )

    def _is_readable(self, task: Gradable) -> bool:
        reference = task.reference
        try:
            match task.grader:
                case "math" | "json_math":
                    return not needs_algebra(reference) or self._algebra.readable(reference)
                case "choice":
                    letter = reference.strip().upper()
                    return len(letter) == 1 and letter in task.letters.upper()
                case "text" | "exact":
                    return bool(bare(reference))
                case "json_number":
                    return exact(reference) is not None
                case "code":
                    self._code.check(reference)
                    return True
                case _:
                    literal(reference)
                    return True
        except ValueError:
            return False

    async def grade(self, task: Gradable, answer: str | None, ask: Ask | None = None) -> Grade:
        """The grade of a whole final output; None (no Worker spoke) gets reward 0.

        `ask` reaches the judge, where there is one. Of equal answers at a time, the first one's is used.

        Raises what the judge's call raises, and GraderClosedError where the graders are closed meanwhile:
        then there is no grade.
        """
        if answer is None:
            return Grade(0, None, "no Worker output")
        digest = hashlib.blake2b(answer.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if self.judge is None or task.grader != "text":
            ask = None
        query = task.query if ask else None
        key = (task.grader, task.reference, task.letters, task.options, query, digest)
        return await self._grades.get(key, lambda: self._fresh(task, answer, ask))

    async def _fresh(self, task: Gradable, answer: str, ask: Ask | None) -> Grade:
        if task.grader == "code":
            return await self._code.grade(answer, task.reference)
        decided = _decide(task, answer, self._math_fallback)
        if isinstance(decided, AlgebraQuestion):  # outputs that differ ask the same of algebra
            grade = await self._grades.get(decided, lambda: self._solve(decided))
        else:
            grade = decided
        if ask is not None and grade.extracted and not grade.reward:
            same = await means_the_same(ask, task.query, task.reference, grade.extracted)
            return Grade(
                int(same), grade.extracted, f"{self.judge} finds it {'the same' if same else 'different'}"
            )
        return grade

    async def _solve(self, question: AlgebraQuestion) -> Grade:
        equal = await self._algebra.equal(question.reference, question.answer)
        ran_out = Grade(0, question.answer, "algebra ran out of time or memory")
        return ran_out if equal is None else Grade.of(equal, question.answer)

    def close(self) -> None:
        """End the sandboxes and worker processes, each whatever happens to the other.

        What is being graded has no grade: who waits for it gets GraderClosedError. A later question starts
        them again.
        """
        with ExitStack() as stack:
            stack.callback(self._algebra.close)
            stack.callback(self._code.close)

    async def aclose(self) -> None:
        """`close`, without blocking the event loop."""
        await asyncio.to_thread(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _decide(task: Gradable, answer: str, math_fallback: MathFallback) -> Grade | AlgebraQuestion:
    match task.grader:
        case "math":
            return grade_math(answer, task.reference, math_fallback)
        case "choice":
            return grade_choice(answer, task.reference, task.letters, task.options)
        case "text":
            return grade_free(answer, task.reference)
        case "exact":
            return grade_exact(answer, task.reference)
        case "json_number":
            return grade_json_number(answer, task.reference)
        case "json_math":
            return grade_json_math(answer, task.reference)
        case "json_literal":
            return grade_json_literal(answer, task.reference)
    raise UserError(f"There is no grader {task.grader!r}; choose one of {', '.join(KINDS)}.")
