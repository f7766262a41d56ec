r"""Equality of expressions, for a process of its own: sympy may take for ever, or all the memory.

Only LaTeX is read, by math-verify's parser (latex2sympy), which builds sympy objects from a grammar. Its
other parser, for plain expressions, goes through `sympy.parse_expr`, which evaluates Python: it is never used
here, and a worker has that evaluation taken out (see `only_numbers`).
"""

import re
import resource
import signal
from fractions import Fraction

import sympy.physics.units  # type: ignore[import-untyped]  # noqa: F401 - simplify imports it late
from math_verify.parser import NormalizationConfig, latex2sympy, normalize_latex
from sympy import (
    Abs,
    Basic,
    Eq,
    Expr,
    Float,
    I,
    Integer,
    Mul,
    Pow,
    Rational,
    Symbol,
    expand,
    simplify,
)
from sympy.core.relational import Relational  # type: ignore[import-untyped]
from sympy.parsing import sympy_parser  # type: ignore[import-untyped]

from trinity.rewards.latex import DEGREE, REALS
from trinity.rewards.math import equal_here
from trinity.rewards.number import Number, terminates
from trinity.rewards.structure import compare, value_of
from trinity.rewards.units import ANGLE_OF
from trinity.rewards.value import Value

_MEMORY = 4 << 30
_SPELLING = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=True, nits=False, boxed="none", equations=False
)
_SCIENTIFIC = re.compile(r"(?<![\w.])(\d+\.?\d*|\.\d+)[eE]([+-]?\d+)(?!\w)")
_FUNCTION = re.compile(r"(?<![\\a-zA-Z])(sin|cos|tan|cot|sec|csc|log|ln|exp)(?![a-zA-Z])")
_NUMBER_CODE = re.compile(r"(Integer|Float) ?\( ?'?([\d.eE+-]+)'? ?\)")
_IN_DEGREES = re.compile(rf"(\d+(?:\.\d+)?|(?<![a-zA-Z\\])[a-zA-Z]|\\[a-z]+) ?{DEGREE}")
_LEADING_POINT = re.compile(r"(?<![\d.])\.(?=\d)")


def prepare_worker() -> None:
    """Set up a worker: memory capped, no core dumps, killed when its CPU time is up, nothing evaluated."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    sympy_parser.eval_expr = only_numbers


def only_numbers(code: str, local_dict: object, global_dict: object) -> Basic:
    """Takes the place of the function through which all of sympy's text parsing evaluates Python code.

    latex2sympy turns the digits it has recognised into numbers by way of `sympify`; those pass, as numbers,
    and nothing else does, whatever a library does with a text.
    """
    number = _NUMBER_CODE.fullmatch(code)
    if number is None:
        raise ValueError("no text is evaluated here")
    return Float(number[2]) if number[1] == "Float" else Integer(int(number[2]))


def warm_up() -> None:
    """The first parse builds the grammar's tables; let no answer pay for it."""
    equal(r"\frac{x}{2}+\sqrt{2}", r"0.5x+\sqrt{2}")


def answer_in(cpu_seconds: float, reference: str, answer: str) -> bool:
    """`equal`, in CPU time that does not depend on how busy the machine is.

    The kernel ends the process when the time is up, also in the middle of one long multiplication.
    """
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    try:
        return equal(reference, answer)
    except (Exception, MemoryError, RecursionError):
        return False
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def readable(cpu_seconds: float, reference: str) -> bool:
    """Whether every part of a reference can be parsed."""
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    try:
        return _readable(value_of(reference))
    except Exception:
        return False
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _readable(value: Value) -> bool:
    if value.kind in ("expression", "equation", "relation"):
        _read(value.text)
    return all(_readable(item) for item in value.items)


def equal(reference: str, answer: str) -> bool:
    """Whether two LaTeX texts are equal by the table of `trinity.rewards.structure`. Raises on bad LaTeX."""
    return compare(value_of(reference), value_of(answer), _equal_leaves) is True


