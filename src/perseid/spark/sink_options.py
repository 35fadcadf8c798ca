"""The options and the columns of the sink, checked before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from perseid.base.errors import ConfigError, PerseidError
from perseid.client.model import MAX_BODY_BYTES, check_topic
from perseid.client.stamps import MAX_NUMBER, MAX_WRITER_CHARS
from perseid.client.tls import ClientTls
from perseid.spark import keys, tls
from perseid.spark.keys import OF_THE_ENVIRONMENT, Keys, Link
from perseid.spark.option import SparkOption, aliases, names
from perseid.spark.options import DEADLINE_MS, NAME_SERVER, nearest, normal, number, switch

ROUND_ROBIN, BY_KEY, BY_COLUMN = "roundRobin", "key", "column"
PARTITIONERS = (ROUND_ROBIN, BY_KEY, BY_COLUMN)

BATCH_MESSAGES = 256
BATCH_BYTES = 512 * 1024
"""What is sent as one."""
TIMEOUT_MS = 3000
GROUP = "PERSEID_SPARK_SINK"

OPTIONS = (
    NAME_SERVER,
    SparkOption(
        "topic",
        "The topic of all rows.",
        "the column `topic`",
    ),
    SparkOption(
        "partitioner",
        "How the queue of a row without an ordering key is chosen: in turn, by its first key, or by a column. Rows "
        "with one key or value stay in order.",
        ROUND_ROBIN,
        ", ".join(PARTITIONERS),
    ),
    SparkOption(
        "partitionColumn",
        "The column of `partitioner=column`. It need not be one that the sink knows.",
    ),
    SparkOption(
        "stamps",
        "Messages have a stamp, with which readers drop messages that were sent twice (Perseid's source; its "
        "consumers with `dedupe=True`): exactly once.",
        "true",
        "true, false",
    ),
    SparkOption(
        "sequenceBy",
        "Columns, with commas between them, by which a task's rows are sorted before they are sent. Needed for exactly "
        "once after a shuffle; they must tell the rows of a batch apart.",
        "as they come",
    ),
    SparkOption(
        "queryId",
        "The writer's name in the stamps: a batch that runs again with the same name and `batchId` is a repeat.",
        "the streaming query's; a new one for each batch write",
        f"1 to {MAX_WRITER_CHARS} letters, digits, _ and -",
    ),
    SparkOption(
        "batchId",
        "The number of the writer's batch; with `foreachBatch`, pass its batch id. Needs `queryId`.",
        takes=f"0 to {MAX_NUMBER}",
    ),
    SparkOption(
        "batchMessages",
        "The most messages of one batch.",
        str(BATCH_MESSAGES),
        "at least 1",
    ),
    SparkOption(
        "batchBytes",
        "The most bytes of bodies in one batch.",
        str(BATCH_BYTES),
        f"1 to {MAX_BODY_BYTES}",
    ),
    SparkOption(
        "timeoutMs",
        "How long one attempt to send may take.",
        str(TIMEOUT_MS),
        "ms",
    ),
    SparkOption(
        "deadlineMs",
        "How long one batch is retried, before the task fails (and Spark runs it again).",
        str(DEADLINE_MS),
        "ms",
    ),
    SparkOption(
        "group",
        "The producer group that brokers see, and the beginning of the groups of a query.",
        GROUP,
        aliases=("producerGroup",),
    ),
    SparkOption(
        "checkpointLocation",
        "For a stream: Spark's folder for the offsets that it has reached.",
        "needed for a stream",
    ),
)
"""What the sink `perseid` takes, besides the options of keys and TLS."""
NAMES = names((*OPTIONS, *keys.OPTIONS, *tls.OPTIONS))
ALIASES = aliases(OPTIONS)

TEXTS = ("string", "binary")
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "topic": ("string",),
    "key": (*TEXTS, "array<string>"),
    "tag": ("string",),
    "value": TEXTS,
    "properties": ("map<string,string>",),
    "delay": ("tinyint", "smallint", "int", "bigint"),
    "orderingKey": TEXTS,
}
"""Name → the types that it can have, as Spark writes them."""
COLUMN_ALIASES = {
    "keys": "key", "tags": "tag", "body": "value", "delaylevel": "delay", "ordering_key": "orderingKey",
    "shardingkey": "orderingKey",
}  # fmt: skip
PARTITION_TYPES = (*TEXTS, "tinyint", "smallint", "int", "bigint")


class SinkError(PerseidError):
    """Rows that can't be sent: it says which, and why."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a write, checked. ConfigError names the option that can't be."""

    nameserver: str
    topic: str | None = None
    partitioner: str = ROUND_ROBIN
    partition_column: str | None = None
    stamps: bool = True
    query_id: str | None = None
    batch_id: int | None = None
    sequence_by: tuple[str, ...] = ()
    batch_messages: int = BATCH_MESSAGES
    batch_bytes: int = BATCH_BYTES
    timeout_ms: int = TIMEOUT_MS
    deadline_ms: int = DEADLINE_MS
    group: str = GROUP
    tls: ClientTls | None = None
    keys: Keys = OF_THE_ENVIRONMENT

    def link(self) -> Link:
        """How clients reach the cluster."""
        return self.keys.link(self.tls)


def parse(options: Mapping[str, str]) -> SinkOptions:
    """Check the options of a write."""
    given = normal(options, NAMES, ALIASES, "the perseid sink")
    if not given.get("nameserver"):
        raise ConfigError('the perseid sink needs a name server: .option("nameserver", "host:9876")')
    topic = given.get("topic")
    if topic is not None:
        check_topic(topic)
    result = SinkOptions(
        nameserver=given["nameserver"],
        topic=topic,
        partitioner=_partitioner(given.get("partitioner")),
        partition_column=given.get("partitioncolumn"),
        stamps=switch("stamps", given.get("stamps"), True),
        query_id=_query_id(given.get("queryid")),
        batch_id=number("batchId", given.get("batchid")),
        sequence_by=tuple(name.strip() for name in given.get("sequenceby", "").split(",") if name.strip()),
        batch_messages=number("batchMessages", given.get("batchmessages"), least=1) or BATCH_MESSAGES,
        batch_bytes=number("batchBytes", given.get("batchbytes"), least=1) or BATCH_BYTES,
        timeout_ms=number("timeoutMs", given.get("timeoutms"), least=1) or TIMEOUT_MS,
        deadline_ms=number("deadlineMs", given.get("deadlinems"), least=1) or DEADLINE_MS,
        group=given.get("group", GROUP),
        tls=tls.parse(given),
        keys=keys.parse(given),
    )
    if (result.partitioner == BY_COLUMN) != (result.partition_column is not None):
        raise ConfigError("partitioner=column and partitionColumn=NAME go together")
    if result.batch_id is not None and (result.query_id is None or result.batch_id > MAX_NUMBER):
        raise ConfigError("batchId counts the batches of a queryId: give both, or neither")
    if result.batch_bytes > MAX_BODY_BYTES:
        raise ConfigError(f"batchBytes={result.batch_bytes}: brokers take {MAX_BODY_BYTES} bytes at most")
    return result


def columns(options: SinkOptions, fields: Iterable[tuple[str, str]]) -> dict[str, str]:
    """What each thing to send is called in the rows: "value" → "body". `fields` are Spark's names and types.

    SinkError for a column that has no meaning, or not the type for it.
    """
    found: dict[str, str] = {}
    extra = {name.lower() for name in (*options.sequence_by, options.partition_column or "") if name}
    types = dict(fields)
    lower = {name.lower(): name for name in types}
    for missing in sorted(extra - lower.keys()):
        what = "partitionColumn" if missing == (options.partition_column or "").lower() else "sequenceBy"
        raise SinkError(f"{what}: there is no column {missing!r}{nearest(missing, types)}")
    by_lower = {name.lower(): name for name in COLUMNS} | COLUMN_ALIASES
    for name, kind in types.items():
        meaning = by_lower.get(name.lower())
        if meaning is None:
            if name.lower() not in extra:
                raise SinkError(
                    f"the column {name!r} has no meaning for the perseid sink{nearest(name, by_lower)};"
                    " leave it out, or put it into the map `properties`"
                )
            continue
        if meaning in found:
            raise SinkError(f"{found[meaning]!r} and {name!r} are two names of the same: give one")
        if kind not in COLUMNS[meaning]:
            raise SinkError(f"the column {name!r} is {kind}; the perseid sink takes {' or '.join(COLUMNS[meaning])}")
        found[meaning] = name
    if "value" not in found:
        raise SinkError(f"the perseid sink needs a column value (or body){nearest('value', types)}")
    if "topic" not in found and options.topic is None:
        raise SinkError('say where to: .option("topic", …), or a column topic')
    if options.partitioner == BY_KEY and "key" not in found:
        raise SinkError("partitioner=key needs a column key (or keys)")
    if options.partition_column is not None:
        kind = types[lower[options.partition_column.lower()]]
        if kind not in PARTITION_TYPES:
            allowed = " or ".join(PARTITION_TYPES)
            raise SinkError(f"partitionColumn={options.partition_column!r} is {kind}, not {allowed}")
    return found


def _partitioner(text: str | None) -> str:
    spelled = {name.lower(): name for name in PARTITIONERS}
    if text is None:
        return ROUND_ROBIN
    if text.lower() not in spelled:
        raise ConfigError(f"partitioner={text!r} is unknown{nearest(text, PARTITIONERS)}")
    return spelled[text.lower()]


def _query_id(text: str | None) -> str | None:
    if text is None:
        return None
    if not 0 < len(text) <= MAX_WRITER_CHARS or not all(c.isascii() and (c.isalnum() or c in "_-") for c in text):
        raise ConfigError(f"queryId={text!r}: 1 to {MAX_WRITER_CHARS} letters, digits, '_', '-'")
    return text
