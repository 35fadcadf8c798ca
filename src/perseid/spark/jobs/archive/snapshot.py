"""A table of any format at one moment."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a table. `partition` is its day or hour, or empty."""

    path: str
    partition: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A table at one moment: its last batch (-1: none yet) and its files."""

    batch: int
    files: tuple[DataFile, ...]