def _equal_leaves(reference: Value, answer: Value) -> bool:
    here = equal_here(reference, answer)
    if here is not None:
        return here
    ours, theirs = _read(reference.text), _read(answer.text)
    if isinstance(ours, Relational) or isinstance(theirs, Relational):
        return _same_relation(ours, theirs)
    if not (isinstance(ours, Expr) and isinstance(theirs, Expr)):
        return False
    if _is_zero(ours - theirs) or _is_zero(_real_powers(ours) - _real_powers(theirs)):
        return True
    return answer.number is not None and _rounds_to(ours, answer.number)


def _read(text: str) -> Basic:
    """LaTeX -> sympy, with decimals exact and i the imaginary unit."""
    text = text.replace(REALS, "R")
    if DEGREE in text and ANGLE_OF.search(text):
        text = _IN_DEGREES.sub(r"(\1 \\cdot \\frac{\\pi}{180})", text)
    text = _SCIENTIFIC.sub(r"\1 \\times 10^{\2}", text)
    text = _LEADING_POINT.sub("0.", _FUNCTION.sub(r"\\\1", text))
    parsed: Basic = latex2sympy(
        normalize_latex(text, config=_SPELLING), is_real=None, normalization_config=None
    )
    exact: Basic = parsed.xreplace({number: Rational(str(number)) for number in parsed.atoms(Float)})
    return exact.xreplace({Symbol("i"): I})


def _is_zero(difference: Expr) -> bool:
    difference = difference.doit()
    if not difference.free_symbols and abs(difference.evalf(30)) > 1e-6:  # far apart: no need to simplify
        return False
    return bool(expand(difference) == 0 or simplify(difference) == 0)


def _real_powers(expression: Expr) -> Expr:
    """Powers of powers as they are for real numbers, where x^(2/3) is the cube root of x^2.

    (b^m)^(p/q), in lowest terms, is b^(mp/q) where q is odd (roots of negative numbers exist) or m is odd
    (both sides exist for b >= 0 alone), and |b|^(mp/q) otherwise. Where i appears, nothing is changed.
    """
    if expression.has(I):
        return expression
    real: Expr = expression.replace(_is_fractional_power, lambda power: _real_power(power.base, power.exp))
    return real


def _is_fractional_power(expression: Basic) -> bool:
    return isinstance(expression, Pow) and isinstance(expression.exp, Rational) and expression.exp.q != 1


def _real_power(base: Expr, exponent: Rational) -> Expr:
    inner, power = base.as_base_exp()
    if isinstance(power, Integer) and power != 1:
        even = exponent.q % 2 == 0 and power % 2 == 0 and (power * exponent) % 2 != 0
        return Pow(Abs(inner) if even else inner, power * exponent)
    if inner.is_positive:  # the root of e^x is e^(x/2)
        return Pow(inner, power * exponent)
    number, rest = base.as_coeff_Mul()
    if exponent.q % 2 and isinstance(base, Mul):
        return Mul(*(_real_power(factor, exponent) for factor in base.args))
    if number.is_positive and number != 1:
        return Pow(number, exponent) * _real_power(rest, exponent)
    if exponent.q % 2 and base.is_negative:
        return (-1) ** exponent.p * Pow(-base, exponent)
    return Pow(base, exponent)


def _rounds_to(exact: Expr, decimal: Number) -> bool:
    """The decimal rule of `trinity.rewards.number`, for a value that may be irrational."""
    exact = exact.doit()
    if exact.free_symbols or (
        isinstance(exact, Rational) and terminates(Fraction(int(exact.p), int(exact.q)))
    ):
        return False
    digits = exact.evalf(50)
    return isinstance(digits, Float) and decimal.rounds(Fraction(str(digits)))


def _same_relation(ours: Basic, theirs: Basic) -> bool:
    """The same equation or inequality up to a constant factor (a positive one where the order matters)."""
    if not (isinstance(ours, Relational) and isinstance(theirs, Relational)):
        return False
    if ours.rel_op in (">", ">="):
        ours = ours.reversed
    if theirs.rel_op in (">", ">="):
        theirs = theirs.reversed
    if ours.rel_op != theirs.rel_op:
        return False
    factor = simplify((ours.lhs - ours.rhs).doit() / (theirs.lhs - theirs.rhs).doit())
    if factor.free_symbols or not factor.is_finite or factor.is_zero is not False:
        return False
    return bool(isinstance(ours, Eq) or ours.rel_op == "!=" or factor.is_positive)
