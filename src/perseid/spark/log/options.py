"""The options of the source `perseid-log`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from perseid.base.errors import ConfigError
from perseid.spark.log.rows import MOST_BYTES
from perseid.spark.option import SparkOption, names
from perseid.spark.options import normal, number, switch
from perseid.wire.dledger import ENTRY_HEADER_BYTES
from perseid.wire.record import MIN_RECORD_BYTES

SPLIT_BYTES = 64 << 20
SLACK_MS = 3_600_000
MAX_RECORD_BYTES = 1 << 30
"""The limit of maxRecordBytes: sizes are signed, and buffers are twice as long."""
OPTIONS = (
    SparkOption(
        "path",
        "Store folders, with commas between them: each a broker's `storePathRootDir`, its `commitlog`, a DLedger "
        "group's folder, or one file of a log. `load(path)` says the same.",
        "needed",
    ),
    SparkOption(
        "splitBytes",
        "The most of a file that one Spark partition reads.",
        "64m",
        "bytes, or a number with k, m or g (powers of 1024)",
    ),
    SparkOption(
        "minPartitions",
        "Files are split so that there are at least this many Spark partitions, if the logs are large enough.",
        takes="at least 1",
    ),
    SparkOption(
        "maxRecordBytes",
        "The longest record; anything longer counts as damage. Raise it for brokers with a larger `maxMessageSize`.",
        str(MOST_BYTES - ENTRY_HEADER_BYTES),
        "as `splitBytes`",
    ),
    SparkOption(
        "decompress",
        "Bodies as a consumer gets them. `false`: as they are stored; `sysFlag` tells how.",
        "true",
        "true, false",
    ),
    SparkOption(
        "includeBody",
        "`false` leaves out the column `body`: bodies are not decoded.",
        "true",
        "true, false",
    ),
    SparkOption(
        "includeFolder",
        "A column `folder` with the path as it was given, for reads of several folders.",
        "false",
        "true, false",
    ),
    SparkOption(
        "timeSlackMs",
        "How far the broker's clock may have been set back: time filters skip a file only if its records are off by "
        "more than this.",
        str(SLACK_MS),
        "ms",
    ),
    SparkOption(
        "pushDown",
        "Records that filters exclude are not decoded. Only for a DataFrame that a query uses once.",
        "false",
        "true, false",
    ),
)
NAMES = names(OPTIONS)
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30}


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The options of a read, checked. ConfigError names the option that can't be."""

    folders: tuple[str, ...]
    split_bytes: int = SPLIT_BYTES
    min_partitions: int = 0
    most_bytes: int = MOST_BYTES
    decompress: bool = True
    include_body: bool = True
    include_folder: bool = False
    slack_ms: int = SLACK_MS
    push_down: bool = False


def parse(options: Mapping[str, str]) -> LogOptions:
    """Check the options of a read."""
    given = normal(options, NAMES, {}, "the perseid-log source", ignored=())
    folders = tuple(dict.fromkeys(folder.strip() for folder in given.get("path", "").split(",") if folder.strip()))
    if not folders:
        raise ConfigError('the perseid-log source needs a store folder: .option("path", "/store")')
    longest = _bytes("maxRecordBytes", given.get("maxrecordbytes"), MIN_RECORD_BYTES)
    if longest is not None and longest > MAX_RECORD_BYTES:
        raise ConfigError(f"maxRecordBytes={longest} is more than {MAX_RECORD_BYTES}")
    slack = number("timeSlackMs", given.get("timeslackms"))
    return LogOptions(
        folders=folders,
        split_bytes=_bytes("splitBytes", given.get("splitbytes"), 1) or SPLIT_BYTES,
        min_partitions=number("minPartitions", given.get("minpartitions"), least=1) or 0,
        most_bytes=MOST_BYTES if longest is None else longest + ENTRY_HEADER_BYTES,
        decompress=switch("decompress", given.get("decompress"), True),
        include_body=switch("includeBody", given.get("includebody"), True),
        include_folder=switch("includeFolder", given.get("includefolder"), False),
        slack_ms=SLACK_MS if slack is None else slack,
        push_down=switch("pushDown", given.get("pushdown"), False),
    )


def _bytes(name: str, text: str | None, least: int) -> int | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d+)([kmg]?)b?", text.strip().lower())
    size = int(found[1]) << _UNITS[found[2]] if found else 0
    if size < least:
        raise ConfigError(f"{name}={text!r} is no size from {least} bytes on, such as 67108864 or 64m")
    return size
