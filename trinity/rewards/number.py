r"""LaTeX or plain text -> an exact number.

Numbers are `Fraction`s, never floats: 1e-9 is not 2e-9, and 1000001 is not 1000000.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

_MAX_EXPONENT = 400
_MIN_DIGITS = 4

_DOUBLE_DIGITS = 15

_PLAIN = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d*)?|\d{1,3}(?: \d{3})+|\d+\.?\d*|\.\d+)"
_INTEGER = re.compile(r"[+-]?\d{1,18}")
_DECIMAL = re.compile(
    rf"([+-]?)\s*({_PLAIN})(?:[eE]([+-]?\d{{1,4}})|\s*(?:\\times|\\cdot|\*|x)\s*10\s*\^\s*\{{?\s*([+-]?\d{{1,4}})\s*\}}?)?"
)
_REPEATING = re.compile(r"([+-]?)\s*(\d*)\.(\d*)\s*\\(?:overline|bar|dot)\s*\{?\s*(\d{1,30})\s*\}?")
_POWER_OF_TEN = re.compile(r"([+-]?)10\s*\^\s*\{\s*([+-]?\d{1,4})\s*\}")
_FRACTION = re.compile(
    rf"([+-]?)\s*(?:\\frac\s*\{{\s*([+-]?\s*{_PLAIN})\s*\}}\s*\{{\s*([+-]?\s*{_PLAIN})\s*\}}"
    rf"|({_PLAIN})\s*/\s*([+-]?\s*{_PLAIN}))"
)
_MIXED = re.compile(
    r"([+-]?)\s*(\d+)(?:\s*\\frac\s*\{\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\}|(?:\s+|\s*\+\s*)(\d+)\s*/\s*(\d+))"
)


@dataclass(frozen=True, slots=True)
class Number:
    """An exact value, and how it was written.

    `places` is the count of digits after the point where it was written as a decimal, else None; `digits` the
    count of its significant digits.
    """

    value: Fraction
    places: int | None = None
    digits: int = 0

    def rounds(self, value: Fraction) -> bool:
        """Is this decimal, of at least four significant digits, `value` rounded to the places it shows?

        From 15 digits on it may be off by as much as a printed double is (a relative 2^-50).
        """
        if self.places is None or self.digits < _MIN_DIGITS:
            return False
        off = abs(self.value - value)
        as_double = self.digits >= _DOUBLE_DIGITS and off <= abs(value) / 2**50
        return as_double or off <= Fraction(1, 2 * 10**self.places)


def terminates(value: Fraction) -> bool:
    """Whether the decimal expansion of a rational number is finite."""
    denominator = value.denominator
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    return denominator == 1


def equal_numbers(reference: Number, answer: Number) -> bool:
    """Exact equality, or a decimal answer that rounds a reference like 1/3.

    The decimal rule holds only where the reference is written as a fraction and has no finite decimal
    expansion: 3/4 can be written down in full.
    """
    if reference.value == answer.value:
        return True
    return reference.places is None and not terminates(reference.value) and answer.rounds(reference.value)


def exact(text: str) -> Number | None:
    r"""Read an integer, decimal, scientific notation, fraction or mixed number; None for anything else.

    Thousands are separated by a comma without a space (2,100 is a number; 2, 100 is a list) or by a space.
    The fraction bar may be \frac or /; a mixed number needs a space before its plain fraction (1 1/2).
    Digits under \overline repeat.
    """
    if _INTEGER.fullmatch(text):
        return Number(Fraction(int(text)))
    if decimal := _DECIMAL.fullmatch(text):
        return _decimal(*decimal.groups())
    if fraction := _FRACTION.fullmatch(text):
        sign, top, bottom, plain_top, plain_bottom = fraction.groups()
        denominator = _plain(bottom or plain_bottom)
        if denominator == 0:
            return None
        return Number(_signed(sign, _plain(top or plain_top) / denominator))
    if mixed := _MIXED.fullmatch(text):
        sign, whole, top, bottom, plain_top, plain_bottom = mixed.groups()
        if int(bottom or plain_bottom) == 0:
            return None
        part = Fraction(int(top or plain_top), int(bottom or plain_bottom))
        return Number(_signed(sign, int(whole) + part))
    if repeating := _REPEATING.fullmatch(text):
        return _repeating(*repeating.groups())
    if power := _POWER_OF_TEN.fullmatch(text):
        return _decimal(power[1], "1", power[2], None)
    return None


def _decimal(sign: str, mantissa: str, e_exponent: str | None, ten_exponent: str | None) -> Number | None:
    exponent = int(e_exponent or ten_exponent or 0)
    if abs(exponent) > _MAX_EXPONENT:
        return None
    _, point, after = mantissa.partition(".")
    places = len(after) - exponent if point and after else None
    digits = len(mantissa.replace(",", "").replace(".", "").lstrip("0"))
    value = _signed(sign, _plain(mantissa) * Fraction(10) ** exponent)
    return Number(value, None if places is None else max(places, 0), digits)


def _repeating(sign: str, whole: str, before: str, period: str) -> Number:
    start, period_of = Fraction(int(whole + before or "0"), 10 ** len(before)), 10 ** len(period) - 1
    return Number(_signed(sign, start + Fraction(int(period), period_of * 10 ** len(before))))


def _plain(text: str) -> Fraction:
    return Fraction(text.replace(",", "").replace(" ", "").rstrip("."))


def _signed(sign: str, value: Fraction) -> Fraction:
    return -value if sign == "-" else value
