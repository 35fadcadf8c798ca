"""What a consumer wants of a queue: all, some tags, or what an SQL92 expression selects (broker.md §6.5).

Tags (`a || b`) are compared by Java's hash, in the consume queue alone; different tags may share one, so the client
looks at the tag itself. An expression looks at the properties of each record; of those alone whose tag may be one that
it asks for, if it asks for tags: this is known from the consume queue.

What expressions may cost is bounded, for one request and for a turn (`Work`): a read ends where that is used up, and
its reader goes on from there with the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

from perseid.base.errors import RequestRefused
from perseid.broker.consume import sql92
from perseid.core.conditions import compiled
from perseid.core.layout import EXTENDED_MAX
from perseid.wire import properties as props
from perseid.wire.codes import ResponseCode
from perseid.wire.hashing import tag_code
from perseid.wire.record import properties_of

TAG, SQL92 = "TAG", "SQL92"
ALL = "*"
MAX_CACHED = 4096

TURN_WORK = 100_000_000 if compiled else 6_000_000
"""Of one turn of the broker: about so many nanoseconds with the compiled core, each some 16 of them without it."""
READ_WORK = TURN_WORK // 5
"""Of one request. A message is looked at in any case if it is the first, and the turn has any work left."""
TERM_WORK = 2_000
"""What a term costs besides the bytes in which it looks where properties are asked for by Python."""
PARSE_WORK = 2_000
"""For each character of an expression that is not known yet."""


class Work:
    """What expressions may still cost in this turn: terms times the bytes in which they look."""

    def __init__(self) -> None:
        self.left = TURN_WORK

    def begin(self) -> None:
        """Another turn."""
        self.left = TURN_WORK

    def floor(self) -> int:
        """Where what is left must not fall below for the sake of one request."""
        return max(0, self.left - READ_WORK)

    def parse(self, text: str) -> sql92.Expression:
        """An expression, read anew if it is not known. SqlError when it can't be; RequestRefused when this turn has no
        work left for it."""
        found = sql92.known(text)
        if found is not None:
            return found
        if self.left <= 0:
            raise RequestRefused(ResponseCode.SYSTEM_BUSY, "too many expressions at this moment: try again")
        self.left -= PARSE_WORK * min(len(text), sql92.MAX_CHARS)
        return sql92.parse(text)


def is_tag_type(expression_type: str | None) -> bool:
    """Whether an expression type means tags: it does when none is named."""
    return not expression_type or expression_type == TAG


def tags(expression: str) -> list[str]:
    """The tags that an expression names."""
    return [tag for piece in expression.split("||") if (tag := piece.strip())]


@lru_cache(maxsize=MAX_CACHED)
def tag_codes(expression: str | None) -> frozenset[int] | None:
    """The codes of the tags that an expression names; None: all messages. Refused when it names none."""
    if not expression or expression == ALL:
        return None
    codes = frozenset(map(tag_code, tags(expression)))
    if not codes:
        raise RequestRefused(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {expression!r}"
        )
    return codes


@dataclass(frozen=True, slots=True)
class Filter:
    """Which messages of a queue a reader gets."""

    codes: frozenset[int] | None = None
    """Of the tags; None: all."""
    expression: sql92.Expression | None = None
    """Of the properties; None: all."""

    @property
    def wants_tag(self) -> Callable[[int], bool] | None:
        """Asked of each unit of the consume queue."""
        codes = self.codes
        return None if codes is None else lambda code: code in codes or code <= EXTENDED_MAX

    def wants_record(self, work: Work, floor: int) -> Callable[[memoryview], bool | None] | None:
        """Asked of each record. It says None, and asks nothing, when no more work is left than `floor`."""
        return None if self.expression is None else partial(self._wants_record, work, floor)

    def _wants_record(self, work: Work, floor: int, record: memoryview) -> bool | None:
        if work.left <= floor:
            return None
        assert self.expression is not None
        raw = properties_of(record)
        work.left -= self.expression.terms * (TERM_WORK + len(raw))
        return self.expression.wants(partial(props.get, raw))


def of(kind: str | None, expression: str | None, work: Work, *, sql: bool) -> Filter:
    """The filter of a subscription. RequestRefused: 1 where its kind is not served (`sql`: whether SQL92 is), 23 where
    tags can't be read; SqlError where an expression can't."""
    if is_tag_type(kind):
        return Filter(tag_codes(expression))
    if kind != SQL92 or not sql:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR, f"The broker does not support consumer to filter message by {kind}"
        )
    parsed = work.parse(expression or "")
    return Filter(None if parsed.tags is None else frozenset(map(tag_code, parsed.tags)), parsed)
