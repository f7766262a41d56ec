"""Options that are named by their text.

Words are compared without letter case and punctuation.
"""

import re
from collections.abc import Iterator, Sequence

from trinity.rewards.anchors import NEGATION
from trinity.rewards.extraction import math_answer


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


def begins_with(text: str, option: str) -> bool:
    """Whether a text begins with the words of an option."""
    words = list(_tokens(option.casefold()))
    return bool(words) and [token for token, _ in zip(_tokens(text.casefold()), words, strict=False)] == words
