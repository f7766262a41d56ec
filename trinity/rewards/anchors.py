# ruff: noqa: RUF001 - quotes, colons and brackets as models write them
"""The phrases that commit an output to an option, as patterns for `trinity.rewards.choice`.

Repetitions are bounded, so that a search is linear in the length of the output.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

S0, S1 = r"\s{0,4}", r"\s{1,4}"
_MARKS = r"[*_]{0,3}"
OPEN = r"""(?:\\(?:text|textbf|mathbf|mathrm|boxed|fbox)\{|\\\(|[\s*_`"'“‘$(\[{（【<「]){0,12}"""
CLOSE = r"""(?:\\\)|[*_`"'”’$)\]}）】>」]){0,12}"""
NOUN = rf"(?:(?:option|choice|letter|answer)\b{S0})?"
_TEXT = (  # an option's; not another sentence, or a second initial
    r"[*_]{0,3}\s{1,4}(?![A-Z]\.|(?:That|This|Its|We|So|Thus|Therefore|Hence|However|But)\b)"
    r"(?=[\"'“‘$(\[*_−-]{0,3}[A-Z0-9\\])"
)
_GOES_ON = "because|since|as|for|which|due|and|but|by|given|with|based|from|in|on|the|that|here|so|or|if|when"
_BECAUSE = rf"{S0}(?:[,;—–-]|\b(?:{_GOES_ON})\b)"
_END = rf"(?={CLOSE}(?:{S0}(?:$|\n|[.,;:!?)\]}}<])|{_BECAUSE}))"
_HOW = (
    rf"(?:(?:definitely|certainly|clearly|likely|probably|therefore|thus|hence|then|simply|indeed|actually|really"
    rf"|surely|still|most{S1}likely){S1})?"
)
_IS = rf"(?:is|are|was|(?:would|must|should|to|will){S1}be|(?:appears|seems){S1}to{S1}be|remains)"
_ABOUT = rf"(?:{S1}(?:to|for|of){S1}[^.:;\n]{{1,60}}?)?"
_KEY = r"(?:final[_ ]?|correct[_ ]?)?(?:answer|choice|option|letter)"
_FORMULA = (  # what follows the name of a variable, and no option
    rf"{S0}(?:[=^≈≤≥·×÷°+]|\\(?:times|cdot|leq?|geq?|approx|neq?|in|to)(?![a-zA-Z]))|{S1}[<>]{S1}|_[A-Za-z0-9{{]"
    rf"|\(|/[a-z(]|\){S0}[=≈]|(?<=\([A-Za-z]){S0}[-−*/|]"
)
_CHOSE = rf"(?:pick|choose|chose|select|say|answer|guess|go{S1}with|going{S1}with|opt{S1}for|vote{S1}for)"

_FOREIGN = (
    "antwort", "lösung", "réponse", "reponse", "respuesta", "resposta", "risposta", "odpowiedź",
    "odpověď", "odpoveď", "ответ", "відповідь", "отговор", "odgovor", "정답", "답",
    "答案", "答え", "回答", "正解", "उत्तर", "जवाब", "উত্তর", "الإجابة", "الجواب", "إجابة",
    "پاسخ", "جواب", "תשובה", "απάντηση",
    "jawaban", "jawapan", "cevap", "javob", "svar", "antwoord", "vastaus", "vastus", "răspuns", "raspuns",
    "válasz", "jibu", "idahun", "sagot", "คำตอบ", "సమాధానం", "விடை", "ഉത്തരം", "ಉತ್ತರ", "જવાબ", "đáp_án",
    "trả_lời",
)  # fmt: skip
_FOREIGN_WORD = "(?:" + "|".join(word.replace("_", " ") for word in _FOREIGN) + ")"
_FOREIGN_IS = (
    r"(?:[:：=是为為]|は|은|는"
    r"|(?:[^\W\d_]{1,12}\s)?(?:est|ist|es|é|è|este|adalah|is|är|er|on|lautet|to|—|-)(?=\W))"
)

_STRONG = (
    (
        "answer choice option solution response statement",
        rf"(?<!each )(?<!every )(?<!all )\b(?:answers?|choice|option|solution|response|statement){_ABOUT}"
        rf"(?:{S0}{_IS}\b{S0}:?{S0}{_HOW}|{S0}{_MARKS}{S0}[:=：]{S0}{_MARKS})",
    ),
    ("final", rf"\bfinal{S1}answer{S0}{_MARKS}{S0}[-–—]?"),
    (" ".join(_FOREIGN), rf"{_FOREIGN_WORD}{S0}{_MARKS}{S0}{_FOREIGN_IS}?"),
    ("选 選", r"[选選][择擇]?(?:答案)?[:：]?"),
    ("i", rf"\bI(?:{S1}(?:would|will|am|must|have{S1}to)|['’](?:d|ll|m|ve))?{S1}{_CHOSE}\b"),
    (
        "hence therefore thus so choose pick select",
        rf"\b(?:hence|therefore|thus|so|choose|pick|select)\b,?{S1}(?:the{S1})?(?:option|choice)\b",
    ),
    ("hence therefore thus", rf"\b(?:hence|therefore|thus)\b,?{S1}(?=\()"),
    ("<", r"<(?:final_?)?answer>"),
    ("\" '", rf"""["']{_KEY}["']{S0}:"""),
)
_LAST = (  # said in passing, too: they count in the last sentence alone, and before punctuation
    (
        "hence therefore thus so actually",
        rf"\b(?:hence|therefore|thus|so|actually)\b,?{S1}(?:it['’]s|it{S1}is)?",
    ),
    ("it", rf"\b(?:it{S1}is|it['’]s)\b{S1}{_HOW}"),
    (
        "which this that it corresponds matches",
        rf"\b(?:which{S1}is|this{S1}is|that{S1}is|corresponds{S1}to|matches)\b{S1}(?:with{S1})?(?=option|choice|answer)",
    ),
    (
        "aligns agrees consistent given described represented expressed stated",
        rf"\b(?:(?:aligns?|agrees?|consistent){S1}with|(?:given|described|represented|expressed|stated){S1}(?:by|in))"
        rf"{S1}(?=option|choice|answer)",
    ),
    ("answer", rf"\banswer{S1}(?:of{S1})?(?=\()"),
)
_CONTRAST = (
    (
        "it rather but",
        rf"(?:(?<=[,;—–] )|(?<=[,;—–])|(?<=\bbut ))(?:it{S1}is|it's|it’s|rather|but)\b(?:{S1}rather\b)?",
    ),
    ("not", rf"\bnot{S1}{NOUN}{OPEN}[A-Za-z]{CLOSE},?{S1}but\b(?:{S1}rather\b)?"),
)

NEGATION = re.compile(r"(?i)\b(?:not|never|cannot|neither|nor|none)\b|n['’]t\b")
SUPPOSED = re.compile(
    r"(?i)\b(?:if|suppose|supposing|assume|assuming|whether|unless|tempt\w*|at first|could|might|may)\b"
    r"|\b(?:many|some|people|students?|one|others|most)\b[^.]{0,30}\b(?:say|think|guess|believe|pick|choose|answer)\b"
)
CLAUSE_END = re.compile(
    r"[.!?;][\"'”’)\]]{0,3}(?:\s|$)|\n|,? but\b|\bhowever\b|\bactually\b|, (?:and )?so\b"
    r"|\b(?:therefore|hence|thus)\b"
)
IN_SUBJECT = re.compile(  # "the statement that is not true is (B)" denies nothing
    rf"(?i)\b(?:that|which|who){S1}(?:is|are|was|were|do|does|did|can|would|has|have)(?:n['’]t\b|{S1}{_MARKS}not\b)"
)
_NOT_GIVEN = (
    rf"none\b|not{S1}(?:listed|provided|given|present|available|included|among|in{S1}the)\b|incomplete|undetermined"
    rf"|indeterminate|cannot\b|can['’]t\b"
)
_OPTIONS = rf"of{S1}the{S1}(?:given{S1}|provided{S1}|answer{S1})?(?:options|choices|answers)"
NONE_FITS = re.compile(  # where the *exact* answer is not listed, the closest one stands
    rf"(?i)(?<!exact )\b(?:answer|option|choice){S1}(?:is|would{S1}be|was){S1}\(?{S0}(?:{_NOT_GIVEN})"
    rf"|\bno{S1}(?:single{S1})?(?:correct|right){S1}(?:answer|option|choice)\b"
    rf"|\bnone{S1}{_OPTIONS}{S1}(?:is|are|match|fit|work)\b(?![^.\n]{{0,30}}\b(?:exactly|precisely|perfectly)\b)"
    rf"|\b(?:but|however){S0},?{S1}(?:it|this|that)(?:['’]s|{S1}is){S1}(?:also{S1}|still{S1})?"
    rf"(?:not{S1}(?:quite{S1})?(?:correct|right)|incorrect|wrong){S0}(?:[.,;!]|due\b|because\b|$)"
)
ARTICLE = re.compile(rf"{S1}[a-z]")
QUESTION_OR_CONDITION = re.compile(rf"{S0}\?|{CLOSE}{S1}(?:only{S1})?(?:if|unless|when|provided|depending)\b")
AFTER = re.compile(CLOSE)
LABEL = re.compile(r"(?<!\w)\(?(?P<letter>[A-Za-z])\)(?=\s)")  # (a) and b) in running text
LEGEND = re.compile(r"(?i)\b(?:each|every|options|choices|statements)\b[^\n]{0,200}:\s*\Z")
BULLET = re.compile(r"\s{0,8}[*•-]\s")
_VERDICT_AGAINST = (
    rf"\)?{S1}(?:(?:is|was|seems|looks|isn['’]t|wasn['’]t)\b{S1}(?:also{S1}|clearly{S1}|actually{S1})?"
    r"(?:wrong|incorrect|not|false|invalid|impossible|ruled|eliminated|an?|the answer to)\b"
    r"|fails\b|can['’]t\b|cannot\b)"
)
WITHDRAWN = re.compile(rf"(?<![A-Za-z])(?P<letter>[A-Z]){_VERDICT_AGAINST}")
DENIED = re.compile(rf"(?:\bnot|n['’]t){S1}(?:be{S1})?{NOUN}{OPEN}(?P<letter>[A-Z])(?![A-Za-z0-9])")
TAKEN_BACK = re.compile(
    r"(?i)(?:^|[.!?\n])\s*(?:(?:hmm|wait|oh|sorry)[,.]?\s+(?:no|that)\b|no,?\s+wait\b|actually,?\s+no\b"
    r"|on second thought|scratch that|that(?:['’]s| is) (?:wrong|not right|incorrect))"
)


@dataclass(frozen=True, slots=True)
class Anchor:
    """A phrase that may stand before a letter: `starts` are what it begins with, in small letters."""

    starts: re.Pattern[str]
    phrase: re.Pattern[str]

    def find(self, text: str) -> Iterator[re.Match[str]]:
        """All its places, with the letter as group `letter`. The starts are found much faster."""
        for start in self.starts.finditer(text):
            if found := self.phrase.match(text, start.start()):
                yield found


@dataclass(frozen=True, slots=True)
class Anchors:
    """All phrases for one set of options.

    `strong` commit wherever they stand, `last` in the last sentence alone, `contrast` also behind a denial
    ("not B, it's C"). `stated` is "the cause is (B)" or "... is B. Its text". `praised` is "B is correct";
    `alone` a letter that is a whole line or box, with what may be written around it; `marked` one in front of
    its text: "B) ..."; `item` one in front of its text in a list; `second` another letter beside the first.
    """

    strong: Anchor
    last: Anchor
    contrast: Anchor
    stated: re.Pattern[str]
    praised: re.Pattern[str]
    alone: re.Pattern[str]
    marked: re.Pattern[str]
    item: re.Pattern[str]
    second: re.Pattern[str]


@lru_cache(maxsize=64)
def anchors(upper: str) -> Anchors:
    """The phrases for options named by these capital letters.

    A and I are also words, and a small letter may be one: they count only before punctuation or "because".
    """
    plain = "".join(letter for letter in upper if letter not in "AI") or upper
    whole = rf"(?![A-Za-z0-9+#]|['’][a-z]|-[A-Za-z])(?!{_FORMULA})(?!{_VERDICT_AGAINST})"
    not_a_word = rf"(?! (?!(?:{_GOES_ON})\b)[a-z])"
    sure = rf"(?P<letter>[{upper}{upper.lower()}]){whole}{_END}"
    either = rf"(?P<letter>[{plain}]{whole}{not_a_word}|[{upper}{upper.lower()}]{whole}{_END})"
    return Anchors(
        _anchor(_STRONG, either),
        _anchor(_LAST, sure),
        _anchor(_CONTRAST, either),
        re.compile(
            rf"\b(?:is|are|was|were|be)\b{S0}:?{S0}{_HOW}(?:the{S1})?{NOUN}[\"'“*_]{{0,3}}"
            rf"(?P<open>\()?(?P<letter>[{upper}])(?(open)\)(?!{_FORMULA}|{S0}[-−*/])|[.:)]{_TEXT})"
        ),
        re.compile(
            rf"(?<![A-Za-z])(?<![Ss]tatement )(?<![Cc]laim )(?P<letter>[{upper}])(?:\)|\*\*){{0,2}}{S1}"
            rf"(?i:is{S1}(?:(?:the{S1})?(?:only{S1})?(?:correct|right|best)\b(?!{S0}\?)|the{S1}answer\b))"
        ),
        re.compile(
            rf"{OPEN}(?P<noun>(?i:(?:option|choice|letter|answer)\b{S0})?){OPEN}"
            rf"(?P<letter>[{upper}{upper.lower()}])(?P<mark>{CLOSE}{S0}[.:]?{S0}{CLOSE})"
        ),
        re.compile(rf"(?<![A-Za-z])\(?(?P<letter>[{upper}])[).:](?=\s|\}}|$)"),
        re.compile(
            rf"[\s*_#>•-]{{0,8}}(?:(?i:option|choice){S1})?[*_]{{0,3}}\(?(?P<letter>[{upper}])[).:][*_]{{0,3}}{S1}(?=\S)"
        ),
        re.compile(
            rf"{S0}(?:(?P<joint>/|,|\bor\b|\band\b|&)|\s){S0}(?:(?:or|and){S1})?{NOUN}{OPEN}"
            rf"(?P<letter>(?(joint)[A-Z]|[{upper}]))(?![A-Za-z0-9'’+#-])(?!{_FORMULA})(?!\)?{S1}(?:is|was|seems)\b)"
        ),
    )


def _anchor(phrases: tuple[tuple[str, str], ...], letter: str) -> Anchor:
    starts = sorted({word.replace("_", " ") for words, _ in phrases for word in words.split()}, key=len)
    either = "|".join(phrase for _, phrase in phrases)
    return Anchor(
        re.compile("(?i)(?=" + "|".join(map(re.escape, starts)) + ")"),
        re.compile(rf"(?i:{either})(?:(?<=\n){S0}[-•]{S1})?{OPEN}(?i:{NOUN}){OPEN}{letter}"),
    )
