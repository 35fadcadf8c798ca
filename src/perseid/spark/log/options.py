"""The options of the source `perseid-log`.

    path            store folders, with `,` between them: each a log of its own
    splitBytes      a Spark partition has at most so much of a segment (64m; k, m, g stand for powers of 1024)
    minPartitions   at least so many Spark partitions, if there is enough to be cut
    maxRecordBytes  no record is longer: what claims to be is damage; a split reads so much more (the store's limit)
    decompress      true (default): bodies as a consumer gets them; false: as they are stored
    includeBody     false: no body is decoded or handed to Spark
    includeFolder   true: the column `folder` too, which tells the rows of several folders apart
    timeSlackMs     how far a broker's clock may have been set back: segments are left out by time beyond it (one hour)
    pushDown        true: what filters don't want is not decoded; for a DataFrame that a query uses once
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from perseid.base.errors import ConfigError
from perseid.spark.log.rows import MOST_BYTES
from perseid.spark.options import normal, number, switch
from perseid.wire.dledger import ENTRY_HEADER_BYTES
from perseid.wire.record import MIN_RECORD_BYTES

NAMES = (
    "path", "splitBytes", "minPartitions", "maxRecordBytes", "decompress", "includeBody", "includeFolder",
    "timeSlackMs", "pushDown",
)  # fmt: skip
SPLIT_BYTES = 64 << 20
SLACK_MS = 3_600_000
MAX_RECORD_BYTES = 1 << 30
"""The limit of maxRecordBytes: sizes are signed, and buffers are twice as long."""
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
