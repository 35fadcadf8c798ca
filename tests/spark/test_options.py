"""The options of the source, without Spark."""

import pytest

from perseid.base.errors import ConfigError
from perseid.client import Sql
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


def test_times_by_name_durations_and_filters() -> None:
    given = {"nameserver": "h:1", "subscribe": "a", "startingOffsetsByTimestamp": '{"a": {"b-0:3": 1700000000000}}'}
    options = parse({**given, "endingTimestamp": "1700000000001", "maxTriggerDelay": "90s"}, streaming=False)
    assert options.starting_timestamp_ms == {"a": {"b-0:3": 1_700_000_000_000}}
    assert (options.ending_timestamp_ms, options.max_trigger_delay_ms) == (1_700_000_000_001, 90_000)
    assert parse({**given, "sql": "price > 5"}, streaming=True).expression == Sql("price > 5")
    filters: list[dict[str, str]] = [{}, {"tags": "*"}, {"tags": "a"}, {"sql": "x"}]
    assert [parse({**given, **one}, streaming=True).whole for one in filters] == [True, True, False, False]


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
        (
            {"maxOffsetPerTrigger": "5"},
            "'maxOffsetPerTrigger' is unknown to the perseid source: did you mean 'maxOffsets",
        ),
        ({"startngoffsets": "earliest"}, "did you mean 'startingOffsets'"),
        ({"zzz": "1"}, "known are .*subscribePattern"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger=9"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay='soon'"),
        ({"maxTriggerDelay": "5 weeks"}, "maxTriggerDelay"),
        ({"startingOffsetsByTimestamp": '{"a": {"b:0": -5}}'}, "startingOffsetsByTimestamp"),
        ({"startingOffsetsByTimestamp": '{"a": {"b:0": true}}'}, "milliseconds"),
        ({"endingOffsetsByTimestamp": "yesterday"}, "endingOffsetsByTimestamp: 'yesterday' is no JSON"),
        ({"startingTimestamp": "5", "startingOffsets": "earliest"}, "give one of startingOffsets, startingTimestamp"),
        ({"sql": "a > 1", "tags": "x"}, "one filter"),
        ({"dedupe": "1"}, "dedupe='1'"),
        ({"topic": "b"}, "another name of it"),
        ({"subscribe": None, "subscribePattern": "("}, "subscribePattern"),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(changed: dict[str, str | None], named: str) -> None:
    given: dict[str, str | None] = {"nameserver": "h:1", "subscribe": "a", **changed}
    with pytest.raises(ConfigError, match=named):
        parse({name: value for name, value in given.items() if value is not None}, streaming=False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("endingOffsets", "latest"),
        ("endingOffset", "latest"),
        ("endingTimestamp", "1700000000000"),
        ("endingOffsetsByTimestamp", '{"a": {"b:0": 1700000000000}}'),
    ],
)
def test_item_10_a_stream_with_an_end_is_refused(name: str, value: str) -> None:
    given = {"nameserver": "h:1", "subscribe": "a", name: value}
    told = name if name != "endingOffset" else "endingOffsets"
    with pytest.raises(ConfigError, match=rf"^{told}: a stream has no end: .*spark.read.*availableNow=True") as refused:
        parse(given, streaming=True)
    assert "\n" not in str(refused.value)
    parse(given, streaming=False)
