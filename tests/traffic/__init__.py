"""What stock clients sent: a file for each client and version, recorded by `tests/interop/recording/record.py`.

A row is one frame: what the client was doing (`kind`), the request's code, and the bytes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
CLIENTS = tuple(sorted(path.stem for path in HERE.glob("*.json")))


@dataclass(frozen=True)
class Frame:
    """One request of a client."""

    client: str
    kind: str
    code: int
    data: bytes

    @property
    def name(self) -> str:
        """As in the table of roads."""
        return f"{self.client} {self.kind} {self.code}"


@cache
def frames(client: str) -> tuple[Frame, ...]:
    """The requests of one of `CLIENTS`, in the order in which it sent them."""
    rows = json.loads((HERE / f"{client}.json").read_text())
    return tuple(Frame(client, row["kind"], row["code"], bytes.fromhex(row["frame"])) for row in rows)
