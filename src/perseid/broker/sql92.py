"""SQL92 expressions over a message's properties, as consumers send them: read once, then asked of each message.

    expression = conjunction { OR conjunction }
    conjunction = equality { AND equality }
    equality = comparison { "=" comparison | "<>" comparison | IS [NOT] NULL }
    comparison = unary { (">" | ">=" | "<" | "<=") unary | [NOT] BETWEEN unary AND unary
                       | [NOT] IN "(" string { "," string } ")" | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) string }
    unary = ["+" | "-" | NOT] unary | string | number | TRUE | FALSE | NULL | property | "(" expression ")"

Keywords in any case, names of properties as they are written; `/* */` is a comment. Values are a string, a long, a
double, a boolean, or nothing (NULL, and a property that is not there). A string beside a number or a boolean is read
as one, and so are two strings beside < and its like. Nothing beside < and its like is nothing, and so is its NOT; but
nothing = nothing is true, and what is there = nothing is false. A message is wanted when the result is true. What
stands behind a whole expression is not looked at. All of this, odd or not, is as rocketmq-filter 5.5.0 has it, with
which tests/interop compares thousands of drawn expressions (broker.md §6.5).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from perseid.base.errors import PerseidError
from perseid.wire.properties import TAGS

MAX_CHARS = 16 * 1024
"""Of one expression."""
MAX_DEPTH = 64
"""Of parentheses, signs and NOTs in each other."""
MAX_CACHED = 1024
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1

Value = str | bool | int | float | None
Properties = Callable[[str], str | None]
"""A message's property by its name."""
Evaluate = Callable[[Properties], Value]


class SqlError(PerseidError):
    """An expression that can't be read."""


class NotComparable(Exception):
    """A property's value is not what it is compared with: the message is not wanted."""


class Expression:
    """One expression that was read."""

    def __init__(self, text: str, evaluate: Evaluate, tags: frozenset[str] | None) -> None:
        self.text = text
        self.tags = tags
        """What TAGS says in each message that is wanted; None: anything."""
        self._evaluate = evaluate

    def result(self, properties: Properties) -> Value:
        """What the expression comes to; raises what `wants` takes for no."""
        return self._evaluate(properties)

    def wants(self, properties: Properties) -> bool:
        """Whether a message with these properties is wanted."""
        try:
            return self._evaluate(properties) is True
        except NotComparable:
            return False


@lru_cache(maxsize=MAX_CACHED)
def parse(text: str) -> Expression:
    """An expression from its text; SqlError says where it can't be read."""
    if len(text) > MAX_CHARS:
        raise SqlError(f"an SQL92 expression of {len(text)} characters: {MAX_CHARS} is the limit")
    reader = _Reader(text)
    node = _boolean(reader, reader.disjunction())
    return Expression(text, node.evaluate, node.tags)


# ---- values ----

_LONG = re.compile(r"[+-]?\d+").fullmatch
_DOUBLE = re.compile(
    r"[\x00- ]*[+-]?(NaN|Infinity|((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|0[xX]([\da-fA-F]+\.?|[\da-fA-F]*\.[\da-fA-F]+)"
    r"[pP][+-]?\d+)[fFdD]?)[\x00- ]*",
    re.ASCII,
).fullmatch


def _long(text: str) -> int:
    value = int(text) if _LONG(text) else LONG_MAX + 1
    if not LONG_MIN <= value <= LONG_MAX:
        raise NotComparable(f"{text!r} is no long")
    return value


def _double(text: str) -> float:
    if not _DOUBLE(text):
        raise NotComparable(f"{text!r} is no double")
    plain = text.strip("".join(map(chr, range(33))))
    if "x" in plain or "X" in plain:
        return float.fromhex(plain.rstrip("fFdD") if "p" in plain.lower() else plain)
    return float(plain.rstrip("fFdD") if not plain.endswith("Infinity") else plain)


def _same(one: Value, other: Value) -> bool:
    """Whether two values that are there are equal."""
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    if isinstance(one, bool) and isinstance(other, str):
        raise NotComparable(f"{other!r} behind a condition")
    if isinstance(other, bool):
        return (one.lower() == "true" if isinstance(one, str) else one) is other
    return not isinstance(one, bool) and _sign(one, other) == 0


