"""The options of the source: Kafka's names, and those of the old rocketmq-spark as aliases.

Nothing here asks a broker: what can be told wrong by looking at it is refused here, by the name people wrote.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from perseid.base.errors import ConfigError
from perseid.client.subscription import ALL, Sql
from perseid.client.tls import ClientTls
from perseid.spark import keys, tls
from perseid.spark.keys import OF_THE_ENVIRONMENT, Keys, Link
from perseid.spark.option import SparkOption, aliases, names

EARLIEST, LATEST = -2, -1

MAX_TRIGGER_DELAY_MS = 15 * 60_000
"""Kafka's: how long minOffsetsPerTrigger may hold a batch back."""
DEADLINE_MS = 120_000
"""How long brokers that don't answer are borne."""
NAME_SERVER = SparkOption(
    "nameserver",
    "The name servers.",
    "needed",
    "host:port;host:port",
    ("namesrv", "kafka.bootstrap.servers"),
)
"""Of the sink too."""
OPTIONS = (
    NAME_SERVER,
    SparkOption(
        "subscribe",
        "The topics to read, with commas between them. One of `subscribe`, `subscribePattern` and `assign` is needed.",
        aliases=("topic",),
    ),
    SparkOption(
        "subscribePattern",
        "A regular expression for whole names of topics. Retry topics and dead letters match only if it contains `%`;"
        " system topics never do. A stream also reads topics that are created later.",
    ),
    SparkOption(
        "assign",
        "The queues to read.",
        takes='JSON, {"topic": {"brokerName": [queueId]}}',
    ),
    SparkOption(
        "tags",
        "Only messages with these tags; brokers filter.",
        "all",
        "a || b",
        aliases=("subExpression",),
    ),
    SparkOption(
        "sql",
        "Only messages whose properties match an SQL92 expression; brokers filter, with `enablePropertyFilter=true`. "
        "Not together with `tags`: SQL knows the tag as `TAGS`.",
    ),
    SparkOption(
        "startingOffsets",
        "Where a read begins. For a stream, only at its first start: later starts continue at the checkpoint.",
        "batch: `earliest`, stream: `latest`",
        'earliest, latest, or JSON, {"topic": {"brokerName:queueId": offset}}; -2 is earliest, -1 latest',
        ("startingOffset",),
    ),
    SparkOption(
        "endingOffsets",
        "Where a batch ends. A stream has no end; with `trigger(availableNow=True)` it ends with the messages that "
        "are there when it starts.",
        "`latest`",
        "as `startingOffsets`",
        ("endingOffset",),
    ),
    SparkOption(
        "startingTimestamp",
        "Begin with the first message that was stored at this time or later. One of the three `starting…` options may "
        "be given.",
        takes="ms since 1970",
    ),
    SparkOption(
        "endingTimestamp",
        "End before the first message that was stored at this time or later; a batch only.",
        takes="ms since 1970",
    ),
    SparkOption(
        "startingOffsetsByTimestamp",
        "The same as `startingTimestamp` for each queue; queues that are not named are read from their beginning.",
        takes='JSON, {"topic": {"brokerName:queueId": ms}}',
    ),
    SparkOption(
        "endingOffsetsByTimestamp",
        "The same as `endingTimestamp` for each queue; queues that are not named are read to their end.",
        takes='JSON, {"topic": {"brokerName:queueId": ms}}',
    ),
    SparkOption(
        "maxOffsetsPerTrigger",
        "The most offsets of one micro-batch, divided among the queues by how far each is behind. Set it if a stream "
        "has much to catch up.",
        "all",
        "at least 1",
    ),
    SparkOption(
        "minOffsetsPerTrigger",
        "A micro-batch waits until there are this many offsets, but no longer than `maxTriggerDelay`.",
        "0",
        "at most `maxOffsetsPerTrigger`",
    ),
    SparkOption(
        "maxTriggerDelay",
        "How long `minOffsetsPerTrigger` may delay a micro-batch.",
        "15m",
        "a duration: 15m, 30s, 500ms; a bare number is ms",
    ),
    SparkOption(
        "minPartitions",
        "Queues are split so that there are at least this many Spark partitions.",
        "one a queue",
        "at least 1",
    ),
    SparkOption(
        "failOnDataLoss",
        "Fail if offsets to read are missing: deleted, out of range, or of a topic that was deleted or created again."
        " `false` continues after them, with a warning.",
        "true",
        "true, false",
    ),
    SparkOption(
        "includeHeaders",
        "A column `headers` with the properties, as Kafka's source has it.",
        "false",
        "true, false",
    ),
    SparkOption(
        "includeBody",
        "`false` leaves out the column `value`: bodies are not passed to Spark.",
        "true",
        "true, false",
    ),
    SparkOption(
        "pushDown",
        "Filters of a batch on offset, time, queue, tag and key decide what is pulled. Only for a DataFrame that a "
        "query uses once: Spark 4.3 keeps what was pushed down with the frame.",
        "false",
        "true, false",
    ),
    SparkOption(
        "dedupe",
        "Drop messages that a stamping writer (the sink) sent twice.",
        "true",
        "true, false",
    ),
    SparkOption(
        "commitOffsets",
        "Commit each micro-batch's offsets for `group`, so that tools show its lag. They are a batch late, may be "
        "missing, and are never read.",
        "false",
        "true, false",
    ),
    SparkOption(
        "deadlineMs",
        "How long a task waits for brokers that are down or changing masters, before it fails.",
        str(DEADLINE_MS),
        "ms",
    ),
    SparkOption(
        "group",
        "The consumer group that brokers see.",
        "PERSEID_SPARK",
        aliases=("groupIdPrefix",),
    ),
)
"""What the source `perseid` takes, besides the options of keys and TLS. The aliases are those of the old
rocketmq-spark, and Kafka's."""
NAMES = names((*OPTIONS, *keys.OPTIONS, *tls.OPTIONS))
ALIASES = aliases(OPTIONS)
STARTING = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
ENDING = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
"""Where a read starts and ends: one of each, and no end for a stream."""
IGNORED = {"path", "pulltimeoutms", "pullbatchsize"}
"""Spark's own, and those of the old connector that have no meaning here."""

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d+)\s*([a-z]*)").fullmatch

