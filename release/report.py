"""What was done, how long it took, how large it is: as a table for people, as JSON for programs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field


@dataclass(slots=True)
class Row:
    """One thing that was done."""

    step: str
    what: str
    seconds: float = 0.0
    bytes: int | None = None
    result: str = ""


@dataclass(slots=True)
class Report:
    """The rows so far; each is told on stderr as it ends."""

    rows: list[Row] = field(default_factory=list)

    @contextmanager
    def timed(self, step: str, what: str) -> Iterator[Row]:
        """A row for what is done meanwhile, with its seconds. It is not kept when that fails."""
        print(f"{step}: {what} …", file=sys.stderr, flush=True)
        row, began = Row(step, what), time.perf_counter()
        yield row
        row.seconds = round(time.perf_counter() - began, 2)
        self.rows.append(row)
        print(f"{step}: {what}: {_said(row)}", file=sys.stderr, flush=True)

    def table(self) -> str:
        """In Markdown."""
        lines = ["| step | what | size | seconds | result |", "|---|---|--:|--:|---|"]
        for row in self.rows:
            lines.append(f"| {row.step} | {row.what} | {size(row.bytes)} | {row.seconds:.1f} | {row.result} |")
        return "\n".join(lines)

    def to_json(self) -> str:
        """A list of rows."""
        return json.dumps([asdict(row) for row in self.rows], indent=1)


def _said(row: Row) -> str:
    parts = [f"{row.seconds:.1f} s", size(row.bytes), row.result]
    return ", ".join(part for part in parts if part)


def size(count: int | None) -> str:
    """In MB, a million bytes each; empty for None."""
    return "" if count is None else f"{count / 1e6:.1f} MB"