def _sign(one: Value, other: Value) -> int:
    """-1, 0, 1: how two values stand that are numbers, or strings to be read as such."""
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
    first, second = ((math.isnan(each), 0.0 if math.isnan(each) else each) for each in (one, other))
    if first == second and not first[0]:
        first, second = ((False, math.copysign(1.0, each) if each == 0 else 0.0) for each in (one, other))
    return (first > second) - (first < second)


# ---- nodes ----


class _Node(NamedTuple):
    """A part of an expression. `boolean`: it is true, false or nothing."""

    evaluate: Evaluate
    boolean: bool = False
    constant: bool = False
    value: Value = None
    name: str | None = None
    """Of a property."""
    tags: frozenset[str] | None = None
    """What TAGS says wherever this is true; None: anything."""


def _constant(value: Value, *, boolean: bool = False) -> _Node:
    return _Node(lambda _: value, boolean, True, value)


def _property(name: str) -> _Node:
    return _Node(lambda properties: properties(name), name=name)


def _boolean(reader: _Reader, node: _Node) -> _Node:
    """A node where a boolean is needed. A property is none, whatever it says: it has a string."""
    if node.boolean:
        return node
    if node.name is None:
        raise reader.error("a condition is needed, not a value")
    evaluate = node.evaluate
    return _Node(lambda properties: None if evaluate(properties) is None else False, boolean=True)


def _compare(one: _Node, other: _Node, holds: Callable[[int], bool]) -> _Node:
    left, right = one.evaluate, other.evaluate

    def evaluate(properties: Properties) -> Value:
        first = left(properties)
        second = right(properties)
        return None if first is None or second is None else holds(_sign(first, second))

    return _Node(evaluate, boolean=True)


def _equal(one: _Node, other: _Node) -> _Node:
    if one.name is not None and isinstance(other.value, str):
        return _says(one.name, other.value)
    left, right = one.evaluate, other.evaluate

    def evaluate(properties: Properties) -> Value:
        first = left(properties)
        second = right(properties)
        if first is None:
            return True if second is None else None
        return second is not None and _same(first, second)

    return _Node(evaluate, boolean=True)


def _says(name: str, text: str) -> _Node:
    """A property beside a string: the usual comparison."""

    def evaluate(properties: Properties) -> Value:
        value = properties(name)
        return None if value is None else value == text

    return _Node(evaluate, boolean=True, tags=frozenset((text,)) if name == TAGS else None)


def _not(node: _Node) -> _Node:
    inner = node.evaluate

    def evaluate(properties: Properties) -> Value:
        value = inner(properties)
        return None if value is None else not value

    return _Node(evaluate, boolean=True)


def _junction(one: _Node, other: _Node, tags: frozenset[str] | None, decides: bool) -> _Node:
    """AND (False decides) and OR (True does) of three values; the other side is asked only where the first leaves it
    open."""
    left, right = one.evaluate, other.evaluate

    def evaluate(properties: Properties) -> Value:
        first = left(properties)
        if first is decides:
            return decides
        second = right(properties)
        if second is decides:
            return decides
        return None if first is None or second is None else not decides

    return _Node(evaluate, boolean=True, tags=tags)


def _and(one: _Node, other: _Node) -> _Node:
    if one.tags is None or other.tags is None:
        return _junction(one, other, one.tags if other.tags is None else other.tags, decides=False)
    return _junction(one, other, one.tags & other.tags, decides=False)


def _or(one: _Node, other: _Node) -> _Node:
    tags = None if one.tags is None or other.tags is None else one.tags | other.tags
    return _junction(one, other, tags, decides=True)


def _is_null(node: _Node) -> _Node:
    inner = node.evaluate
    return _Node(lambda properties: inner(properties) is None, boolean=True)


def _negative(node: _Node) -> _Node:
    inner = node.evaluate

    def evaluate(properties: Properties) -> Value:
        value = inner(properties)
        return None if isinstance(value, str | bool) or value is None else -value

    return _Node(evaluate)


