"""The options of the source, without Spark."""

import pytest

from perseid.base.errors import ConfigError
from perseid.spark.options import EARLIEST, LATEST, parse


def test_kafkas_names_and_the_old_connectors_are_aliases() -> None:
    kafka = parse({"kafka.bootstrap.servers": "h:1", "subscribe": "a, b"}, streaming=False)
    old = parse({"nameserver": "h:1", "topic": "a,b"}, streaming=False)
    assert kafka == old
    assert kafka.topics == ("a", "b")


def test_a_batch_starts_at_the_earliest_offset_and_a_stream_at_the_latest() -> None:
    given = {"nameserver": "h:1", "subscribe": "a"}
    assert parse(given, streaming=False).starting == EARLIEST
    assert parse(given, streaming=True).starting == LATEST


def test_offsets_by_name() -> None:
    options = parse({"nameserver": "h:1", "subscribe": "a", "startingOffsets": '{"a": {"b-0:3": 7}}'}, streaming=True)
    assert options.starting == {"a": {"b-0:3": 7}}


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"subscribe": None}, "subscribe"),
        ({"nameserver": None}, "nameserver"),
        ({"assign": '{"a": {"b": [0]}}'}, "subscribe"),
        ({"startingOffset": "sometime"}, "startingOffsets"),
        ({"startingOffsets": '{"a": 5}'}, "startingOffsets"),
        ({"startingOffsets": '{"a": {"b": 5}}'}, "startingOffsets"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss"),
        ({"maxOffsetPerTrigger": "5"}, "maxOffsetPerTrigger"),
        ({"subscribe": None, "subscribePattern": "("}, "subscribePattern"),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(changed: dict[str, str | None], named: str) -> None:
    given: dict[str, str | None] = {"nameserver": "h:1", "subscribe": "a", **changed}
    with pytest.raises(ConfigError, match=named):
        parse({name: value for name, value in given.items() if value is not None}, streaming=False)
