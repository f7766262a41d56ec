import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trinity.episode.verdict import Verdict, parse_judgement

CASES = Path(__file__).parents[1] / "data" / "reward_cases" / "verdict.jsonl"
ROWS = [json.loads(line) for line in CASES.read_text().splitlines()]

CLEAR = [
    "VERDICT: ACCEPT", "verdict: accept.", "  **VERDICT: ACCEPT**  ", "VERDICT:ACCEPT",
    "## Verdict : `Accept`", "**VERDICT:** ACCEPT.", "> VERDICT: __ACCEPT__",
]  # fmt: skip
UNCLEAR = [
    "VERDICT: REVISE", "VERDICT: ACCEPTED", "VERDICT: ACCEPT!", "VERDICT: ACCEPT?", "VERDICT: NOT ACCEPT",
    "VERDICT: ACCEPT or VERDICT: REVISE", "My VERDICT: ACCEPT", "VERDICT: ACCEPT, with one doubt", "VERDICT:",
    "VERDICT REVISE", "VERDICT - REVISE", "VERDICT：REVISE", "The verdict is REVISE",
    "VERDICT: ACCEPT ACCEPT", "VERDICT: ACCEPT..", "VERDICT:: ACCEPT", "VERDICT: A C C E P T",
]  # fmt: skip
SILENT = ["", "   ", "ACCEPT", "It is all right.", "I would accept it.", "```", "REVISE", "\t- a step: 3 * 4"]


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_s4_the_shared_bank_of_verdicts(row: dict[str, str]) -> None:
    assert parse_judgement(row["output"]).verdict == row["expected"]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(CLEAR + UNCLEAR + SILENT), max_size=6))
def test_s4_the_last_line_that_speaks_of_a_verdict_decides(lines: list[str]) -> None:
    speaking = [line for line in lines if line in CLEAR + UNCLEAR]
    accepts = bool(speaking) and speaking[-1] in CLEAR
    assert parse_judgement("\n".join(lines)).verdict is (Verdict.ACCEPT if accepts else Verdict.REVISE)


fragments = st.sampled_from(
    [
        "VERDICT",
        "verdict",
        ":",
        "：",
        " ",
        "ACCEPT",
        "accept",
        "REVISE",
        ".",
        "**",
        "`",
        "\n",
        "\r\n",
        "\u2028",
        "?",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(), st.lists(fragments | st.text(max_size=3), max_size=12).map("".join)))
def test_s4_no_text_raises_and_only_a_clear_line_accepts(text: str) -> None:
    judgement = parse_judgement(text)
    if judgement.verdict is Verdict.ACCEPT:
        speaking = [line for line in text.splitlines() if "verdict" in line.lower()]
        bare = "".join(c for c in speaking[-1].lower() if c not in "*_`#>" and not c.isspace())
        assert bare.removesuffix(".") == "verdict:accept"
    assert "\n".join(judgement.diagnosis.splitlines()) in "\n".join(text.splitlines())


def test_s4_the_diagnosis_stands_above_the_verdict() -> None:
    judgement = parse_judgement("Step 2 drops a sign.\nIt should be -4.\n\n**VERDICT: REVISE**\nThanks.")
    assert judgement.verdict is Verdict.REVISE
    assert judgement.diagnosis == "Step 2 drops a sign.\nIt should be -4."


def test_s4_without_a_verdict_all_is_diagnosis() -> None:
    judgement = parse_judgement("  I cannot tell. ")
    assert (judgement.verdict, judgement.diagnosis) == (Verdict.REVISE, "I cannot tell.")


def test_s4_a_long_hostile_text_is_read_in_linear_time() -> None:
    assert parse_judgement("verdict " * 200_000 + "*" * 200_000).verdict is Verdict.REVISE
    assert parse_judgement(("verdict" + " " * 1000) * 1000).verdict is Verdict.REVISE
