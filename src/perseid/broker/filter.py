"""What a consumer wants of a queue: all, some tags, or what an SQL92 expression selects (broker.md §6.5).

Tags (`a || b`) are compared by Java's hash, in the consume queue alone; different tags may share one, so the client
looks at the tag itself. An expression looks at the properties of each record; of those alone whose tag may be one that
it asks for, if it asks for tags: this is known from the consume queue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

from perseid.base.errors import RequestRefused
from perseid.broker import sql92
from perseid.core.layout import EXTENDED_MAX
from perseid.wire import properties as props
from perseid.wire.codes import ResponseCode
from perseid.wire.hashing import tag_code
from perseid.wire.record import properties_of

TAG, SQL92 = "TAG", "SQL92"
ALL = "*"
MAX_CACHED = 4096


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
    """What is wanted of a queue."""

    codes: frozenset[int] | None = None
    """Of the tags; None: all."""
    expression: sql92.Expression | None = None
    """Of the properties; None: all."""

    @property
    def wants_tag(self) -> Callable[[int], bool] | None:
        """Asked of each unit of the consume queue."""
        codes = self.codes
        return None if codes is None else lambda code: code in codes or code <= EXTENDED_MAX

    @property
    def wants_record(self) -> Callable[[memoryview], bool] | None:
        """Asked of each record."""
        return None if self.expression is None else self._wants_record

    def _wants_record(self, record: memoryview) -> bool:
        assert self.expression is not None
        return self.expression.wants(partial(props.get, properties_of(record)))


def of(kind: str | None, expression: str | None, *, sql: bool) -> Filter:
    """The filter of a subscription. RequestRefused: 1 where its kind is not served (`sql`: whether SQL92 is), 23 where
    tags can't be read; SqlError where an expression can't."""
    if is_tag_type(kind):
        return Filter(tag_codes(expression))
    if kind != SQL92 or not sql:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR, f"The broker does not support consumer to filter message by {kind}"
        )
    parsed = sql92.parse(expression or "")
    return Filter(None if parsed.tags is None else frozenset(map(tag_code, parsed.tags)), parsed)
