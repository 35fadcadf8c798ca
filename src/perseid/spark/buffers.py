"""The rows that `core.columns` has gathered, as Arrow arrays that share its memory."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from perseid.core.layout import INT_COLUMNS, LONG_COLUMNS


class Buffers:
    """The arrays of `columns`, a `core.columns.Columns` with room for `room` rows, as far as it is filled."""

    def __init__(self, columns: Any, room: int) -> None:
        self._columns = columns
        self._room = room
        self.rows = int(columns.count)
        self._longs, self._ints = pa.py_buffer(columns.longs), pa.py_buffer(columns.ints)

    def number(self, name: str, kind: Any, valid: Any = None) -> Any:
        """A column of LONG_COLUMNS or INT_COLUMNS. `valid`: a bit for each row, of a column that has nulls."""
        rows = self.rows
        if name in LONG_COLUMNS:
            part = self._longs.slice(LONG_COLUMNS.index(name) * 8 * self._room, 8 * rows)
        else:
            part = self._ints.slice(INT_COLUMNS.index(name) * 4 * self._room, 4 * rows)
        return pa.Array.from_buffers(kind, rows, [valid, part])

    def text(self, name: str, kind: Any, valid: Any = None) -> Any:
        """A column of texts or bytes, by the name that `columns` has for it."""
        return _texts(kind, getattr(self._columns, name), valid)

    def given(self, name: str) -> Any:
        """Which rows have keys, tags or ids: `has_keys`, `has_tags`, `has_ids`."""
        return pa.py_buffer(getattr(self._columns, name))

    def maps(self, kind: Any, valid: Any = None) -> Any:
        """The properties of each row, as a map of texts."""
        pairs = pa.StructArray.from_arrays(
            [_texts(pa.string(), self._columns.names), _texts(pa.string(), self._columns.values)],
            fields=[pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string())],
        )
        return pa.Array.from_buffers(kind, self.rows, [valid, self._ends()], children=[pairs])

    def lists(self, kind: Any) -> Any:
        """The properties of each row, as a list of structures of a text, `key`, and bytes, `value`."""
        pairs = pa.StructArray.from_arrays(
            [_texts(pa.string(), self._columns.names), _texts(pa.binary(), self._columns.values)],
            fields=[pa.field("key", pa.string()), pa.field("value", pa.binary())],
        )
        return pa.Array.from_buffers(kind, self.rows, [None, self._ends()], children=[pairs])

    def _ends(self) -> Any:
        return pa.py_buffer(self._columns.maps).slice(0, 4 * (self.rows + 1))


def bits(rows: int, nulls: set[int]) -> Any:
    """Which of so many rows are not null."""
    found = bytearray(b"\xff" * ((rows + 7) // 8))
    for row in nulls:
        found[row >> 3] &= ~(1 << (row & 7))
    return pa.py_buffer(found)


def _texts(kind: Any, texts: Any, valid: Any = None) -> Any:
    count = texts.count
    ends = pa.py_buffer(texts.ends).slice(0, 4 * (count + 1))
    return pa.Array.from_buffers(kind, count, [valid, ends, pa.py_buffer(texts.data).slice(0, texts.size)])
