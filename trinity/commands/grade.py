"""`trinity-grade CASES.jsonl`: what the graders say of recorded outputs, and whether that was expected."""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, get_args

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trinity.episode.verdict import parse_judgement
from trinity.errors import UserError
from trinity.rewards.launcher import SandboxKind
from trinity.rewards.sandbox import Limits
from trinity.tasks.jsonl import Row, read_rows

if TYPE_CHECKING:
    from trinity.rewards.rewards import Rewards

_LIMITS = {
    "cpu_seconds": "seconds of CPU time",
    "wall_seconds": "seconds on the wall",
    "memory_mb": "MB of memory",
    "output_mb": "MB printed, returned, or in one file",
}
_WIDTH = 110
_SHOWN = 60


@dataclass(frozen=True)
class Case:
    """One row of a file of cases, as far as a grader sees it (see `trinity.rewards.grade.Gradable`)."""

    id: str
    grader: str
    output: str | None
    reference: str
    letters: str = "ABCD"
    options: tuple[str, ...] = ()
    query: str = ""
    expected: bool | str | None = None


@dataclass(frozen=True)
class Result:
    """What came of one case. `verdict` takes the reward's place for the kind "verdict"."""

    id: str
    reward: int | None
    verdict: str | None
    extracted: str | None
    reason: str
    seconds: float
    expected: bool | str | None
    error: str | None = None

    @property
    def differs(self) -> bool:
        """Whether something else was expected."""
        if self.expected is None:
            return False
        if self.verdict is not None:
            return self.verdict != self.expected
        return bool(self.reward) is not self.expected

    def as_json(self) -> str:
        """One object on one line, in ASCII; `verdict` or `reward`, and `error` only where there is one."""
        fields = {name: value for name, value in asdict(self).items() if name not in ("expected", "error")}
        del fields["reward" if self.verdict is not None else "verdict"]
        fields["seconds"] = round(self.seconds, 4)
        return json.dumps(fields | ({"error": self.error} if self.error is not None else {}))


def read_case(row: Row, number: int) -> Case:
    """A case from a row {id, kind, output, reference, letters?, options? or choices?, query?, expected?}.

    A reference that is no text is taken as its JSON. Raises UserError for a row that is none.
    """
    values = row.values
    reference, output, kind = values.get("reference"), values.get("output"), values.get("kind")
    if not isinstance(output, str | None) or "output" not in values or not isinstance(kind, str):
        raise UserError(f'{row.where}: a case needs the texts "kind" and "output"; add what is missing.')
    expected = values.get("expected")
    if not (expected is None or expected in ("ACCEPT", "REVISE") or expected in (True, False)):
        raise UserError(
            f'{row.where}: "expected" is {json.dumps(expected)[:40]}; give true or false, or of a '
            "verdict ACCEPT or REVISE."
        )
    options = values.get("options") or values.get("choices")
    letters = values.get("letters") or "ABCD"
    if reference is None:
        reference = ""  # which no grader can read
    return Case(
        id=str(values.get("id", number)),
        grader=kind,
        output=output,
        reference=reference if isinstance(reference, str) else json.dumps(reference),
        letters="".join(map(str, letters)) if isinstance(letters, list) else str(letters),
        options=tuple(map(str, options)) if isinstance(options, list) else (),
        query=str(values.get("query") or ""),
        expected=bool(expected) if isinstance(expected, int) else expected,
    )


async def grade_case(rewards: "Rewards", case: Case) -> Result:
    """Grade one case; one that can't be graded has reward 0 and an error."""
    begin = time.perf_counter()

    def result(reward: int | None, extracted: str | None, reason: str, **more: Any) -> Result:
        seconds = time.perf_counter() - begin
        return Result(
            case.id, reward, more.pop("verdict", None), extracted, reason, seconds, case.expected, **more
        )

    if case.grader == "verdict":
        output = case.output or ""
        judgement = parse_judgement(output)
        reason = "the last line about a verdict decides" if "verdict" in output.lower() else "no verdict"
        return result(None, None, reason, verdict=judgement.verdict.value)
    try:
        await asyncio.to_thread(rewards.check, case)
        grade = await rewards.grade(case, case.output)
    except UserError as error:
        return result(0, None, "cannot be graded", error=str(error))
    return result(grade.reward, grade.extracted, grade.reason)