def _one_of(node: _Node, strings: frozenset[str], wanted: bool) -> _Node:
    inner = node.evaluate

    def evaluate(properties: Properties) -> Value:
        value = inner(properties)
        return (value in strings) is wanted if isinstance(value, str) else None

    return _Node(evaluate, boolean=True, tags=strings if wanted and node.name == TAGS else None)


_TEXT_TESTS: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": str.__contains__,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def _text_test(node: _Node, word: str, text: str, wanted: bool) -> _Node:
    inner, test = node.evaluate, _TEXT_TESTS[word]

    def evaluate(properties: Properties) -> Value:
        value = inner(properties)
        return test(value, text) is wanted if text and isinstance(value, str) else False

    return _Node(evaluate, boolean=True)


# ---- reading ----

_TOKEN = re.compile(
    r"""(?P<skip>[ \t\n\r\f]+|/\*.*?\*/)
      | (?P<float>\d+\.\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
      | (?P<long>(?:0|[1-9]\d*)[lL]?)
      | (?P<string>'(?:''|[^'])*')
      | (?P<word>[A-Za-z_$][A-Za-z0-9_$]*)
      | (?P<sign><>|<=|>=|[=<>(),+-])""",
    re.VERBOSE | re.DOTALL | re.ASCII,
).match
_KEYWORDS = frozenset(
    ["NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH"]
)
_COMPARISONS: dict[str, Callable[[int], bool]] = {
    ">": lambda sign: sign > 0,
    ">=": lambda sign: sign >= 0,
    "<": lambda sign: sign < 0,
    "<=": lambda sign: sign <= 0,
}
_END = ("end", "")


