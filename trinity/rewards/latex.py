# ruff: noqa: RUF001 - signs as models write them
r"""One spelling for what LaTeX and plain text can write in many ways."""

import re
from collections.abc import Callable

DOLLAR = "\uff04"  # a currency sign; a bare $ is a delimiter of mathematics
DEGREE = "°"
REALS = "ℝ"
DOTS = r"\dots"

_SYMBOLS = str.maketrans(
    {
        "−": "-", "–": "-", "×": r"\times ", "·": r"\cdot ", "÷": "/", "π": r"\pi ", "∞": r"\infty ",
        "≤": r"\le ", "≥": r"\ge ", "±": r"\pm ", "∪": r"\cup ", "∈": r"\in ", "：": ":", "，": ",",
        "\u00a0": " ", "\u202f": " ", "\u2009": " ", "²": "^{2}", "³": "^{3}", "≈": r"\approx ",
        "√": r"\sqrt ", "∅": r"\emptyset ", "⟨": "(", "⟩": ")", "≠": r"\ne ",
        "∨": r"\lor ", "∧": r"\land ", "∖": r"\setminus ", "…": r"\dots ", "⋯": r"\dots ",
    }
)  # fmt: skip
_DOTS = r"(?:\.\.\.|\\[lc]?dots(?![a-zA-Z]))"
_ADVERB = r"(?:altogether|in total|in all|overall|all told)"
_TRAILING_ADVERB = rf"(?<=\S),?\s+(?:{_ADVERB}|\\text\s*\{{\s*{_ADVERB}\s*\}})[\s.!]*\Z"
_DIGIT = re.compile(r"\d")
_BRACKETED_ARRAY = r"[(\[]?\s*\\begin\{array\}\s*\{[^{}]*\}(.*?)\\end\{array\}\s*[)\]]?"
_REWRITES: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\(?:left|right|[bB]igg?[lr]?)(?![a-zA-Z])\s*\.?", ""),
        (r"\\[lr](?:angle|group)(?![a-zA-Z])", lambda found: "()"[found[0][1] == "r"]),
        (r"[(\[]\s*\\begin\{matrix\}(.*?)\\end\{matrix\}\s*[)\]]", r"\\begin{pmatrix}\1\\end{pmatrix}"),
        (r"\\(begin|end)\{(?:b|small)?matrix\}", r"\\\1{pmatrix}"),
        (_BRACKETED_ARRAY, r"\\begin{pmatrix}\1\\end{pmatrix}"),
        (r"\\[dtc]frac(?![a-zA-Z])", r"\\frac"),
        (r"(?<=\d)(?:\{\s*,\s*\}|,\s*\\!|\\[,!;: ])\s*(?=\d{3}(?!\d))", ""),  # thousands
        (r"\{\s*([,:])\s*\}", r"\1"),
        (r",\s*\\!\s*", ","),
        (r"\\!", ""),
        (r"\\colon(?![a-zA-Z])", ":"),
        (r"\\(?:varnothing|emptyset)(?![a-zA-Z])", r"\\{\\}"),
        (r"\\(?:mathrm|text|mathit)\s*\{\s*([ie])\s*\}", r"\1"),  # upright constants
        (r"\\\$|\\text\s*\{\s*\\?\$\s*\}|\b(?:USD|US\$)(?= ?\d)", DOLLAR),
        (r"\^\s*\{?\s*\\circ\s*\}?|\\degree\b|\\text\s*\{\s*degrees?\s*\}|\bdegrees?\b", DEGREE),
        (r"\\%|\\text\s*\{\s*\\?%\s*\}|\\text\s*\{\s*percent\s*\}|\bpercent\b", "%"),
        (r"\\mathbb\s*(?:\{\s*R\s*\}|R(?![a-zA-Z]))", REALS),
        (rf"(,(?!\s?\d{{3}}(?!\d))[^,]*[^,\s])\s*{_DOTS}\s*\Z", r"\1, \\dots"),  # 1, 2, 3...
        (rf"(?<=\d)\s*{_DOTS}\s*\Z", ""),  # 0.333...
        (r"\\[lc]dots(?![a-zA-Z])|\\dots[bcmio]?(?![a-zA-Z])|(?<=[,+*])\s*\.\.\.", r"\\dots "),
        (r"\\(?:mbox|mathrm|textrm|textnormal|textit|mathit|operatorname)(?=\s*\{)", r"\\text"),
        (r"\\(?:mathbf|textbf|boldsymbol|bf|displaystyle|mathbb)(?![a-zA-Z])", ""),
        (r"\\(?:leq|leqslant)(?![a-zA-Z])", r"\\le"),
        (r"\\(?:geq|geqslant)(?![a-zA-Z])", r"\\ge"),
        (r"(?<![=<>\\a-zA-Z])<=", r"\\le "),
        (r"(?<![=<>\\a-zA-Z])>=", r"\\ge "),
        (r"\\(?:lt)(?![a-zA-Z])", "<"),
        (r"\\(?:gt)(?![a-zA-Z])", ">"),
        (r"\\lbrace(?![a-zA-Z])", r"\\{"),
        (r"\\rbrace(?![a-zA-Z])", r"\\}"),
        (r"(?<!\\)\\[,;:> ]|~|\\q?quad(?![a-zA-Z])", " "),
        (r"\\frac\s*(\d)\s*(\d)", r"\\frac{\1}{\2}"),
        (r"\\frac\s*(\d)\s*\{", r"\\frac{\1}{"),
        (r"\\frac\s*(\{[^{}]*\})\s*(\d)", r"\\frac\1{\2}"),
        (r"(?<![\\a-zA-Z])sqrt(?=\s*[({\d])", r"\\sqrt"),
        (r"\\sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}"),
        (r"\\sqrt\s*(\w)", r"\\sqrt{\1}"),
        (r"\*\*", "^"),
        (r"\^\s*\(([^()]*)\)", r"^{\1}"),
        (r"(?<![\\a-zA-Z])pi(?![a-zA-Z])", r"\\pi"),
        (r"(?<![\\a-zA-Z])(?:infty|[Ii]nf(?:inity)?|oo)(?![a-zA-Z])|\\infinity", r"\\infty"),
        (_TRAILING_ADVERB, lambda found: "" if _DIGIT.search(found.string, 0, found.start()) else found[0]),
    )
)  # fmt: skip
_LEADING = re.compile(r"\A\s*(?:=|\\approx(?![a-zA-Z]))\s*")
_WRAPPERS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"))


