"""What filters let a read leave out, without Spark's Java."""

from datetime import UTC, datetime

import pytest
from pyspark.sql import datasource as spark
from pyspark.sql.types import StringType, StructField, StructType

from perseid.client.model import MessageQueue
from perseid.spark import pushdown
from perseid.spark.source import PerseidBatchReader, PerseidDataSource


def test_offsets_are_bounded() -> None:
    taken = pushdown.of([spark.GreaterThan(("offset",), 10), spark.LessThanOrEqual(("queueOffset",), 20)])
    assert taken.offsets == (10, 20)
    assert pushdown.of([spark.In(("offset",), (7, 3, None))]).offsets == (3, 7)
    assert pushdown.of([spark.EqualTo(("OFFSET",), 5)]).offsets == (5, 5)


def test_queues_are_chosen() -> None:
    taken = pushdown.of(
        [spark.EqualTo(("topic",), "t"), spark.In(("partition",), (1, 2)), spark.EqualTo(("brokerName",), "a")]
    )
    assert [q for q in range(4) if taken.wants_queue(MessageQueue("t", "a", q))] == [1, 2]
    assert not taken.wants_queue(MessageQueue("t", "b", 1))


@pytest.mark.parametrize("zone", [UTC, None])
def test_times_are_bounded_a_little_wider_than_asked_for(zone: object) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678_900, tzinfo=zone)  # type: ignore[arg-type]
    ms = int(datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC).timestamp() * 1000)
    low, high = pushdown.of([spark.EqualTo(("timestamp",), at)]).times_ms
    assert low is not None and high is not None
    assert ms - 2 <= low <= ms < ms + 1 < high <= ms + 3
    assert pushdown.of([spark.LessThan(("storeTimestamp",), at)]).times_ms == (None, high)
    assert pushdown.of([spark.GreaterThanOrEqual(("timestamp",), at)]).times_ms == (low, None)


def test_tags_become_an_expression() -> None:
    assert pushdown.of([spark.In(("tag",), ("b", "a"))]).expression == "a || b"
    assert pushdown.of([spark.In(("tag",), ("b", "a")), spark.EqualTo(("tag",), "a")]).expression == "a"
    for odd in ("a||b", " a", "*", ""):
        assert pushdown.of([spark.EqualTo(("tag",), odd)]).expression is None
    assert pushdown.of([]).expression is None


def test_keys_are_compared() -> None:
    for value in ("k1 k2", b"k1 k2"):
        assert pushdown.of([spark.EqualTo(("keys",), value)]).keys == {"k1 k2"}


def test_what_is_not_known_is_left_to_spark() -> None:
    taken = pushdown.of([
        spark.Not(spark.EqualTo(("tag",), "a")), spark.IsNotNull(("offset",)), spark.EqualTo(("value",), b"x"),
        spark.GreaterThan(("tag",), "a"), spark.EqualTo(("properties", "a"), "b"), spark.EqualTo(("offset",), "x"),
        spark.StringStartsWith(("tag",), "a"), spark.EqualNullSafe(("tag",), None),
        spark.EqualTo(("timestamp",), "noon"),
    ])  # fmt: skip
    assert taken == pushdown.Pushed()


def test_a_reader_takes_filters_only_where_it_was_told_to() -> None:
    given = [spark.EqualTo(("tag",), "a")]

    def reader(**more: str) -> PerseidBatchReader:
        source = PerseidDataSource({"nameserver": "h:1", "subscribe": "t", **more})
        return source.reader(StructType([StructField("tag", StringType())]))

    pushing = reader(pushDown="true")
    assert list(pushing.pushFilters(given)) == given, "Spark looks at the rows again"
    assert pushing.pushed.expression == "a"
    base = spark.DataSourceReader.pushFilters
    assert type(reader()).pushFilters is base, "else Spark would push, or raise where it may not"
