"""Multiple choice: which option an output commits to.

The last commitment wins. A commitment has an anchor: "the answer is B", "Answer: B" (also in other languages,
in JSON, in <answer> tags), "I pick B", "hence option B", "B is correct", a boxed letter, or a letter that
stands alone on the last line. A letter without an anchor, in an enumeration of the options, behind a denial
or a condition, or offered beside a second one ("B or C") is no answer. An output without a letter may commit
to an option by its text, if it names exactly one.
"""

import re
from collections.abc import Iterator, Sequence

from trinity.rewards.anchors import (
    AFTER,
    ARTICLE,
    CLAUSE_END,
    DENIED,
    NEGATION,
    QUESTION_OR_CONDITION,
    SECOND,
    SUPPOSED,
    TAKEN_BACK,
    WITHDRAWN,
    Anchors,
    anchors,
)
from trinity.rewards.extraction import last_box, math_answer, tail, without_thinking
from trinity.rewards.grade import NO_ANSWER, Grade

_FULL_WIDTH = str.maketrans(
    {code: code - 0xFEE0 for code in (*range(0xFF21, 0xFF3B), *range(0xFF41, 0xFF5B))}
)
_BOLD_LINE = re.compile(r"\*\*(.{1,400}?)\*\*[.!]?")
_LABEL = re.compile(
    r"[\s*_#>-]{0,8}(?:option|choice)?\s{0,4}[(*_]{0,4}([A-Za-z])[)*_]{0,4}\s{0,4}[).:,*-]", re.IGNORECASE
)
_CLAUSE = 200  # characters in front of a commitment that are searched for a denial
_WORD = re.compile(r"\w+")

_Commitment = tuple[int, int, str | None]  # where its letter begins, where it ends, the letter


def choice_answer(output: str, letters: str) -> str | None:
    """The letter (upper case) that the output commits to, None where it commits to none."""
    text = tail(without_thinking(output)).translate(_FULL_WIDTH).strip()
    known = anchors(letters.upper())
    if alone := _last_line(text, known):
        return alone
    found = _commitments(text, known)
    if box := _boxed(text, known):
        found.append(box)
    if not found:
        return _leading(text, known)
    _, end, choice = max(found, key=lambda commitment: commitment[0])
    withdrawn = {match["letter"] for pattern in (WITHDRAWN, DENIED) for match in pattern.finditer(text, end)}
    return None if choice in withdrawn or TAKEN_BACK.search(text, end) else choice


def _last_line(text: str, known: Anchors) -> str | None:
    """A letter that is the whole last line, or that begins it, in bold."""
    before, _, line = text.rpartition("\n")
    alone = known.alone.fullmatch(line)
    if alone is None:
        bold = _BOLD_LINE.fullmatch(line)
        return _only_mark(bold[1], known) if bold else None
    letter = alone["letter"].upper()
    labelled = _LABEL.match(before.rstrip().rpartition("\n")[2])
    if labelled and (alone["noun"] or alone["mark"].strip()) and ord(labelled[1].upper()) == ord(letter) - 1:
        return None  # the next item of an enumeration that was cut off
    return letter


def _commitments(text: str, known: Anchors) -> list[_Commitment]:
    found: list[_Commitment] = []
    for match in known.contrast.find(text):
        found.append((match.start("letter"), match.end(), _unless_doubtful(text, match)))
    for match in known.strong.find(text):
        if not _is_hedged(text, match) and not _is_cut_off(text, match):
            found.append((match.start("letter"), match.end(), _unless_doubtful(text, match)))
    for match in known.last.find(text):
        choice = _unless_doubtful(text, match)
        if choice and not _is_hedged(text, match) and not _WORD.search(text, match.end()):
            found.append((match.start("letter"), match.end(), choice))
    praised = [match for match in known.praised.finditer(text) if not _is_hedged(text, match)]
    if praised:
        last, agreed = praised[-1], len({match["letter"] for match in praised}) == 1
        found.append((last.start("letter"), last.end(), last["letter"] if agreed else None))
    return found


