"""Multiple choice: which option an output commits to.

The last commitment wins. A commitment has an anchor: "the answer is B", "Answer: B" (also in other languages,
in JSON, in <answer> tags), "I pick B", "hence option B", "B is correct", a boxed letter, or a letter that
stands alone on the last line. Without one of these, "the cause is (B)" or "the cause is B. Its text" counts,
if all such statements name one letter. A letter without an anchor, in an enumeration of the options, in a
formula (C = 5, f(C)), behind a denial or a condition, or offered beside a second one ("B or C") is no answer;
nor is one after which the output says that no option fits. An output without a letter may commit to an option
by its text, if it names exactly one (`trinity.rewards.named`).
"""

import re
from collections.abc import Mapping, Sequence

from trinity.rewards.anchors import (
    AFTER,
    ARTICLE,
    BULLET,
    CLAUSE_END,
    DENIED,
    IN_SUBJECT,
    LABEL,
    LEGEND,
    NEGATION,
    NONE_FITS,
    QUESTION_OR_CONDITION,
    SUPPOSED,
    TAKEN_BACK,
    WITHDRAWN,
    Anchors,
    anchors,
)
from trinity.rewards.extraction import MAX_ANSWER, last_box, tail, without_thinking
from trinity.rewards.grade import NO_ANSWER, Grade
from trinity.rewards.named import begins_with, named_option

_FULL_WIDTH = str.maketrans(
    {code: code - 0xFEE0 for code in (*range(0xFF21, 0xFF3B), *range(0xFF41, 0xFF5B))}
)
_BOLD_LINE = re.compile(r"\*\*(.{1,400}?)\*\*[.!]?")
_LABEL = re.compile(
    r"[\s*_#>-]{0,8}(?:option|choice)?\s{0,4}[(*_]{0,4}([A-Za-z])[)*_]{0,4}\s{0,4}[).:,*-]", re.IGNORECASE
)
_CLAUSE = 200  # characters in front of a commitment that are searched for a denial
_WORD = re.compile(r"\w+")
_SENTENCE_ENDS = ".!?)]}*_$\"'”`"
_DOLLAR_CLOSES = re.compile(r"[^\w\s$]{0,8}\$")
_BRACKET_CLOSES = re.compile(r"[^\w\s$\\]{0,8}\\[)\]]")

_Commitment = tuple[int, int, str | None]  # where its letter begins, where it ends, the letter


def choice_answer(output: str, letters: str, options: Sequence[str] = ()) -> str | None:
    """The letter (upper case) that the output commits to, None where it commits to none.

    With the options' texts, "the author is J. Smith" is a commitment to J only if that is the text of J.
    """
    text = tail(without_thinking(output)).translate(_FULL_WIDTH).strip()
    known = anchors(letters.upper())
    if alone := _last_line(text, known):
        return alone
    found = _commitments(text, known)
    if box := _boxed(text, known):
        found.append(box)
    found = found or _stated(text, known, dict(zip(letters.upper(), options, strict=False)))
    if not found:
        return _leading(text, known)
    _, end, choice = max(found, key=lambda commitment: commitment[0])
    withdrawn = {match["letter"] for pattern in (WITHDRAWN, DENIED) for match in pattern.finditer(text, end)}
    withdraws = choice in withdrawn or TAKEN_BACK.search(text, end) or _says_that_none_fits(text, end)
    return None if withdraws else choice


def _says_that_none_fits(text: str, end: int) -> bool:
    """Whether it says so later; directly behind the letter, "None of the options is right" is its text."""
    return any(
        _WORD.search(text, end, denial.start()) or denial[0][0] not in "Nn"
        for denial in NONE_FITS.finditer(text, end)
    )


def _last_line(text: str, known: Anchors) -> str | None:
    """A letter that is the whole last line, or that begins it, in bold."""
    before, _, line = text.rpartition("\n")
    alone = known.alone.fullmatch(line)
    if alone is None:
        bold = _BOLD_LINE.fullmatch(line)
        return _only_mark(bold[1], known) if bold else None
    letter = alone["letter"].upper()
    decorated = alone["noun"] or alone["mark"].strip() or line != alone["letter"]
    if not decorated and _is_first_letter_of_more(before, letter):
        return None
    if letter == "A" and LEGEND.search(before[-_CLAUSE:]):
        return None
    labelled = _LABEL.match(before.rstrip().rpartition("\n")[2])
    enumerated = labelled is not None and ord(labelled[1].upper()) == ord(letter) - 1
    return None if enumerated and (decorated or not before.endswith("\n")) else letter


def _is_first_letter_of_more(before: str, letter: str) -> bool:
    """Whether an output was cut behind a bare letter: in a formula, or where the lines before begin alike."""
    if before.count("$$") % 2 or before.rfind("\\[") > before.rfind("\\]"):
        return True
    lines = before.rsplit("\n", 2)[-2:]
    words = [line.partition(" ")[0] for line in lines]
    alike = len(words) == 2 and words[0] == words[1] and words[0][:1] == letter and len(words[0]) > 1
    return alike or lines[-1].endswith(("\\]", "$$"))