QueueOffsets = Mapping[str, Mapping[str, int]]
"""Topic → "brokerName:queueId" → offset, or milliseconds."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a read, checked. ConfigError names the option that can't be."""

    nameserver: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assign: Mapping[str, Mapping[str, tuple[int, ...]]] | None = None
    tags: str = ALL
    sql: str | None = None
    starting: int | QueueOffsets = EARLIEST
    ending: int | QueueOffsets = LATEST
    starting_timestamp_ms: int | QueueOffsets | None = None
    ending_timestamp_ms: int | QueueOffsets | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int = 0
    max_trigger_delay_ms: int = MAX_TRIGGER_DELAY_MS
    min_partitions: int = 0
    fail_on_data_loss: bool = True
    include_headers: bool = False
    include_body: bool = True
    push_down: bool = False
    dedupe: bool = True
    commit_offsets: bool = False
    deadline_ms: int = DEADLINE_MS
    group: str = "PERSEID_SPARK"
    tls: ClientTls | None = None
    keys: Keys = OF_THE_ENVIRONMENT

    def link(self) -> Link:
        """How clients reach the cluster."""
        return self.keys.link(self.tls)

    @property
    def expression(self) -> str | Sql:
        """The expression that the brokers filter by."""
        return self.tags if self.sql is None else Sql(self.sql)

    @property
    def whole(self) -> bool:
        """Every message is read: a missing offset is a lost one."""
        return self.sql is None and self.tags.strip() in ("", ALL)


