# cython: language_level=3, annotation_typing=False, infer_types=True
# cython: wraparound=False, initializedcheck=False, embedsignature=True
"""What SQL92 expressions are made of: parts that each come to a value, asked of one message after the other.

A value is a string, a long, a double, a boolean, or nothing (None). Properties are asked for by name, of any callable;
of records that the core looks at, texts are compared where they stand. The rules, odd or not, are those of
rocketmq-filter 5.5.0; `broker/consume/sql92.py` has the grammar, and tells which of them come from where.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TypeAlias

from perseid.core.layout import AT_BEGIN, LONG_MAX, LONG_MIN, WITHIN
from perseid.core.properties import Properties

compiled = not __file__.endswith(".py")

MAX_DIGITS = 18
"""That a long can have whatever they are."""
Value: TypeAlias = "str | bool | int | float | None"
Ask: TypeAlias = "Callable[[str], str | None]"
"""A message's property by its name."""


class NotComparable(Exception):
    """A property's value is not what it is compared with: the message is not wanted."""


# ---- values ----

_LONG = re.compile(r"[+-]?\d+").fullmatch
_DOUBLE = re.compile(
    r"[\x00- ]*[+-]?(NaN|Infinity|((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|0[xX]([\da-fA-F]+\.?|[\da-fA-F]*\.[\da-fA-F]+)"
    r"[pP][+-]?\d+)[fFdD]?)[\x00- ]*",
    re.ASCII,
).fullmatch
_BLANKS = "".join(map(chr, range(33)))


def _long(text: str) -> int:
    if len(text) <= MAX_DIGITS and text.isdecimal():
        return int(text)
    value = int(_without_zeros(text)) if _LONG(text) else LONG_MAX + 1
    if not LONG_MIN <= value <= LONG_MAX:
        raise NotComparable(f"{text!r} is no long")
    return value


def _without_zeros(text: str) -> str:
    """The same number in a text that is no longer than any long needs: Python reads no more than some 4,000 digits."""
    sign = text[:1] if text[:1] in "+-" else ""
    at = len(sign)
    while len(text) - at > MAX_DIGITS and int(text[at]) == 0:
        at += 1
    if len(text) - at > MAX_DIGITS + 1:
        raise NotComparable(f"a number of {len(text) - at} digits is no long")
    return sign + text[at:]


def _double(text: str) -> float:
    if not _DOUBLE(text):
        raise NotComparable(f"{text!r} is no double")
    plain = text.strip(_BLANKS)
    if "x" in plain or "X" in plain:
        return _hexadecimal(plain.rstrip("fFdD"))
    return float(plain.rstrip("fFdD") if not plain.endswith("Infinity") else plain)


