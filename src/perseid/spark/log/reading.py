"""Splits of store folders, and the rows of one, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from perseid.spark.log import folders
from perseid.spark.log.options import LogOptions
from perseid.spark.log.rows import Chosen, RowOptions, rows
from perseid.spark.log.walk import SegmentBytes, Walk


def planned(options: LogOptions, chosen: Chosen) -> list[folders.Split]:
    """The splits of all folders. ConfigError when one has no log."""
    return folders.splits(
        [log for folder in options.folders for log in folders.logs(folder)],
        chosen,
        slack_ms=options.slack_ms,
        split_bytes=options.split_bytes,
        min_partitions=options.min_partitions,
    )


def read(split: folders.Split, options: RowOptions, *, torn_is_end: bool = False) -> Iterator[Any]:
    """The record batches of one split. `torn_is_end`: see `Walk`."""
    segment = split.segment
    found = rows(replace(options, folder=split.folder), segment.entries)
    for place, why in split.gaps:
        found.hole(place, why)
    try:
        data = SegmentBytes(segment)
    except FileNotFoundError:
        found.hole(split.begin, f"{segment.where(split.begin)}: the file is gone since the read was planned")
        yield found.batch()
        return
    with data:
        walk = Walk(segment, data, found, options.most_bytes, torn_is_end=torn_is_end)
        yield from walk.batches(split.begin, split.end)
