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
from typing import NamedTuple

from perseid.base.errors import PerseidError
from perseid.core.conditions import (
    Ask,
    Compared,
    Constant,
    Equal,
    IsNull,
    Junction,
    Named,
    Negative,
    Not,
    OneOf,
    Part,
    Said,
    Says,
    TextTest,
    Value,
    order,
)
from perseid.core.layout import AT_BEGIN, AT_END, LONG_MAX, WITHIN
from perseid.wire.properties import TAGS

MAX_CHARS = 16 * 1024
"""Of one expression."""
MAX_DEPTH = 64
"""Of parentheses, signs and NOTs in each other."""
MAX_LINKS = 64
"""Of chains such as a = b = c, in one expression."""
MAX_TERMS = 1_024
"""Of values and properties in one expression; a text that is looked for in properties counts as one for each
`TEXT_OF_TERM` characters more."""
TEXT_OF_TERM = 8
MAX_LONG_DIGITS = 19
SHOWN_CHARS = 100
"""Of an expression that can't be read, before and behind where it can't."""
MAX_CACHED = 1024


class SqlError(PerseidError):
    """An expression that can't be read."""


class Expression:
    """One expression that was read."""

    def __init__(self, text: str, part: Part, tags: frozenset[str] | None, terms: int) -> None:
        self.text = text
        self.terms = terms
        """Values and properties in it: what it costs to ask it of a message."""
        self.tags = tags
        """What TAGS says in each message that is wanted; None: anything."""
        self.result: Callable[[Ask], Value] = part.result
        """What it comes to, for a message whose properties can be asked for; raises what `wants` takes for no."""
        self.wants: Callable[[Ask], bool] = part.wants
        """Whether a message is wanted, whose properties can be asked for."""


_known: dict[str, Expression] = {}
"""By their texts; what was asked for last stands last."""


def known(text: str) -> Expression | None:
    """The expression of a text that was read lately."""
    found = _known.pop(text, None)
    if found is not None:
        _known[text] = found
    return found


def parse(text: str) -> Expression:
    """An expression from its text; SqlError says where it can't be read."""
    found = known(text)
    if found is not None:
        return found
    if len(text) > MAX_CHARS:
        raise SqlError(f"an SQL92 expression of {len(text)} characters: {MAX_CHARS} is the limit")
    reader = _Reader(text)
    node = _boolean(reader, reader.disjunction())
    if len(_known) >= MAX_CACHED:
        del _known[next(iter(_known))]
    made = _known[text] = Expression(text, node.part, node.tags, reader.terms)
    return made


def forget() -> None:
    """Know no expression any more."""
    _known.clear()


# ---- nodes ----


class _Node(NamedTuple):
    """A part of an expression, and what is known of it. `boolean`: it is true, false or nothing."""

    part: Part
    boolean: bool = False
    constant: bool = False
    value: Value = None
    name: str | None = None
    """Of a property."""
    tags: frozenset[str] | None = None
    """What TAGS says wherever this is true; None: anything."""


def _constant(value: Value, *, boolean: bool = False) -> _Node:
    return _Node(Constant(value), boolean, True, value)


def _condition(part: Part, tags: frozenset[str] | None = None) -> _Node:
    return _Node(part, boolean=True, tags=tags)


def _boolean(reader: _Reader, node: _Node) -> _Node:
    """A node where a boolean is needed. A property is none, whatever it says: it has a string."""
    if node.boolean:
        return node
    if node.name is None:
        raise reader.error("a condition is needed, not a value")
    return _condition(Said(node.part))


def _equal(one: _Node, other: _Node) -> _Node:
    if one.name is not None and isinstance(other.value, str):
        tags = frozenset((other.value,)) if one.name == TAGS else None
        return _condition(Says(one.part, one.name, other.value), tags)
    return _condition(Equal(one.part, other.part))


def _and(nodes: list[_Node]) -> _Node:
    known = [node.tags for node in nodes if node.tags is not None]
    part = Junction(tuple(node.part for node in nodes), False)
    return _condition(part, frozenset.intersection(*known) if known else None)


def _or(nodes: list[_Node]) -> _Node:
    known = [node.tags for node in nodes if node.tags is not None]
    part = Junction(tuple(node.part for node in nodes), True)
    return _condition(part, frozenset.union(*known) if len(known) == len(nodes) else None)


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
_COMPARISONS = {">": (1,), ">=": (0, 1), "<": (-1,), "<=": (-1, 0)}
"""The signs that each takes."""
_TEXT_TESTS = {"CONTAINS": WITHIN, "STARTSWITH": AT_BEGIN, "ENDSWITH": AT_END}
_END = ("end", "")


