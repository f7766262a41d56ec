"""An LLM's output -> the answer it commits to.

Every search here is linear in the length of the output: an output may be a megabyte of braces.
"""

import re
from collections import deque

MAX_ANSWER = 2_000
"""An extracted answer longer than this many characters is wrong: nobody compares an essay."""

_TAIL = 20_000  # an answer stands near the end; what lies further up is reasoning
_BOXES_TRIED = 32  # of empty or unclosed boxes, from the end
_JOINT_LENGTH = 40
_BOX_COMMANDS = ("\\boxed", "\\fbox")
_BRACE = re.compile(r"\\[{}\\]|[{}]")
_BARE_BOX = re.compile(r"\s*([^\s$\\{}]+)")
_JOINT = re.compile(
    r"(?=[^,;ao]*(?:[,;]|and|or))"
    r"[\s$.,;\\()\[\]*]*(?:(?:\\text\s*\{\s*)?\b(?:and|or)\b(?:\s*\})?)?[\s$.,;\\()\[\]*]*"
)
_THINKING = re.compile(r"(?i)<(/?)(?:think|thinking|thought|reasoning|reflection)>")

_COMMITMENT = re.compile(
    r"""(?ix) (?: \b answer (?:\ (?:to|of|for|in)\ [^.:=\n]{1,60}?(?=\ (?:is|are)\b))? \s* (?:[*_]{1,2}\s*)?
                  (?: (?:is|are|equals?|(?:would|must|should)\ be)\b \s* :? | [:=] )
              | \b (?:result|solution) \s* (?: (?:is|are|equals?)\b | = ) | \b result \s* :
              | \#{1,6} \s* (?:final \s+)? answer \s* \n
              | \#\#\#\# ) [\s*_]*
              (?: (?:therefore|thus|hence|then|simply|just|exactly|indeed|approximately|about|roughly)\b,?
                  [\s*_]* )*""",
)
_NEGATED = re.compile(r"(?i)\s*(?:not\b|n't|unknown|unclear|undefined behaviou?r)")
_AFTERTHOUGHT = re.compile(
    r"(?i)(?:\s+\([a-z]{3,}|[,;]?\s+(?:because|since|as|for|which|where|when|but|so|by|after|not|rather)\b|\?|\.(?=\s|$)).*",
)
_BOLD_LINE = re.compile(r"(?:\*\*|__)\s*(.+?)\s*(?:\*\*|__)\.?")
_BOLD = re.compile(r"\*\*(?=[^\s*])([^*\n]{1,80}?)(?<=[^\s*])\*\*")
_VALUE = re.compile(r"(?:[^\W\d_]{1,3}\s*=\s*)?[$\\(\[{<+.-]{0,4}\d|[$\\]")
_SENTENCE_END = re.compile(r"[.!?](?:\s+|$)")
_NO_CLAIM = re.compile(  # a denial, a supposition, a bound, or a step on the way
    r"(?i)\b(?:not|never|cannot|neither|nor|wrong|incorrect|if|suppose|assume|assuming|whether|unless|could|might|may"
    r"|maybe|perhaps|possibly|would|should|almost|nearly|more than|less than|at least|at most|instead of"
    r"|rather than|let|verify|double-check|check)\b|n['\u2019]t\b|\A\s*(?:first|next|now)\b"
)
_NUMBERED = re.compile(
    r"(?i)\b(?:step|case|part|question|problem|option|choice|figure|table|equation|example|method|theorem|page"
    r"|chapter|section|note|line|row|column|number|no\.)\s*\Z"
)
_MATH_LINE = re.compile(r"\$\$?[^$]+\$\$?\.?|\\\(.+\\\)\.?|\\\[.+\\\]\.?")


def without_thinking(text: str) -> str:
    """The output after its last think-block. An unclosed block is thinking to the end: nothing remains."""
    begin, end = 0, None
    for tag in _THINKING.finditer(text):
        if tag[1]:
            begin, end = tag.end(), None
        elif end is None:
            end = tag.start()
    return text[begin:end]


def tail(text: str) -> str:
    """The last 20,000 characters."""
    return text[-_TAIL:]


def last_box(text: str) -> str | None:
    r"""The content of the last non-empty \boxed or \fbox, None where there is none.

    Boxes that are joined by "and", "or", a comma or a semicolon are one answer with several parts, given as a
    comma-separated list. Content without braces runs to the next space or dollar sign. An empty or
    unclosed box falls back to the one before. Content beyond `MAX_ANSWER` comes back cut to one more than
    that, for the caller to refuse.
    """
    parts: list[str] = []
    end = start = len(text)
    for _ in range(_BOXES_TRIED):
        start = max(text.rfind(command, 0, start) for command in _BOX_COMMANDS)
        if start < 0:
            break
        found = _box_at(text, start)
        if found is None:
            continue
        content, stop = found
        if parts and (end - stop > _JOINT_LENGTH or not _JOINT.fullmatch(text, stop, end)):
            break
        if content not in parts:
            parts.append(content)
        end = start
    return ", ".join(reversed(parts)) if parts else None