class _Reader:
    """Recursive descent, one token ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = self._next = 0
        self._depth = 0
        self._token = _END
        self._advance()

    def error(self, what: str) -> SqlError:
        return SqlError(f"{what}, at character {self._at} of {self._text!r}")

    # ---- tokens ----

    def _scan(self, at: int) -> tuple[tuple[str, str], int, int]:
        """The token at or behind a place, where it begins, and where it ends."""
        while at < len(self._text):
            found = _TOKEN(self._text, at)
            if found is None:
                self._at = at
                raise self.error(f"{self._text[at]!r} can't be read")
            kind, text = str(found.lastgroup), found.group()
            if kind != "skip":
                if kind == "word" and text.upper() in _KEYWORDS:
                    kind, text = "key", text.upper()
                return (kind, text), at, found.end()
            at = found.end()
        return _END, at, at

    def _advance(self) -> tuple[str, str]:
        token = self._token
        self._token, self._at, self._next = self._scan(self._next)
        return token

    def _takes(self, *words: str) -> bool:
        """Take these keywords or signs, if all of them come next."""
        if self._token[0] not in ("key", "sign") or self._token[1] != words[0]:
            return False
        if len(words) > 1 and self._scan(self._next)[0] != ("key", words[1]):
            return False
        for _ in words:
            self._advance()
        return True

    def _needs(self, word: str) -> None:
        if not self._takes(word):
            raise self.error(f"{word} is missing")

    def _string(self) -> str:
        kind, text = self._token
        if kind != "string":
            raise self.error("a string in '…' is needed")
        self._advance()
        return text[1:-1].replace("''", "'")

    # ---- grammar ----

    def disjunction(self) -> _Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self.error(f"more than {MAX_DEPTH} levels")
        node = self._conjunction()
        while self._takes("OR"):
            other = self._conjunction()
            node = _or(_boolean(self, node), _boolean(self, other))
        self._depth -= 1
        return node

    def _conjunction(self) -> _Node:
        node = self._equality()
        while self._takes("AND"):
            other = self._equality()
            node = _and(_boolean(self, node), _boolean(self, other))
        return node

    def _equality(self) -> _Node:
        node = self._comparison()
        while True:
            if self._takes("="):
                node = self._equal(node, self._comparison())
            elif self._takes("<>"):
                node = _not(self._equal(node, self._comparison()))
            elif self._takes("IS"):
                negated = self._takes("NOT")
                self._needs("NULL")
                node = _not(_is_null(node)) if negated else _is_null(node)
            else:
                return node

    def _equal(self, one: _Node, other: _Node) -> _Node:
        for node in (one, other):
            if node.constant and node.value is None:
                raise self.error("nothing equals NULL: use IS NULL")
        if one.constant and one.boolean and other.constant and not other.boolean:
            raise self.error("a boolean does not equal what is none")
        return _equal(one, other)

    def _comparison(self) -> _Node:
        node = self._unary()
        while True:
            sign = next((each for each in _COMPARISONS if self._token == ("sign", each)), None)
            if sign is not None:
                self._advance()
                node = self._ordered(node, self._unary(), sign)
            elif self._takes("BETWEEN"):
                low, high = self._bounds()
                self._check_bounds(low, high)
                node = _and(self._ordered(node, low, ">="), self._ordered(node, high, "<="))
            elif self._takes("NOT", "BETWEEN"):
                low, high = self._bounds()
                node = _or(self._ordered(node, low, "<"), self._ordered(node, high, ">"))
            elif self._takes("IN"):
                node = self._in(node, wanted=True)
            elif self._takes("NOT", "IN"):
                node = self._in(node, wanted=False)
            else:
                negated = self._takes("NOT")
                word = next((each for each in _TEXT_TESTS if self._takes(each)), None)
                if word is not None:
                    node = _text_test(node, word, self._string(), not negated)
                elif negated:
                    raise self.error("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH is needed")
                else:
                    return node

    def _ordered(self, one: _Node, other: _Node, sign: str) -> _Node:
        for node in (one, other):
            if node.boolean or (node.constant and isinstance(node.value, str)):
                raise self.error(f"only numbers and properties can stand beside {sign}")
        return _compare(one, other, _COMPARISONS[sign])

    def _bounds(self) -> tuple[_Node, _Node]:
        low = self._unary()
        self._needs("AND")
        high = self._unary()
        return low, high

    def _check_bounds(self, low: _Node, high: _Node) -> None:
        if not (low.constant and high.constant) or low.boolean or high.boolean:
            return
        if isinstance(low.value, str) or isinstance(high.value, str) or _sign(low.value, high.value) > 0:
            raise self.error("the bounds of BETWEEN are no numbers, or in the wrong order")

    def _in(self, node: _Node, *, wanted: bool) -> _Node:
        if node.name is None:
            raise self.error("only a property can be IN a list")
        self._needs("(")
        strings = [self._string()]
        while self._takes(","):
            strings.append(self._string())
        self._needs(")")
        return _one_of(node, frozenset(strings), wanted)

    def _unary(self) -> _Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self.error(f"more than {MAX_DEPTH} levels")
        if self._takes("+"):
            node = self._unary()
        elif self._takes("-"):
            node = _negative(self._unary())
        elif self._takes("NOT"):
            node = _not(_boolean(self, self._unary()))
        else:
            node = self._primary()
        self._depth -= 1
        return node

    def _primary(self) -> _Node:
        kind, text = self._token
        if self._takes("("):
            node = self.disjunction()
            self._needs(")")
            return node
        if kind == "string":
            return _constant(self._string())
        if kind in ("long", "float", "word") or text in ("TRUE", "FALSE", "NULL"):
            self._advance()
        if kind == "word":
            return _property(text)
        if kind == "long":
            return _constant(self._checked_long(text.rstrip("lL")))
        if kind == "float":
            return _constant(self._checked_double(text))
        if text in ("TRUE", "FALSE"):
            return _constant(text == "TRUE", boolean=True)
        if text == "NULL":
            return _constant(None, boolean=True)
        raise self.error("a value, a property or ( is needed")

    def _checked_long(self, text: str) -> int:
        if int(text) > LONG_MAX:
            raise self.error(f"{text} is more than {LONG_MAX}")
        return int(text)

    def _checked_double(self, text: str) -> float:
        value = float(text)
        if value == 0 or math.isinf(value):
            raise self.error(f"{text} is no double above zero that Java takes")
        return value
