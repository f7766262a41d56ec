"""What must hold for every answer of every type, and for every text."""

import asyncio
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from trinity.rewards.rewards import KINDS

_INTEGERS = st.integers(-50, 50)
_POSITIVE = st.integers(2, 40)


def _fraction(top: int, bottom: int) -> str:
    return rf"{'-' if top < 0 else ''}\frac{{{abs(top)}}}{{{bottom}}}"


_SCALARS = st.one_of(
    _INTEGERS.map(str),
    st.builds(_fraction, _INTEGERS, _POSITIVE),
    st.builds(lambda a, b: rf"{a}\sqrt{{{b}}}", _POSITIVE, st.sampled_from([2, 3, 5, 7])),
    st.builds(lambda a, b: rf"\frac{{{a}\pi}}{{{b}}}", _POSITIVE, _POSITIVE),
    st.builds(lambda a, b: f"{a}x^2+{b}y", _POSITIVE, _POSITIVE),
    st.builds(lambda a, b: f"{a}+{b}i", _POSITIVE, _POSITIVE),
)
_PARTS = st.lists(_INTEGERS.map(str), min_size=2, max_size=4, unique=True)
_WRAPPED = st.one_of(
    _PARTS.map(lambda parts: f"({', '.join(parts)})"),
    _PARTS.map(lambda parts: rf"\{{{', '.join(parts)}\}}"),
    _PARTS.map(", ".join),
    st.tuples(_INTEGERS, _POSITIVE).map(lambda ends: f"[{ends[0]}, {ends[0] + ends[1]})"),
    _PARTS.map(lambda parts: rf"\begin{{pmatrix}} {' & '.join(parts)} \end{{pmatrix}}"),
    st.builds(lambda a, b: f"y = {a}x + {b}", _POSITIVE, _POSITIVE),
    st.builds(lambda a, b: f"{a}:{b}", _POSITIVE, _POSITIVE),
    st.builds(lambda a: f"{oct(a)[2:]}_8", st.integers(8, 500)),
    st.builds(
        lambda a, b, c: rf"{a}\frac{{{min(b, c)}}}{{{max(b, c) + 1}}}", _POSITIVE, _POSITIVE, _POSITIVE
    ),
)
_SPELLINGS = {
    "as it is": lambda text: text,
    "spaced": lambda text: text.replace("+", " + ").replace(",", " ,"),
    "dfrac": lambda text: text.replace(r"\frac", r"\dfrac"),
    "tfrac": lambda text: text.replace(r"\frac", r"\tfrac"),
    "braces": lambda text: f"{{{text}}}",
    "dollars": lambda text: f"${text}$",
    "left and right": lambda text: text.replace("(", r"\left(").replace(")", r"\right)"),
    "full stop": lambda text: f"{text}.",
    "sign in the fraction": lambda text: text.replace(r"-\frac{", r"\frac{-") if text[0] == "-" else text,
    "bmatrix": lambda text: text.replace("pmatrix", "bmatrix"),
}


def reward(rewards, question, reference, answer, grader="math"):
    output = rf"So it is \boxed{{{answer}}}"
    return asyncio.run(rewards.grade(question(grader, reference), output)).reward


def sized(**more):
    return settings(max_examples=60, deadline=None, **more)


@sized()
@given(answer=st.one_of(_SCALARS, _WRAPPED), spelling=st.sampled_from(sorted(_SPELLINGS)))
def test_an_answer_equals_itself_however_it_is_spelt(rewards, question, answer, spelling):
    assert reward(rewards, question, answer, _SPELLINGS[spelling](answer)) == 1


@sized()
@given(answer=_SCALARS, spelling=st.sampled_from(["{}+1", "1+{}", "({})+1", r"{} + \frac{{2}}{{2}}"]))
def test_an_answer_never_equals_itself_plus_one(rewards, question, answer, spelling):
    assert reward(rewards, question, answer, spelling.format(answer)) == 0
    assert reward(rewards, question, spelling.format(answer), answer) == 0


@sized()
@given(parts=_PARTS, place=st.integers(0, 3), wrap=st.sampled_from(["({})", r"\{{{}\}}", "{}", "[{})"]))
def test_a_list_with_one_part_more_by_one_is_another(rewards, question, parts, place, wrap):
    changed = list(parts)
    place %= len(parts)
    changed[place] = str(int(changed[place]) + 1)
    if sorted(changed) == sorted(parts):
        return
    reference, answer = (wrap.format(", ".join(each)) for each in (parts, changed))
    assert reward(rewards, question, reference, answer) == 0


@sized()
@given(parts=_PARTS, order=st.randoms(use_true_random=False))
def test_order_counts_in_tuples_alone(rewards, question, parts, order):
    shuffled = list(parts)
    order.shuffle(shuffled)
    assert reward(rewards, question, ", ".join(parts), ", ".join(shuffled)) == 1
    assert reward(rewards, question, rf"\{{{','.join(parts)}\}}", rf"\{{{','.join(shuffled)}\}}") == 1
    expected = int(shuffled == parts)
    assert reward(rewards, question, f"({', '.join(parts)})", f"({', '.join(shuffled)})") == expected


_PIECES = [
    r"\frac", r"\sqrt", r"\boxed", r"\text", r"\left(", r"\right)", r"\begin{pmatrix}", r"\end{pmatrix}",
    r"\sum", r"\int", "^", "_", "{", "}", "9", "x", "!", "&", r"\\", r"\pm", r"\cup", "answer", "is",
    "Answer:", r"\overline", r"\binom", r"\lim", r"\infty", r"\mathrm", "```python", "```", "<think>",
    "</think>",
]  # fmt: skip
_TEXTS = st.one_of(
    st.text(max_size=300),
    st.text(alphabet=st.sampled_from("\\{}()[]$^_&%#~|<>=+-*/!.,:; 019axyABei\n"), max_size=200),
    st.lists(st.sampled_from(_PIECES), max_size=40).map(" ".join),
)


@settings(max_examples=150, deadline=None)
@given(output=_TEXTS, boxed=st.booleans())
def test_no_output_raises_or_takes_long(rewards, question, output, boxed):
    references = {
        "math": r"\sqrt{2}",
        "choice": "B",
        "json_math": r"\pi",
        "json_number": "5",
        "json_literal": "[1]",
    }
    for kind in set(KINDS) - {"code"}:
        task = question(kind, references.get(kind, "x + 1"), options=("one", "two", "three", "four"))
        begin = time.perf_counter()
        grade = asyncio.run(rewards.grade(task, rf"\boxed{{{output}}}" if boxed else output))
        assert grade.reward in (0, 1)
        assert time.perf_counter() - begin < 30  # 1.5 s of CPU time is the limit; a busy machine adds to it


@settings(max_examples=60, deadline=None)
@given(reference=_TEXTS)
def test_no_reference_crashes_the_check(rewards, question, reference):
    for kind in set(KINDS) - {"code"}:
        try:
            rewards.check(question(kind, reference))
        except Exception as error:
            assert type(error).__name__ == "UserError"