def _is_hedged(text: str, match: re.Match[str]) -> bool:
    """Whether the sentence denies or only supposes what it says."""
    clause = _clause(text, match.start())
    return NEGATION.search(clause) is not None or SUPPOSED.search(clause) is not None


def _clause(text: str, end: int) -> str:
    """The part of the sentence that stands before `end`."""
    begin = max(0, end - _CLAUSE)
    for stop in CLAUSE_END.finditer(text, begin, end):
        begin = stop.end()
    return text[begin:end]


def _is_cut_off(text: str, match: re.Match[str]) -> bool:
    """`... the answer is a` at the very end: the article of a sentence that was not finished."""
    return (
        match["letter"] in "ai"
        and match.end() == len(text)
        and text[match.start("letter") - 4 :][:4] == " is "
    )


def _unless_doubtful(text: str, match: re.Match[str]) -> str | None:
    """The letter; None where a second one is offered beside it, or where it is asked or conditional."""
    after = AFTER.match(text, match.end())
    end = after.end() if after else match.end()
    choice = match["letter"].upper()
    second = SECOND.match(text, end)
    if second and second["letter"] != choice:
        is_word = second["letter"] in "AI" and ARTICLE.match(text, second.end())
        if not is_word:
            return None
    return None if QUESTION_OR_CONDITION.match(text, end) else choice


def _boxed(text: str, known: Anchors) -> _Commitment | None:
    box = last_box(text) if "box" in text else None
    if box is None:
        return None
    at = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    alone = known.alone.fullmatch(box)
    letter = alone["letter"].upper() if alone else _only_mark(box, known)
    return (at, at + len("\\boxed"), letter) if letter else None


def _leading(text: str, known: Anchors) -> str | None:
    """`B) because ...` as the whole output: one line that begins with a marked letter and names no other."""
    return None if "\n" in text else _only_mark(text, known)


def _only_mark(line: str, known: Anchors) -> str | None:
    r"""The letter of `B) 42`, `**B.** 42` or `\text{B: } 42`, if no other is marked so."""
    line = line.removeprefix("\\text{").removeprefix("\\textbf{").lstrip("*_ ")
    start = known.marked.match(line)
    if start and {mark["letter"] for mark in known.marked.finditer(line)} == {start["letter"]}:
        return str(start["letter"])
    return None


def named_option(output: str, options: Sequence[str]) -> int | None:
    """The index of the only option whose text the output's final statement names; None for none or several.

    The statement is the last box, "the answer is ...", or last bold line. Words are compared without letter
    case and punctuation; of "cell" and "stem cell", "stem cell" names only the longer. A denial names none.
    """
    statement = math_answer(output)
    if statement is None or NEGATION.search(statement):
        return None
    left = f" {_words(statement)} "
    named: list[int] = []
    wordings = [_words(option) for option in options]
    for index in sorted(range(len(options)), key=lambda index: -len(wordings[index])):
        if wordings[index] and f" {wordings[index]} " in left:
            left = left.replace(f" {wordings[index]} ", " \x00 ")
            named.append(index)
    return named[0] if len(named) == 1 and wordings.count(wordings[named[0]]) == 1 else None


def _words(text: str) -> str:
    return " ".join(_tokens(text.casefold()))


def _tokens(text: str) -> Iterator[str]:
    for token in re.finditer(r"-?\d+(?:[.,]\d+)*|\w+|[^\w\s.,;:!?'\"$*()\\{}-]", text):
        yield token[0]


def grade_choice(output: str, reference: str, letters: str, options: Sequence[str] = ()) -> Grade:
    """Whether the output commits to the reference's letter.

    `letters` are the options on offer, `options` their texts, in the same order, where they are known.
    """
    answer = choice_answer(output, letters)
    if answer is None and options and (index := named_option(output, options)) is not None:
        answer = letters[index].upper()
    return NO_ANSWER if answer is None else Grade.of(answer == reference.strip().upper(), answer)