def _box_at(text: str, start: int) -> tuple[str, int] | None:
    """The content of the box command at `start` and the position after it."""
    opening = text.index("x", start) + 1
    if text.startswith("ed", opening):
        opening += 2
    while text[opening : opening + 1].isspace():
        opening += 1
    if not text.startswith("{", opening):
        bare = _BARE_BOX.match(text, opening)
        return (bare[1].rstrip(".,;"), bare.end()) if bare else None
    depth = 0
    for brace in _BRACE.finditer(text, opening, opening + MAX_ANSWER + 2):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            content = text[opening + 1 : brace.start()].strip()
            return (content, brace.end()) if content else None
    overlong = len(text) > opening + MAX_ANSWER + 2
    return (text[opening + 1 : opening + MAX_ANSWER + 2], len(text)) if overlong else None


def math_answer(text: str) -> str | None:
    """The answer of a mathematical output: last box, else last explicit commitment, None where neither is.

    A commitment is "the answer is ...", "Answer: ...", "#### ...", a bold or mathematical last line, the only
    bold value of the last sentence, or an output of one short line.
    """
    text = tail(without_thinking(text))
    box = last_box(text)
    return box if box is not None else _commitment(text)


def _commitment(text: str) -> str | None:
    anchors = list(_COMMITMENT.finditer(text))
    last = None
    for anchor in anchors:
        if anchor.end() < len(text) and not _NEGATED.match(text, anchor.end()):
            last = anchor.end()
    if last is not None:
        return _statement(text[last : last + MAX_ANSWER + 1])
    if anchors:  # all of them negated or empty
        return None
    lines = text.split("\n")
    final = next((line.strip() for line in reversed(lines) if line.strip()), "")
    bold = _BOLD_LINE.fullmatch(final)
    if bold:
        return bold[1].rstrip(".")
    if value := _bold_value(final):
        return value
    if _MATH_LINE.fullmatch(final) or (final and len(final) <= 60 and text.strip() == final):
        return final.rstrip(".")
    return None


def _bold_value(line: str) -> str | None:
    """The value in "So there are **42** apples.": the only bold one of a last sentence that claims it."""
    line = line[-MAX_ANSWER:]
    bold = list(_BOLD.finditer(line))
    ends = [end.end() for end in _SENTENCE_END.finditer(line)]
    if not bold or not (line.endswith("**") or (ends and ends[-1] == len(line))) or line.endswith("?"):
        return None
    begin = max((end for end in ends if end < len(line)), default=0)
    if [each.start() >= begin for each in bold].count(True) != 1 or not _VALUE.match(bold[-1][1]):
        return None
    doubtful = _NO_CLAIM.search(line[begin:]) or _NUMBERED.search(line[begin : bold[-1].start()])
    return None if doubtful else bold[-1][1].rstrip(".")


def _statement(rest: str) -> str | None:
    """What is said behind "the answer is": up to the end of the sentence, line, or displayed formula."""
    if rest.startswith("\\[") and "\\]" in rest:
        return rest[2 : rest.index("\\]")].strip()
    line = " ".join(rest.partition("\n")[0].split())
    return _AFTERTHOUGHT.sub("", line, count=1).strip("*_ ") or None


_PLAIN = r"(?:(?:[0-9]{1,3}(?:(?:,|\{,\}|\\,)[0-9]{3}){1,8}+(?![0-9])|[0-9]++)(?:\.[0-9]++)?|\.[0-9]++)"
_NUMBER = re.compile(
    rf"""(?ix) (?<![\w.^_\\]) (?<![\^_]\{{) (?<![\^_]-) (?<![\^_]\{{-)
    (?: \\[dtc]?frac (?: \s?\{{-?{_PLAIN}\}}\s?\{{{_PLAIN}\}} | \s?[0-9]\s?[0-9] )
      | (?:{_PLAIN}\ ?(?:\\times|\\cdot|[*x\u00d7])\ ?)? {_PLAIN}\ ?\^\ ?(?:\{{-?[0-9]++\}}|-?[0-9]++)
      | {_PLAIN}e[+-]?[0-9]++
      | {_PLAIN}\ {_PLAIN}/{_PLAIN}
      | {_PLAIN}(?:\ ?/\ ?{_PLAIN}|:[0-9]++)*+ )
    (?! [0-9] | (?:st|nd|rd|th)\b)"""
)
_OPERAND = re.compile(r"(?:[\w)\]}]|[0-9)\]}]\s+)$")


def last_number(text: str) -> str | None:
    r"""The last number of an output that commits to no answer, None where there is none.

    With its sign, thousands separators, decimals, as a fraction (3/4, \frac{3}{4}, 1 1/2) or a power;
    a date, time or ratio is one number, of a kind that rarely equals anything. Exponents, indices, ordinals
    and digits of a word are none. It is a guess: a year or the number of a step is taken, too.
    """
    text = tail(without_thinking(text))
    numbers = deque(_NUMBER.finditer(text), maxlen=1)
    if not numbers:
        return None
    found = numbers.pop()
    before = text[max(found.start() - 20, 0) : found.start()].removesuffix("$").removesuffix("\\")
    negative = before.endswith(("-", "\u2212")) and not _OPERAND.search(before[:-1])
    return f"-{found[0]}" if negative else found[0]
