"""Which records a query's filters can want: read from what Spark hands to the source.

What is read here only leaves out what no filter lets pass; Spark applies all filters once more, so that a record is
never shown on the word of this module. Rows with `_corrupt` pass through it: what they hold is nothing to rely on.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from perseid.core.layout import LONG_MAX, LONG_MIN
from perseid.spark.log.rows import Chosen

MAX_TOPICS = 64
"""Names in a filter that are compared with each record's; more are left to Spark."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
Range = tuple[int, int]


def chosen(filters: Iterable[Filter]) -> Chosen:
    """The part to be read where all of these filters hold."""
    topics: frozenset[str] | None = None
    times = offsets = (LONG_MIN, LONG_MAX)
    only_corrupt = False
    for each in filters:
        column = getattr(each, "attribute", ())
        if column == ("topic",):
            named = _names(each)
            if named is not None:
                topics = named if topics is None else topics & named
        elif column == ("storeTimestamp",):
            times = _both(times, _range(each, _milliseconds))
        elif column == ("physicalOffset",):
            offsets = _both(offsets, _range(each, int))
        elif column == ("_corrupt",) and isinstance(each, IsNotNull):
            only_corrupt = True
    if topics is not None and len(topics) > MAX_TOPICS:
        topics = None
    return Chosen(topics, times, offsets, only_corrupt)


def _names(each: Filter) -> frozenset[str] | None:
    if isinstance(each, EqualTo | EqualNullSafe) and isinstance(each.value, str):
        return frozenset([each.value])
    if isinstance(each, In):
        return frozenset(value for value in each.value if isinstance(value, str))
    return None


def _range(each: Filter, number: Any) -> Range:
    """The values between which the filter's column is; all when it does not say. A bound that is not among them is
    included: Spark leaves it out."""
    if isinstance(each, EqualTo | EqualNullSafe):
        return (number(each.value),) * 2 if each.value is not None else (LONG_MIN, LONG_MAX)
    if isinstance(each, GreaterThan | GreaterThanOrEqual):
        return number(each.value), LONG_MAX
    if isinstance(each, LessThan | LessThanOrEqual):
        return LONG_MIN, number(each.value)
    if isinstance(each, In):
        values = [number(value) for value in each.value if value is not None]
        return (min(values), max(values)) if values else (LONG_MAX, LONG_MIN)
    return LONG_MIN, LONG_MAX


def _milliseconds(value: datetime) -> int:
    """Rounded down: a time of a record that is equal or later is not less, and one that is earlier is not more."""
    return (value.astimezone(UTC) - _EPOCH) // _MS


def _both(one: Range, other: Range) -> Range:
    return max(one[0], other[0]), min(one[1], other[1])
