# ruff: noqa: RUF001 - quotes, colons and brackets as models write them
"""Multiple choice: which letter an output commits to.

The last commitment wins. A commitment has an anchor: "the answer is B", "Answer: B" (also in other languages,
in JSON, in <answer> tags), "I pick B", "hence option B", "B is correct", a boxed letter, or a letter that
stands alone on the last line. A letter without an anchor, in an enumeration of the options, behind a negation
or a condition, or offered beside a second one ("B or C") is no answer.

Repetitions in the patterns are bounded, so that the search is linear in the length of the output.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from trinity.rewards.extraction import last_box, tail, without_thinking
from trinity.rewards.grade import NO_ANSWER, Grade

_S0, _S1 = r"\s{0,4}", r"\s{1,4}"
_MARKS = r"[*_]{0,3}"
_OPEN = r"""(?:\\(?:text|textbf|mathbf|mathrm|boxed|fbox)\{|\\\(|[\s*_`"'“‘$(\[{（【]){0,12}"""
_CLOSE = r"""(?:\\\)|[*_`"'”’$)\]}）】]){0,12}"""
_NOUN = rf"(?:(?:option|choice|letter|answer)\b{_S0})?"
_BECAUSE = rf"{_S0}(?:[,;—–-]|\b(?:because|since|as|for|which|due|and|but|by|given)\b)"
_END = rf"(?={_CLOSE}(?:{_S0}(?:$|\n|[.,;:!)\]}}<])|{_BECAUSE}))"
_IS = rf"(?:is|are|(?:would|must|should|to){_S1}be|(?:appears|seems){_S1}to{_S1}be|remains)"
_FOREIGN = (
    r"(?:antwort|lösung|réponse|reponse|respuesta|resposta|risposta|odpowiedź|ответ|відповідь|정답|답|答案|答え|回答"
    r"|正解|उत्तर|الإجابة|الجواب|jawaban|cevap|đáp án|svar)"
)
_ANCHORS = (
    r"\b(?:answer|choice|option|solution|response)"
    rf"(?:{_S0}{_IS}\b{_S0}:?|{_S0}{_MARKS}{_S0}[:=：]{_S0}{_MARKS})",
    rf"{_FOREIGN}{_S0}{_MARKS}{_S0}(?:[:：=是为為]|は|(?:est|ist|es|é|è)\b)?",
    rf"(?<=\bI )(?:(?:would|will){_S1})?(?:pick|choose|select|go{_S1}with|opt{_S1}for)\b",
    rf"(?<=\bI)'(?:d|ll){_S1}(?:pick|choose|select|go{_S1}with|opt{_S1}for)\b",
    rf"\b(?:hence|therefore|thus|so|choose|pick|select)\b,?{_S1}(?:the{_S1})?(?:option|choice)\b",
    rf"\b(?:hence|therefore|thus)\b,?{_S1}(?=\()",
    r"<answer>",
    rf"""["']answer["']{_S0}:""",
)
_CONTRAST = rf"(?:(?<=[,;—–] )|(?<=[,;—–])|(?<=\bbut ))(?:it{_S1}is|it's|it’s|rather|but)\b"
_STARTS = (  # what an anchor begins with, in small letters: found much faster than the patterns themselves
    "answer", "choice", "option", "solution", "response", "would", "will", "'d", "'ll", "pick",
    "choose", "select", "go", "opt", "hence", "therefore", "thus", "so", "<", '"', "'", "it",
    "rather", "but", "antwort", "lösung", "réponse", "reponse", "respuesta", "resposta",
    "risposta", "odpowiedź", "ответ", "відповідь", "정답", "답", "答", "回答", "正解", "उत्तर",
    "الإجابة", "الجواب", "jawaban", "cevap", "đáp án", "svar",
)  # fmt: skip
_NEGATION = re.compile(r"(?i)\b(?:not|never|cannot|if|suppose|assuming|whether|unless)\b|n['’]t\b")
_SENTENCE_END = re.compile(r"[.!?\n;](?:\s|$)")
_SECOND = re.compile(
    rf"{_S0}(?:/|,|\bor\b|\band\b|&){_S0}(?:(?:or|and){_S1})?{_OPEN}([A-Za-z])(?![A-Za-z0-9'’])(?!{_S1}is\b)"
)
_DOUBT = re.compile(rf"{_S0}\?")
_AFTER = re.compile(_CLOSE)
_WITHDRAWN = re.compile(
    rf"(?<![A-Za-z])([A-Z])\)?{_S1}(?:is|was|seems){_S1}(?:also{_S1})?(?:wrong|incorrect|not|false)\b"
)


@dataclass(frozen=True, slots=True)
class _Patterns:
    anchored: re.Pattern[str]
    praised: re.Pattern[str]
    alone: re.Pattern[str]
    marked: re.Pattern[str]


@lru_cache(maxsize=64)
def _patterns(upper: str) -> _Patterns:
    """The patterns for options named by these capital letters.

    A and I are also words, and a small letter may be one: they count only before punctuation or "because".
    """
    plain = "".join(letter for letter in upper if letter not in "AI") or upper
    alone = r"(?![A-Za-z0-9'’])"
    letter = rf"(?P<letter>[{plain}]{alone}|[{upper}{upper.lower()}]{alone}{_END})"
    anchors = "|".join(_ANCHORS)
    return _Patterns(
        re.compile(rf"(?:(?P<contrast>(?i:{_CONTRAST}))|(?i:{anchors})){_OPEN}(?i:{_NOUN}){_OPEN}{letter}"),
        re.compile(
            rf"(?<![A-Za-z])(?P<letter>[{upper}])(?:\)|\*\*){{0,2}}{_S1}"
            rf"(?i:is{_S1}(?:(?:the{_S1})?(?:correct|right|best)\b(?!{_S0}\?)|the{_S1}answer\b))"
        ),
        re.compile(
            rf"{_OPEN}(?i:{_NOUN}){_OPEN}(?P<letter>[{upper}{upper.lower()}]){_CLOSE}{_S0}[.:]?{_S0}{_CLOSE}"
        ),
        re.compile(rf"(?<![A-Za-z])\(?([{upper}])[).:](?=\s|$)"),
    )


def choice_answer(output: str, letters: str) -> str | None:
    """The letter (upper case) that the output commits to, None where it commits to none."""
    text = tail(without_thinking(output)).strip()
    upper = letters.upper()
    patterns = _patterns(upper)
    single = patterns.alone.fullmatch(text[text.rfind("\n") + 1 :])
    if single:
        return single["letter"].upper()
    found: list[tuple[int, int, str | None]] = []
    for match in (*_anchored(text, patterns.anchored), *patterns.praised.finditer(text)):
        if not _is_denied(text, match):
            found.append((match.start("letter"), match.end(), _unless_second(text, match, upper)))
    box = last_box(text) if "box" in text else None
    boxed = patterns.alone.fullmatch(box) if box else None
    if boxed:
        at = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
        found.append((at, at + len("\\boxed"), boxed["letter"].upper()))
    if not found:
        return _leading(text, patterns)
    _, end, choice = max(found, key=lambda commitment: commitment[0])
    withdrawn = {denied[1] for denied in _WITHDRAWN.finditer(text, end)}
    return None if choice in withdrawn else choice


def _anchored(text: str, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
    small = text.lower()
    if len(small) != len(text):  # a few capital letters of other scripts become two small ones
        yield from pattern.finditer(text)
        return
    for start in _STARTS:
        at = small.find(start)
        while at >= 0:
            match = pattern.match(text, at)
            if match:
                yield match
            at = small.find(start, at + 1)


def _is_denied(text: str, match: re.Match[str]) -> bool:
    """Whether the sentence denies or only supposes what it says."""
    if match.groupdict().get("contrast"):
        return False
    begin = max(0, match.start() - 200)
    for stop in _SENTENCE_END.finditer(text, begin, match.start()):
        begin = stop.end()
    return _NEGATION.search(text, begin, match.start()) is not None


def _unless_second(text: str, match: re.Match[str], upper: str) -> str | None:
    """The letter; None where a second one is offered beside it, or where it is asked rather than said."""
    after = _AFTER.match(text, match.end())
    end = after.end() if after else match.end()
    choice = match["letter"].upper()
    second = _SECOND.match(text, end)
    if second and second[1] in upper and second[1] != choice:
        return None
    return None if _DOUBT.match(text, end) else choice


def _leading(text: str, patterns: _Patterns) -> str | None:
    """`B) because ...` as the whole output: one line that begins with a marked letter and names no other."""
    if "\n" in text:
        return None
    start = patterns.marked.match(text.lstrip("*_"))
    return start[1] if start and {mark[1] for mark in patterns.marked.finditer(text)} <= {start[1]} else None


def grade_choice(output: str, reference: str, letters: str) -> Grade:
    """Whether the output commits to the reference's letter. `letters` are the options on offer."""
    answer = choice_answer(output, letters)
    return NO_ANSWER if answer is None else Grade.of(answer == reference.strip().upper(), answer)
