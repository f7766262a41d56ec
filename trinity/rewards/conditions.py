r"""What an answer says of its variables behind its value: `y = 2x \text{ for } x > 0`."""

import re

from trinity.rewards.intervals import NAME

_WORD = r"(?:where|for|with|provided(?: that)?|such that|assuming|given(?: that)?)(?: all| any| every| some)?"
_WORDED = re.compile(
    rf"[,;]?\s*(?:\\text ?\{{[\s,]*{_WORD}\s*\}}|(?P<inside>\\text ?\{{)[\s,]*{_WORD}\s"
    rf"|(?<![a-zA-Z\\{{]){_WORD}(?![a-zA-Z]))\s*"
)
_BARE = re.compile(
    rf"(?:,\s*|\s+(?=\())(?P<open>\()?\s*"
    rf"(?P<condition>(?P<name>{NAME})\s*(?:\\in(?![a-z])|[<>]|\\(?:le|ge|neq?)(?![a-z]))[^,;=]*)$"
)
_ANOTHER_CASE = re.compile(r"[=,;]|\b(?:or|and|otherwise|else|if|when)\b")
_SETS = "ZNQR"  # \\mathbb is taken off
_COMMAND = re.compile(r"\\[a-zA-Z]+")
_WORDS = re.compile(r"[a-zA-Z]{3,}")
_SEVERAL = re.compile(r"[,;<>]|\\(?:in|le|ge|neq?)(?![a-z])")
_IN_BRACKETS = re.compile(r"\([^()]*\)|\{[^{}]*\}")
_GREEK = re.compile(r"\\(?:theta|alpha|beta|gamma|phi|lambda|mu|omega)(?![a-z])")


def split_condition(text: str) -> tuple[str, str | None]:
    r"""(the value, the condition behind it); (text, None) where there is none.

    A condition is about a variable of the value and follows a word ("where", "for", ...), or is a relation
    behind an equation, or `k \in` a set: `y = 2x, x > 0`, `k\pi, k \in \mathbb{Z}`. One of several cases is
    none: each of them would be a value.
    """
    if worded := _WORDED.search(text):
        value, condition = text[: worded.start()].strip(), text[worded.end() :].strip()
        if worded["inside"]:
            condition = condition.removesuffix("}").strip()
        about = not _variables(value, 2).isdisjoint(_variables(condition))
        fits = about and _is_one_value(value) and not _ANOTHER_CASE.search(condition)
        return (value, condition) if fits else (text, None)
    bare = _BARE.search(text)
    if bare is None:
        return text, None
    value, condition = text[: bare.start()].strip(), bare["condition"].strip()
    if bare["open"]:
        if not condition.endswith(")"):
            return text, None
        condition = condition[:-1].strip()
    fits = bare["name"] in _variables(value, 2) and ("\\in" in condition or value.count("=") == 1)
    solved = value.partition("=")[0].strip() == bare["name"]  # "x = 5, x > 7" are two solutions
    fits = fits and (bare["open"] is not None or not solved or "\\in" in condition)
    fits = fits and _variables(condition, 2) <= {bare["name"], *_SETS}
    return (value, condition) if fits and _is_one_value(value) else (text, None)


def _is_one_value(value: str) -> bool:
    """Whether a text is a single equation or expression: no list, no relation, no words."""
    bare = _IN_BRACKETS.sub("", value)
    return bool(value) and not _SEVERAL.search(bare) and not _WORDS.search(_COMMAND.sub(" ", value))


def _variables(text: str, longest: int = 1) -> set[str]:
    r"""Single letters and Greek ones, and those of words up to `longest`: the k and x of kx."""
    words = re.findall(r"[a-zA-Z]+", _COMMAND.sub(" ", text))
    greek = {name[0] for name in _GREEK.finditer(text)}
    return greek | {letter for word in words if len(word) <= longest for letter in word}