class _Reader:
    """Recursive descent, one token ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = self._next = 0
        self._depth = self._links = self.terms = 0
        self._token = _END
        self._advance()

    def error(self, what: str) -> SqlError:
        begin = max(0, self._at - SHOWN_CHARS) if len(self._text) > 2 * SHOWN_CHARS else 0
        shown = self._text[begin : begin + 2 * SHOWN_CHARS]
        dots = "" if len(shown) == len(self._text) else "…"
        return SqlError(f"{what}, at character {self._at} of {dots}{shown!r}{dots}")

    def _count_terms(self, more: int) -> None:
        self.terms += more
        if self.terms > MAX_TERMS:
            raise self.error(
                f"more than {MAX_TERMS} values and properties (a text behind CONTAINS or its like counts as "
                f"one for each {TEXT_OF_TERM} characters)"
            )

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
        nodes = [self._conjunction()]
        while self._takes("OR"):
            nodes.append(self._conjunction())
        self._depth -= 1
        return nodes[0] if len(nodes) == 1 else _or([_boolean(self, node) for node in nodes])

    def _conjunction(self) -> _Node:
        nodes = [self._equality()]
        while self._takes("AND"):
            nodes.append(self._equality())
        return nodes[0] if len(nodes) == 1 else _and([_boolean(self, node) for node in nodes])

    def _equality(self) -> _Node:
        node = self._comparison()
        links = 0
        while True:
            if self._takes("="):
                node = self._equal(node, self._comparison())
            elif self._takes("<>"):
                node = _condition(Not(self._equal(node, self._comparison()).part))
            elif self._takes("IS"):
                negated = self._takes("NOT")
                self._needs("NULL")
                part = IsNull(node.part)
                node = _condition(Not(part) if negated else part)
            else:
                return node
            links += 1
            self._check_links(links)

    def _check_links(self, links: int) -> None:
        """Behind each sign of a chain, of `a = b = c`; the first is none of a chain yet."""
        self._links += links > 1
        if self._links > MAX_LINKS:
            raise self.error(f"more than {MAX_LINKS} links in chains")

    def _equal(self, one: _Node, other: _Node) -> _Node:
        for node in (one, other):
            if node.constant and node.value is None:
                raise self.error("nothing equals NULL: use IS NULL")
        if one.constant and one.boolean and other.constant and not other.boolean:
            raise self.error("a boolean does not equal what is none")
        return _equal(one, other)

    def _comparison(self) -> _Node:
        node = self._unary()
        links = 0
        while True:
            sign = next((each for each in _COMPARISONS if self._token == ("sign", each)), None)
            if sign is not None:
                self._advance()
                node = self._ordered(node, self._unary(), sign)
            elif self._takes("BETWEEN"):
                low, high = self._bounds()
                self._check_bounds(low, high)
                node = _and([self._ordered(node, low, ">="), self._ordered(node, high, "<=")])
            elif self._takes("NOT", "BETWEEN"):
                low, high = self._bounds()
                node = _or([self._ordered(node, low, "<"), self._ordered(node, high, ">")])
            elif self._takes("IN"):
                node = self._in(node, wanted=True)
            elif self._takes("NOT", "IN"):
                node = self._in(node, wanted=False)
            else:
                negated = self._takes("NOT")
                word = next((each for each in _TEXT_TESTS if self._takes(each)), None)
                if word is not None:
                    where, text = _TEXT_TESTS[word], self._string()
                    self._count_terms(1 + len(text) // TEXT_OF_TERM)
                    node = _condition(TextTest(node.part, node.name, text, where, not negated))
                elif negated:
                    raise self.error("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH is needed")
                else:
                    return node
            links += 1
            self._check_links(links)

    def _ordered(self, one: _Node, other: _Node, sign: str) -> _Node:
        for node in (one, other):
            if node.boolean or (node.constant and isinstance(node.value, str)):
                raise self.error(f"only numbers and properties can stand beside {sign}")
        return _condition(Compared(one.part, other.part, _COMPARISONS[sign]))

    def _bounds(self) -> tuple[_Node, _Node]:
        low = self._unary()
        self._needs("AND")
        high = self._unary()
        return low, high

    def _check_bounds(self, low: _Node, high: _Node) -> None:
        if not (low.constant and high.constant) or low.boolean or high.boolean:
            return
        if isinstance(low.value, str) or isinstance(high.value, str) or order(low.value, high.value) > 0:
            raise self.error("the bounds of BETWEEN are no numbers, or in the wrong order")

    def _in(self, node: _Node, *, wanted: bool) -> _Node:
        if node.name is None:
            raise self.error("only a property can be IN a list")
        self._needs("(")
        strings = [self._string()]
        while self._takes(","):
            strings.append(self._string())
        self._needs(")")
        one_of = frozenset(strings)
        return _condition(OneOf(node.part, one_of, wanted), one_of if wanted and node.name == TAGS else None)

    def _unary(self) -> _Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self.error(f"more than {MAX_DEPTH} levels")
        if self._takes("+"):
            node = self._unary()
        elif self._takes("-"):
            node = _Node(Negative(self._unary().part))
        elif self._takes("NOT"):
            node = _condition(Not(_boolean(self, self._unary()).part))
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
        self._count_terms(1)
        if kind == "string":
            return _constant(self._string())
        if kind in ("long", "float", "word") or text in ("TRUE", "FALSE", "NULL"):
            self._advance()
        if kind == "word":
            return _Node(Named(text), name=text)
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
        if len(text) > MAX_LONG_DIGITS or int(text) > LONG_MAX:
            raise self.error(f"{text[:SHOWN_CHARS]} is more than {LONG_MAX}")
        return int(text)

    def _checked_double(self, text: str) -> float:
        value = float(text)
        if value == 0 or math.isinf(value):
            raise self.error(f"{text[:SHOWN_CHARS]} is no double above zero that Java takes")
        return value
