"""The options of the source: Kafka's names, and those of the old rocketmq-spark as aliases.

    nameserver            host:port of a name server, several with `;`        (aliases namesrv, kafka.bootstrap.servers)
    subscribe             topics with `,`                                     (alias topic)
    subscribePattern      a regular expression that topics match whole
    assign                {"topic": {"broker-a": [0, 1]}}
    tags                  `a || b`                                            (alias subexpression)
    startingOffsets       earliest | latest | {"topic": {"broker-a:0": 5}}; -2 earliest, -1 latest
    endingOffsets         the same, for batch reads
    startingTimestamp, endingTimestamp   milliseconds, for all queues
    maxOffsetsPerTrigger  offsets that one micro-batch covers at most
    minPartitions         at least so many Spark partitions
    failOnDataLoss        true (default): fail when offsets are gone; false: go on after them
    includeHeaders        the properties as Kafka's headers too
    includeBody           false: no body is decoded or handed to Spark
    groupIdPrefix, group  the consumer group that brokers see
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from perseid.base.errors import ConfigError

EARLIEST, LATEST = -2, -1

ALIASES = {
    "namesrv": "nameserver",
    "kafka.bootstrap.servers": "nameserver",
    "topic": "subscribe",
    "subexpression": "tags",
    "startingoffset": "startingoffsets",
    "endingoffset": "endingoffsets",
    "groupidprefix": "group",
}
NAMES = (
    "nameserver", "subscribe", "subscribePattern", "assign", "tags", "startingOffsets", "endingOffsets",
    "startingTimestamp", "endingTimestamp", "maxOffsetsPerTrigger", "minPartitions", "failOnDataLoss",
    "includeHeaders", "includeBody", "group", "pullTimeoutMs", "pullBatchSize", "path",
)  # fmt: skip
KNOWN = {name.lower() for name in NAMES}

QueueOffsets = Mapping[str, Mapping[str, int]]
"""Topic → "brokerName:queueId" → offset."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a read was told, checked. ConfigError names the option that can't be."""

    nameserver: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assign: Mapping[str, Mapping[str, tuple[int, ...]]] | None = None
    tags: str = "*"
    starting: int | QueueOffsets = EARLIEST
    ending: int | QueueOffsets = LATEST
    starting_timestamp_ms: int | None = None
    ending_timestamp_ms: int | None = None
    max_offsets_per_trigger: int | None = None
    min_partitions: int = 0
    fail_on_data_loss: bool = True
    include_headers: bool = False
    include_body: bool = True
    group: str = "PERSEID_SPARK"


def parse(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Check the options of a read. A stream starts at the latest offset, a batch at the earliest, as Kafka's do."""
    given: dict[str, str] = {}
    for name, value in options.items():
        key = ALIASES.get(name.lower(), name.lower())
        if key not in KNOWN:
            raise unknown("perseid", name, [*NAMES, *ALIASES])
        given[key] = value
    if "nameserver" not in given:
        raise ConfigError('the perseid source needs a name server: .option("nameserver", "host:9876")')
    chosen = [name for name in ("subscribe", "subscribepattern", "assign") if given.get(name)]
    if len(chosen) != 1:
        raise ConfigError('say which topics to read with one of .option("subscribe", …), "subscribePattern", "assign"')
    topics = tuple(topic.strip() for topic in given.get("subscribe", "").split(",") if topic.strip())
    return SourceOptions(
        nameserver=given["nameserver"],
        topics=topics,
        pattern=_pattern(given.get("subscribepattern")),
        assign=_assign(given.get("assign")),
        tags=given.get("tags", "*"),
        starting=_offsets("startingOffsets", given.get("startingoffsets"), LATEST if streaming else EARLIEST),
        ending=_offsets("endingOffsets", given.get("endingoffsets"), LATEST),
        starting_timestamp_ms=number("startingTimestamp", given.get("startingtimestamp")),
        ending_timestamp_ms=number("endingTimestamp", given.get("endingtimestamp")),
        max_offsets_per_trigger=number("maxOffsetsPerTrigger", given.get("maxoffsetspertrigger"), least=1),
        min_partitions=number("minPartitions", given.get("minpartitions"), least=1) or 0,
        fail_on_data_loss=switch("failOnDataLoss", given.get("failondataloss"), True),
        include_headers=switch("includeHeaders", given.get("includeheaders"), False),
        include_body=switch("includeBody", given.get("includebody"), True),
        group=given.get("group", "PERSEID_SPARK"),
    )


def _pattern(text: str | None) -> str | None:
    if text is not None:
        try:
            re.compile(text)
        except re.error as error:
            raise ConfigError(f"subscribePattern {text!r} is no regular expression: {error}") from None
    return text


def _json(name: str, text: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{name}: {text!r} is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{name}: {text!r} is no JSON object")
    return value


def _assign(text: str | None) -> Mapping[str, Mapping[str, tuple[int, ...]]] | None:
    if text is None:
        return None
    result: dict[str, dict[str, tuple[int, ...]]] = {}
    for topic, brokers in _json("assign", text).items():
        if not isinstance(brokers, dict):
            raise ConfigError(f'assign: {topic!r} needs {{"brokerName": [queueId, …]}}, not {brokers!r}')
        result[topic] = {}
        for broker, queues in brokers.items():
            if not isinstance(queues, list) or not all(isinstance(queue, int) and queue >= 0 for queue in queues):
                raise ConfigError(f"assign: queues of {topic}/{broker} are a list of numbers from 0 on, not {queues!r}")
            result[topic][broker] = tuple(queues)
    return result


def _offsets(name: str, text: str | None, default: int) -> int | QueueOffsets:
    if text is None:
        return default
    if text.lower() in ("earliest", "latest"):
        return EARLIEST if text.lower() == "earliest" else LATEST
    result: dict[str, dict[str, int]] = {}
    for topic, queues in _json(name, text).items():
        if not isinstance(queues, dict):
            raise ConfigError(f'{name}: {topic!r} needs {{"brokerName:queueId": offset}}, not {queues!r}')
        for queue, offset in queues.items():
            broker, colon, queue_id = queue.rpartition(":")
            if not colon or not broker or not queue_id.isdecimal() or not isinstance(offset, int) or offset < EARLIEST:
                raise ConfigError(f'{name}: {queue!r}: {offset!r} is not "brokerName:queueId": offset (or -2, -1)')
        result[topic] = dict(queues)
    return result


def unknown(source: str, name: str, known: Sequence[str]) -> ConfigError:
    """The error for an option that a source does not have: it names the nearest one, and all."""
    by_key = {each.lower(): each for each in known}
    near = [by_key[key] for key in get_close_matches(name.lower(), by_key, n=1)]
    hint = f"; did you mean {near[0]!r}?" if near else ";"
    return ConfigError(f"option {name!r} is unknown to the {source} source{hint} known are {', '.join(sorted(known))}")


def number(name: str, text: str | None, *, least: int = 0) -> int | None:
    """A number that an option says; ConfigError when it says none from `least` on."""
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) < least:
        raise ConfigError(f"{name}={text!r} is not a number from {least} on")
    return int(text)


def switch(name: str, text: str | None, default: bool) -> bool:
    """True or false, as an option says; ConfigError when it says neither."""
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"{name}={text!r} is neither true nor false")
    return text.lower() == "true"