async def _warm_up(rewards: "Rewards", kinds: set[str]) -> None:
    """Start what the first case of a kind would otherwise wait for."""
    if kinds & {"math", "text", "json_math"}:
        await rewards.grade(Case("", "math", r"\boxed{\frac{\sqrt{8}}{2}}", r"\sqrt{2}"), r"\boxed{\sqrt{8}}")
    if "code" in kinds:
        program = Case("", "code", "", '{"tests": [{"input": "", "output": "1", "testtype": "stdin"}]}')
        await asyncio.to_thread(rewards.check, program)


async def _grade_all(rewards: "Rewards", cases: Sequence[Case], show: Any) -> list[Result]:
    """One after another, so that the seconds of each are its own."""
    await _warm_up(rewards, {case.grader for case in cases})
    results = []
    for case in cases:
        results.append(await grade_case(rewards, case))
        show(results[-1])
    return results


def plain(text: str) -> str:
    """Text of an LLM for a terminal: on one line, without control characters, shortened."""
    shown = "".join(c if c.isprintable() else " " for c in text[: 4 * _SHOWN])
    shown = " ".join(shown.split())
    return shown if len(shown) <= _SHOWN else shown[: _SHOWN - 1] + "…"


def _table(results: Sequence[Result]) -> Table:
    table = Table("id", "reward", "expected", "s", "extracted", "why")
    for result in results:
        outcome = result.verdict if result.verdict is not None else str(result.reward)
        expected = "" if result.expected is None else str(result.expected)
        why = result.error or result.reason
        cells = [result.id, outcome, expected, f"{result.seconds:.2f}", result.extracted or "", why]
        table.add_row(*(Text(plain(cell)) for cell in cells), style="red" if result.differs else None)
    return table


def _summary(results: Sequence[Result]) -> Iterator[str]:
    checked = [result for result in results if result.expected is not None]
    differing = [result.id for result in checked if result.differs]
    slowest = max(results, key=lambda result: result.seconds)
    yield f"{len(results)} cases, {sum(r.error is not None for r in results)} of them could not be graded"
    if checked:
        yield f"{len(checked) - len(differing)} of {len(checked)} as expected"
    if differing:
        yield "not as expected: " + plain(", ".join(differing[:20])) + (" ..." if len(differing) > 20 else "")
    yield f"slowest: {plain(slowest.id)}, {slowest.seconds:.2f} s"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trinity-grade", description=__doc__, allow_abbrev=False)
    parser.add_argument("cases", nargs="+", help="JSON Lines with {id, kind, output, reference, expected?}")
    parser.add_argument("--json", action="store_true", help="one object a case on standard output")
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="FILE",
        help="grade as this experiment does, or a run's config.yaml (its model.rewards); may be repeated",
    )
    parser.add_argument("--sandbox", choices=get_args(SandboxKind), help="where programs run (bubblewrap)")
    for limit in fields(Limits):
        parser.add_argument(
            f"--limits.{limit.name}",
            metavar="N",
            help=f"of one test of one program: {_LIMITS[limit.name]} ({limit.default:g})",
        )
    return parser


def run(argv: Sequence[str]) -> int:
    """Grade a file and print; the exit code: 1 where anything expected differs. Raises UserError."""
    options = _parser().parse_args(list(argv))
    from trinity.commands.graders import make_graders  # a second that --help need not wait for

    rows = (row for path in options.cases for row in read_rows(path))
    cases = [read_case(row, number) for number, row in enumerate(rows, 1)]
    given = {"sandbox": options.sandbox}
    given |= {
        f"code_limits.{field.name}": getattr(options, f"limits.{field.name}") for field in fields(Limits)
    }
    with make_graders(options.config, given) as rewards:
        if rewards.judge is not None and any(case.grader == "text" for case in cases):
            print(
                f"trinity-grade: No LLM is asked here, so free-form answers that only the judge "
                f"{rewards.judge} could accept stay wrong.",
                file=sys.stderr,
            )
        show = (lambda result: print(result.as_json(), flush=True)) if options.json else (lambda _: None)
        results = asyncio.run(_grade_all(rewards, cases, show))
    console = Console(stderr=options.json, highlight=False, markup=False, soft_wrap=options.json)
    if not options.json:
        console.print(_table(results), width=None if console.is_terminal else _WIDTH)
    for line in _summary(results):
        console.print(line)
    return int(any(result.differs for result in results))


def main(argv: Sequence[str] | None = None) -> None:
    """`trinity-grade`."""
    try:
        sys.exit(run(sys.argv[1:] if argv is None else argv))
    except UserError as error:
        print(f"trinity-grade: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