def parse(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Check the options of a read. A stream starts at the latest offset, a batch at the earliest, as Kafka's do; a
    stream that is given an end is refused."""
    given = normal(options, NAMES, ALIASES, "the perseid source")
    if not given.get("nameserver"):
        raise ConfigError('the perseid source needs a name server: .option("nameserver", "host:9876")')
    chosen = [name for name in ("subscribe", "subscribepattern", "assign") if given.get(name)]
    if len(chosen) != 1:
        raise ConfigError('say which topics to read with one of .option("subscribe", …), "subscribePattern", "assign"')
    if given.get("sql") and given.get("tags", ALL).strip() not in ("", ALL):
        raise ConfigError("tags and sql: give one filter; SQL knows the tag by the name TAGS")
    _one_of(given, STARTING)
    _one_of(given, ENDING)
    if streaming and (told := [name for name in ENDING if given.get(name.lower()) is not None]):
        raise ConfigError(
            f"{told[0]}: a stream has no end: read a batch (spark.read), or start the stream with"
            " trigger(availableNow=True), which ends with what is there when it starts"
        )
    topics = tuple(topic.strip() for topic in given.get("subscribe", "").split(",") if topic.strip())
    most = number("maxOffsetsPerTrigger", given.get("maxoffsetspertrigger"), least=1)
    least = number("minOffsetsPerTrigger", given.get("minoffsetspertrigger")) or 0
    if most is not None and least > most:
        raise ConfigError(f"minOffsetsPerTrigger={least} is more than maxOffsetsPerTrigger={most}")
    return SourceOptions(
        nameserver=given["nameserver"],
        topics=topics,
        pattern=_pattern(given.get("subscribepattern")),
        assign=_assign(given.get("assign")),
        tags=given.get("tags", ALL),
        sql=given.get("sql") or None,
        starting=_offsets("startingOffsets", given.get("startingoffsets"), LATEST if streaming else EARLIEST),
        ending=_offsets("endingOffsets", given.get("endingoffsets"), LATEST),
        starting_timestamp_ms=_times("starting", given),
        ending_timestamp_ms=_times("ending", given),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=duration("maxTriggerDelay", given.get("maxtriggerdelay"), MAX_TRIGGER_DELAY_MS),
        min_partitions=number("minPartitions", given.get("minpartitions"), least=1) or 0,
        fail_on_data_loss=switch("failOnDataLoss", given.get("failondataloss"), True),
        include_headers=switch("includeHeaders", given.get("includeheaders"), False),
        include_body=switch("includeBody", given.get("includebody"), True),
        push_down=switch("pushDown", given.get("pushdown"), False),
        dedupe=switch("dedupe", given.get("dedupe"), True),
        commit_offsets=switch("commitOffsets", given.get("commitoffsets"), False),
        deadline_ms=number("deadlineMs", given.get("deadlinems")) or DEADLINE_MS,
        group=given.get("group", "PERSEID_SPARK"),
        tls=tls.parse(given),
        keys=keys.parse(given),
    )


# ---- for the options of the sink and of store folders too ----


def normal(
    options: Mapping[str, str],
    names: Collection[str],
    aliases: Mapping[str, str],
    who: str,
    *,
    ignored: Collection[str] = IGNORED,
) -> dict[str, str]:
    """The options by their lower-case names, aliases put right; ConfigError for an unknown one."""
    known = {name.lower() for name in names}
    given: dict[str, str] = {}
    for name, value in options.items():
        lower = name.lower()
        if lower in ignored:
            continue
        if lower not in known:
            raise ConfigError(f"option {name!r} is unknown to {who}{nearest(name, names)}")
        key = aliases.get(lower, lower)
        if given.setdefault(key, value) != value:
            if key == keys.SECRET.lower():
                raise ConfigError(f"option {name!r} and another name of it say different things: give one")
            raise ConfigError(f"option {name!r} says {value!r}, another name of it says {given[key]!r}: give one")
    return given


def nearest(name: str, names: Iterable[str], *, most: int = 60) -> str:
    """`: did you mean 'x'? known are …`, for the end of an error about a name."""
    spelled = {known.lower(): known for known in sorted(names)}
    close = difflib.get_close_matches(name.lower(), spelled, n=1)
    hint = f": did you mean {spelled[close[0]]!r}?" if close else ":"
    listed = list(spelled.values())
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return f"{hint} known are {', '.join(listed[:most]) or 'none'}{more}"


def number(name: str, text: str | None, *, least: int = 0) -> int | None:
    """A number from `least` on; None when nothing was given."""
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) < least:
        raise ConfigError(f"{name}={text!r} is not a number from {least} on")
    return int(text)


def switch(name: str, text: str | None, default: bool) -> bool:
    """true or false."""
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"{name}={text!r} is neither true nor false")
    return text.lower() == "true"


def duration(name: str, text: str | None, default_ms: int) -> int:
    """Milliseconds of `15m`, `30s`, `500ms`; a bare number is milliseconds."""
    if text is None:
        return default_ms
    found = _DURATION(text.strip().lower())
    unit = found.group(2) if found else ""
    if found is None or (unit and unit not in _UNITS_MS):
        raise ConfigError(f"{name}={text!r} is no duration: write 15m, 30s or 500ms")
    return int(found.group(1)) * _UNITS_MS.get(unit, 1)


def json_object(name: str, text: str) -> dict[str, object]:
    """A JSON object."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{name}: {text!r} is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{name}: {text!r} is no JSON object")
    return value


