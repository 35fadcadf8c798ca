"""The options of the jobs that have many, for callers and for `perseid spark …`: each has its text and default here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from perseid.base.options import Doc, Moment

BATCH_OFFSETS = 500_000
TARGET_MB = 128
KEEP_HOURS = 7 * 24


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """How a topic is archived.

    `format`, `partition_by`, `schema`, `message`, `drop_value` and the filters (`tags`, and the source's `sql` and
    `dedupe`) are properties of the table: set them only for a new table. Later they must not differ.
    """

    format: Annotated[
        str | None, Doc("parquet, delta or iceberg (both with perseid[lake]); parquet for a new table.")
    ] = None
    partition_by: Annotated[str | None, Doc("none, day or hour of the store time (UTC); none for a new table.")] = None
    schema: Annotated[
        str | None,
        Doc("The schema of bodies: a .json (JSON Schema), .avsc, .desc or .ddl file, or DDL. Default: bodies stay "
            "bytes."),
    ] = None
    message: Annotated[
        str | None, Doc("The Protobuf message's full name, with a .desc (protoc --include_imports -o).")
    ] = None
    drop_value: Annotated[
        bool | None, Doc("Keep no raw bytes of decoded bodies: the table is smaller, but can't be replayed.")
    ] = None
    compact: Annotated[bool, Doc("Merge files below half of the target size afterwards.")] = False
    target_mb: Annotated[int, Doc("The size of a merged file, in MiB.", least=1)] = TARGET_MB
    keep_hours: Annotated[
        int, Doc("Hours for which earlier versions are kept when files are merged (Delta, Iceberg).", least=0)
    ] = KEEP_HOURS
    batch_offsets: Annotated[int | None, Doc("The most offsets of one batch.", least=1)] = BATCH_OFFSETS
    tags: Annotated[str | None, Doc("Only messages with these tags: 'a || b'.")] = None
    fail_on_data_loss: Annotated[
        bool, Doc("Fail if offsets are missing at the broker; otherwise they are noted as a gap.")
    ] = True
    accept_table: Annotated[bool, Doc("Continue although other programs removed rows; these are noted as a gap.")] = (
        False
    )
    new_generation: Annotated[
        bool, Doc("The topic was created again, or lost its end: keep the rows, and continue with the new messages.")
    ] = False
    catalogs: Annotated[
        Sequence[str],
        Doc(
            "Let readers open an Iceberg table's catalog also under this name, besides perseid.",
            flags=("--catalog",),
        ),
    ] = ()

    source_options: Annotated[
        Mapping[str, str], Doc("NAME=VALUE for the source, such as startingTimestamp=0.", flags=("--option",))
    ] = field(default_factory=dict)

    def for_source(self) -> dict[str, str]:
        """All that the source is told, by the names of its own options."""
        found = {} if self.fail_on_data_loss else {"failOnDataLoss": "false"}
        found |= self.source_options
        return found if self.tags is None else {**found, "tags": self.tags}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """Which rows of an archive are sent, how fast, and under which name."""

    rate: Annotated[int | None, Doc("Messages a second at most.", least=1)] = None
    since: Annotated[
        Moment | None, Doc("Only messages stored at or after this: a time, or milliseconds since 1970.")
    ] = None
    until: Annotated[Moment | None, Doc("Only messages stored before this: a time, or milliseconds since 1970.")] = None
    order_by: Annotated[
        str | None, Doc("A column: rows with the same value stay in order of time. Default: each queue stays in order.")
    ] = None
    name: Annotated[str | None, Doc("The replay's name. Another name sends everything again.")] = None
    sink_options: Annotated[Mapping[str, str], Doc("NAME=VALUE for the sink `perseid`.", flags=("--option",))] = field(
        default_factory=dict
    )


ARCHIVE_DEFAULTS = ArchiveOptions()
REPLAY_DEFAULTS = ReplayOptions()