def _hexadecimal(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:  # what is too large is infinite in Java
        return -math.inf if text.startswith("-") else math.inf


def _same(one: Value, other: Value) -> bool:
    """Whether two values that are there are equal."""
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    if isinstance(one, bool) and isinstance(other, str):
        raise NotComparable(f"{other!r} behind a condition")
    if isinstance(other, bool):
        return (one.lower() == "true" if isinstance(one, str) else one) is other
    return not isinstance(one, bool) and order(one, other) == 0


def order(one: Value, other: Value) -> int:
    """-1, 0, 1: how two values stand that are numbers, or strings to be read as such; NotComparable when they are
    none."""
    if isinstance(one, str) and isinstance(other, str):
        one, other = _double(one), _double(other)
    elif isinstance(one, str):
        one = _long(one) if isinstance(other, int) else _double(one)
    elif isinstance(other, str):
        other = _long(other) if isinstance(one, int) else _double(other)
    assert isinstance(one, int | float) and isinstance(other, int | float)
    if isinstance(one, float) or isinstance(other, float):
        return _double_sign(float(one), float(other))
    return (one > other) - (one < other)


def _double_sign(one: float, other: float) -> int:
    """Java's order of doubles: -0.0 before 0.0, NaN behind all and equal to itself."""
    first = _place(one)
    second = _place(other)
    if first == second and one == 0:
        first, second = (False, math.copysign(1.0, one)), (False, math.copysign(1.0, other))
    return (first > second) - (first < second)


def _place(value: float) -> tuple[bool, float]:
    return (True, 0.0) if math.isnan(value) else (False, value)


# ---- parts ----


class Part:
    """A part of an expression; this one is nothing."""

    def result(self, ask: Ask) -> Value:
        """What it comes to; raises what `wants` takes for no."""
        return None

    def wants(self, ask: Ask) -> bool:
        """Whether a message with these properties is wanted: whether it comes to true."""
        try:
            return self.result(ask) is True
        except NotComparable:
            return False


class Constant(Part):
    """The same for all messages."""

    def __init__(self, value: Value) -> None:
        self._value = value

    def result(self, ask: Ask) -> Value:
        return self._value


class Named(Part):
    """A property: a string, or nothing. Names are ASCII."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._key = name.encode()

    def result(self, ask: Ask) -> Value:
        if isinstance(ask, Properties):
            found = ask
            return found.value(self._key)
        return ask(self._name)


class Said(Part):
    """A property where a condition is needed. It is none, whatever it says."""

    def __init__(self, part: Part) -> None:
        self._part = part

    def result(self, ask: Ask) -> Value:
        return None if self._part.result(ask) is None else False


class Compared(Part):
    """Two numbers whose `order` is one of `signs`."""

    def __init__(self, left: Part, right: Part, signs: tuple[int, ...]) -> None:
        self._left, self._right = left, right
        self._signs = signs

    def result(self, ask: Ask) -> Value:
        first = self._left.result(ask)
        second = self._right.result(ask)
        return None if first is None or second is None else order(first, second) in self._signs


class Equal(Part):
    """Two values."""

    def __init__(self, left: Part, right: Part) -> None:
        self._left, self._right = left, right

    def result(self, ask: Ask) -> Value:
        first = self._left.result(ask)
        second = self._right.result(ask)
        if first is None:
            return True if second is None else None
        return second is not None and _same(first, second)


class Not(Part):
    """What a condition is not."""

    def __init__(self, part: Part) -> None:
        self._part = part

    def result(self, ask: Ask) -> Value:
        value = self._part.result(ask)
        return None if value is None else not value


class Junction(Part):
    """AND (False decides) and OR (True does) of three values; each is asked only where those before leave it open."""

    def __init__(self, parts: tuple[Part, ...], decides: bool) -> None:
        self._parts = parts
        self._decides = decides

    def result(self, ask: Ask) -> Value:
        is_open = False
        for part in self._parts:
            value = part.result(ask)
            if value is self._decides:
                return value
            if value is None:
                is_open = True
        return None if is_open else not self._decides


class IsNull(Part):
    """Is it nothing?"""

    def __init__(self, part: Part) -> None:
        self._part = part

    def result(self, ask: Ask) -> Value:
        return self._part.result(ask) is None


class Negative(Part):
    """A number with its sign turned; nothing, of anything else."""

    def __init__(self, part: Part) -> None:
        self._part = part

    def result(self, ask: Ask) -> Value:
        value = self._part.result(ask)
        return None if isinstance(value, str | bool) or value is None else -value


class OneOf(Part):
    """Is a string one of these, or (`wanted` is False) none of them?"""

    def __init__(self, part: Part, strings: frozenset[str], wanted: bool) -> None:
        self._part, self._strings = part, strings
        self._wanted = wanted

    def result(self, ask: Ask) -> Value:
        value = self._part.result(ask)
        return (value in self._strings) is self._wanted if isinstance(value, str) else None


class Text(Part):
    """A string beside a constant one. Where it is a property of a record, its bytes are compared: what has no U+FFFD,
    which stands for bytes that are no UTF-8, is in a text where its bytes are in the text's."""

    def __init__(self, part: Part, name: str | None, text: str) -> None:
        self._part, self._text = part, text
        self._key = b"" if name is None or not _has_bytes(text) else name.encode()
        self._bytes = text.encode("utf-8", "replace")


def _has_bytes(text: str) -> bool:
    return "\ufffd" not in text and not any("\ud800" <= char <= "\udfff" for char in text)


class Says(Text):
    """A property beside a string: the usual comparison."""

    def result(self, ask: Ask) -> Value:
        if isinstance(ask, Properties) and self._key:
            found = ask
            said = found.says(self._key, self._bytes)
            return None if said < 0 else said > 0
        value = self._part.result(ask)
        return None if value is None else value == self._text


class TextTest(Text):
    """Has a string the text in it, at its begin, or at its end (CONTAINS, STARTSWITH, ENDSWITH)? Or, with `wanted`
    False, has it not? False of what is no string, and beside an empty text."""

    def __init__(self, part: Part, name: str | None, text: str, where: int, wanted: bool) -> None:
        super().__init__(part, name, text)
        self._where, self._wanted = where, wanted

    def result(self, ask: Ask) -> Value:
        if not self._text:
            return False
        if isinstance(ask, Properties) and self._key:
            found = ask
            said = found.has(self._key, self._bytes, self._where)
            return said >= 0 and (said > 0) is self._wanted
        value = self._part.result(ask)
        return isinstance(value, str) and self._holds(value) is self._wanted

    def _holds(self, value: str) -> bool:
        if self._where == WITHIN:
            return self._text in value
        return value.startswith(self._text) if self._where == AT_BEGIN else value.endswith(self._text)