# ---- inside ----


def _one_of(given: Mapping[str, str], names: Sequence[str]) -> None:
    spelled = [name for name in names if given.get(name.lower()) is not None]
    if len(spelled) > 1:
        raise ConfigError(f"give one of {', '.join(spelled)}")


def _pattern(text: str | None) -> str | None:
    if text is not None:
        try:
            re.compile(text)
        except re.error as error:
            raise ConfigError(f"subscribePattern {text!r} is no regular expression: {error}") from None
    return text


def _assign(text: str | None) -> Mapping[str, Mapping[str, tuple[int, ...]]] | None:
    if text is None:
        return None
    result: dict[str, dict[str, tuple[int, ...]]] = {}
    for topic, brokers in json_object("assign", text).items():
        if not isinstance(brokers, dict):
            raise ConfigError(f'assign: {topic!r} needs {{"brokerName": [queueId, …]}}, not {brokers!r}')
        result[topic] = {}
        for broker, queues in brokers.items():
            if not isinstance(queues, list) or not all(_whole(queue, 0) for queue in queues):
                raise ConfigError(f"assign: queues of {topic}/{broker} are a list of numbers from 0 on, not {queues!r}")
            result[topic][broker] = tuple(queues)
    return result


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _offsets(name: str, text: str | None, default: int) -> int | QueueOffsets:
    if text is None:
        return default
    if text.lower() in ("earliest", "latest"):
        return EARLIEST if text.lower() == "earliest" else LATEST
    return _by_queue(name, text, "offset", "(or -2, -1)", EARLIEST)


def _times(side: str, given: Mapping[str, str]) -> int | QueueOffsets | None:
    name = f"{side}OffsetsByTimestamp"
    text = given.get(name.lower())
    if text is not None:
        return _by_queue(name, text, "milliseconds", "(since 1970)", 0)
    return number(f"{side}Timestamp", given.get(f"{side}timestamp"))


def _by_queue(name: str, text: str, what: str, hint: str, least: int) -> QueueOffsets:
    result: dict[str, dict[str, int]] = {}
    for topic, queues in json_object(name, text).items():
        if not isinstance(queues, dict):
            raise ConfigError(f'{name}: {topic!r} needs {{"brokerName:queueId": {what}}}, not {queues!r}')
        for queue, value in queues.items():
            broker, colon, queue_id = queue.rpartition(":")
            if not colon or not broker or not queue_id.isdecimal() or not _whole(value, least):
                raise ConfigError(f'{name}: {queue!r}: {value!r} is not "brokerName:queueId": {what} {hint}')
        result[topic] = dict(queues)
    return result