def _commitments(text: str, known: Anchors) -> list[_Commitment]:
    found: list[_Commitment] = []
    for match in known.contrast.find(text):
        found.append((match.start("letter"), match.end(), _unless_doubtful(text, match, known)))
    for match in known.strong.find(text):
        if not _is_hedged(text, match) and not _is_cut_off(text, match) and not _is_in_formula(text, match):
            found.append((match.start("letter"), match.end(), _unless_doubtful(text, match, known)))
    for match in known.last.find(text):
        choice = _unless_doubtful(text, match, known)
        last = not _WORD.search(text, match.end()) and not _is_in_formula(text, match)
        if choice and last and not _is_hedged(text, match):
            found.append((match.start("letter"), match.end(), choice))
    praised = [match for match in known.praised.finditer(text) if not _is_hedged(text, match)]
    if praised and not _is_amid_a_cut_analysis(text, praised[-1].end(), known):
        final, agreed = praised[-1], len({match["letter"] for match in praised}) == 1
        found.append((final.start("letter"), final.end(), final["letter"] if agreed else None))
    return found


def _stated(text: str, known: Anchors, options: Mapping[str, str]) -> list[_Commitment]:
    """`The cause is (B)`: the letter on which all such statements agree."""
    found = []
    for match in known.stated.finditer(text):
        subject = IN_SUBJECT.sub("", _clause(text, match.start()))
        theirs = options.get(match["letter"]) if not match["open"] else None
        named = theirs is None or begins_with(text[match.end() : match.end() + MAX_ANSWER], theirs)
        if named and not NEGATION.search(subject) and not SUPPOSED.search(subject):
            others = {mark["letter"] for mark in known.marked.finditer(_line(text, match.end()))}
            choice = _unless_doubtful(text, match, known) if others <= {match["letter"]} else None
            found.append((match.start("letter"), match.end(), choice))
    return found[-1:] if len({choice for _, _, choice in found}) == 1 else []


def _is_amid_a_cut_analysis(text: str, end: int, known: Anchors) -> bool:
    """Whether more options are discussed after `end`, and the last sentence has no end."""
    return text[-1] not in _SENTENCE_ENDS and known.marked.search(text, end) is not None


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


def _is_in_formula(text: str, match: re.Match[str]) -> bool:
    """`Hence $a`: a formula is open before the letter and does not close behind it."""
    before = text[match.start() : match.start("letter")].replace("$$", "$")
    if before.count("$") % 2:
        return _DOLLAR_CLOSES.match(text, match.end("letter")) is None
    opened = before.count("\\(") > before.count("\\)") or before.count("\\[") > before.count("\\]")
    return opened and _BRACKET_CLOSES.match(text, match.end("letter")) is None


def _unless_doubtful(text: str, match: re.Match[str], known: Anchors) -> str | None:
    """The letter; None where a second one stands beside it or in a list, or it is asked or conditional."""
    after = AFTER.match(text, match.end())
    end = after.end() if after else match.end()
    choice = match["letter"].upper()
    second = known.second.match(text, end)
    if second and second["letter"] != choice:
        is_word = second["letter"] in "AI" and ARTICLE.match(text, second.end())
        if not is_word:
            return None
    if _listed_with(text, match, known) - {choice}:
        return None
    return None if QUESTION_OR_CONDITION.match(text, end) else choice


def _listed_with(text: str, match: re.Match[str], known: Anchors) -> set[str]:
    """The letters of the list that the letter begins: items line by line, or "the answers: (a) 1, (b) 2".

    An item without a letter under "the answers are" is a "?".
    """
    several = "answers" in match[0].lower()
    line = text.rfind("\n", match.start(), match.start("letter")) + 1
    if not line or not known.item.match(text, line):
        begin = match.start("letter") - 1
        return {label["letter"].upper() for label in LABEL.finditer(_line(text, begin))} if several else set()
    letters: set[str] = set()
    for each in text[line : line + MAX_ANSWER].split("\n"):
        item = known.item.match(each)
        if item:
            letters.add(item["letter"])
        elif several and BULLET.match(each):
            letters.add("?")
        elif each.strip():
            break
    return letters


def _line(text: str, begin: int) -> str:
    """The rest of the line."""
    return text[begin : begin + MAX_ANSWER].partition("\n")[0]


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


def grade_choice(output: str, reference: str, letters: str, options: Sequence[str] = ()) -> Grade:
    """Whether the output commits to the reference's letter.

    `letters` are the options on offer, `options` their texts, in the same order, where they are known.
    """
    answer = choice_answer(output, letters, options)
    if answer is None and options and (index := named_option(output, options)) is not None:
        answer = letters[index].upper()
    return NO_ANSWER if answer is None else Grade.of(answer == reference.strip().upper(), answer)
