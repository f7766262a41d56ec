"""The choice grader on 71,118 recorded outputs of six models, against the source's own reading of them.

    python tests/benchmarks/mmlu_pro_outputs.py [--list FILE]

The source takes the first "answer is (X)" of an output, and a random letter, or none, where there is no such
place. So agreement is measured on the outputs that it really read, and what it guessed is counted apart. A
disagreement is no fault by itself: "The answer is (B) and (F)" is a letter for the source and none for us.
`--list` writes every disagreement by kind, with the end of its output, for reading. Takes about a minute; the
last line is one JSON object.
"""

import argparse
import gzip
import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trinity.rewards.choice import grade_choice

DATA = Path(__file__).parents[3] / "shared" / "data" / "recorded_outcomes" / "mmlu-pro.jsonl.gz"
LETTERS = "ABCDEFGHIJ"
SAME, DIFFERENT, ONLY_WE, NEITHER = "same letter", "different letter", "only we read something", "neither"
SEVERAL, NO_OPTION, NOTHING = "several letters", "no such option", "we read nothing"
DISAGREEMENTS = (SEVERAL, NO_OPTION, NOTHING, DIFFERENT, ONLY_WE)
_SOURCE = re.compile(r"answer is \(?([A-J])\)?")
_SEVERAL = re.compile(r"answer is \(?[A-J]\)?(?:(?:,| and| or|/) *\(?[A-J]\b)+")
_OPTION = re.compile(r"^\(([A-J])\) ", re.MULTILINE)
_TAIL = 500


@dataclass(frozen=True)
class Reading:
    """One output: the source's letter if it read one, our letter, the right one, and all on offer."""

    id: str
    model: str
    output: str
    source: str | None
    ours: str | None
    right: str
    letters: str

    @property
    def kind(self) -> str:
        """How the two compare."""
        if self.source is None:
            return NEITHER if self.ours is None else ONLY_WE
        if self.ours is None:
            offered = NOTHING if self.source in self.letters else NO_OPTION
            return SEVERAL if _SEVERAL.search(self.output) else offered
        return SAME if self.ours == self.source else DIFFERENT


def options_of(question: str, count: int) -> tuple[str, ...]:
    """The options' texts from the question's "(A) ..." lines; empty where these are not complete."""
    marks = list(_OPTION.finditer(question))[-count:]
    if "".join(mark[1] for mark in marks) != LETTERS[:count]:
        return ()
    ends = [mark.start() for mark in marks[1:]] + [len(question)]
    return tuple(question[mark.end() : end].strip() for mark, end in zip(marks, ends, strict=True))


def readings(rows: Iterable[dict[str, Any]]) -> Iterator[Reading]:
    """All outputs of all rows."""
    for row in rows:
        letters, options = LETTERS[: row["options"]], options_of(row["question"], row["options"])
        for model, output in row["outputs"].items():
            found = _SOURCE.search(output)
            ours = grade_choice(output, row["reference"], letters, options).extracted
            yield Reading(row["id"], model, output, found and found[1], ours, row["reference"], letters)


def agreement(counts: Counter[str]) -> float:
    """The share of the same letter among the outputs that the source read."""
    return counts[SAME] / max(1, read_by_source(counts))


def read_by_source(counts: Counter[str]) -> int:
    """The outputs that the source did not guess."""
    return counts.total() - counts[ONLY_WE] - counts[NEITHER]


def show(model: str, counts: Counter[str]) -> None:
    kinds = "  ".join(f"{kind}: {counts[kind]}" for kind in (*DISAGREEMENTS, NEITHER))
    print(f"{model:27} agreement {agreement(counts):.4f}  {kinds}")


def write_list(path: Path, disagreements: Iterable[Reading]) -> None:
    """Every disagreement, kind by kind."""
    with path.open("w", encoding="utf-8") as file:
        for reading in sorted(disagreements, key=lambda each: (each.kind, each.model)):
            letters = f"source {reading.source}, ours {reading.ours}, right {reading.right}"
            file.write(f"## {reading.kind}: {reading.id}, {reading.model}: {letters}\n")
            file.write(f"{reading.output[-_TAIL:]}\n\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", type=Path, metavar="FILE", help="write the disagreements to this file")
    arguments = parser.parse_args()
    if not DATA.is_file():
        parser.exit(1, f"There is no {DATA}: the recorded outputs belong beside the repository.\n")
    if arguments.list and not arguments.list.resolve().parent.is_dir():
        parser.error(f"argument --list: there is no folder {arguments.list.parent}")
    begin = time.perf_counter()
    by_model: dict[str, Counter[str]] = {}
    right: Counter[str] = Counter()
    disagreements: list[Reading] = []
    with gzip.open(DATA, "rt", encoding="utf-8") as lines:
        for reading in readings(map(json.loads, lines)):
            by_model.setdefault(reading.model, Counter())[reading.kind] += 1
            right["ours"] += reading.ours == reading.right
            if reading.kind not in (SAME, NEITHER):
                disagreements.append(reading)
                right[f"ours, {reading.kind}"] += reading.ours == reading.right
                right[f"source, {reading.kind}"] += reading.source == reading.right
    total = sum(by_model.values(), Counter())
    for model, counts in (*by_model.items(), ("all", total)):
        show(model, counts)
    for kind in DISAGREEMENTS:
        print(f"{kind}: {total[kind]}; the right letter in {right[f'ours, {kind}']} of ours", end="")
        print(f", {right[f'source, {kind}']} of the source's")
    if arguments.list:
        write_list(arguments.list, disagreements)
    line = {
        "outputs": total.total(),
        "read_by_source": read_by_source(total),
        "agreement": round(agreement(total), 5),
        **{kind.replace(" ", "_"): total[kind] for kind in (*DISAGREEMENTS, NEITHER)},
        "agreement_by_model": {model: round(agreement(counts), 5) for model, counts in by_model.items()},
        "seconds": round(time.perf_counter() - begin, 1),
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