def tidy(text: str) -> str:
    r"""Normalise spelling: \dfrac, \left, thin spaces, unicode signs, braces around the whole, ...

    Nothing that carries meaning is dropped: units stay, currency becomes `DOLLAR`, degrees `DEGREE`.
    """
    text = " ".join(text.translate(_SYMBOLS).split())
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = unwrap(text)
    if text.count("$") == 1:
        text = text.replace("$", DOLLAR)
    return text.replace("$", " ").strip()


def unwrap(text: str) -> str:
    r"""Take off delimiters, braces around the whole, a final full stop or comma, a leading = or \approx."""
    before = None
    while text != before:
        before = text
        text = _LEADING.sub("", text.strip().rstrip(".,;:")).strip()
        for opening, closing in _WRAPPERS:
            inner = text[len(opening) : -len(closing)]
            if inner and text == opening + inner + closing and "$" not in inner:
                text = inner
        if text.startswith("\\text{") and "\\" in text[1:] and closing_of(text, 5) == len(text) - 1:
            text = text[6:-1]
        if text.startswith("{") and closing_of(text, 0) == len(text) - 1:
            text = text[1:-1]
    return text


def closing_of(text: str, start: int) -> int:
    r"""The index of the bracket that closes the one at `start`, -1 where none does.

    Round, square and curly brackets count alike, so that (0, 1] and [0, 1) close; \{ counts as a bracket.
    """
    depth = 0
    for index in range(start, len(text)):
        if text[index] in "([{":
            depth += 1
        elif text[index] in ")]}":
            depth -= 1
            if depth == 0:
                return index
    return -1


def split_top(text: str, separators: str) -> list[str]:
    """Split at single characters that stand in no bracket."""
    parts: list[str] = []
    depth = begin = 0
    for index, character in enumerate(text):
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif depth <= 0 and character in separators:
            parts.append(text[begin:index].strip())
            begin = index + 1
    parts.append(text[begin:].strip())
    return parts


def nesting(text: str) -> int:
    """How deep brackets stand in each other."""
    depth = deepest = 0
    for character in text:
        if character in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in ")]}":
            depth -= 1
    return deepest
