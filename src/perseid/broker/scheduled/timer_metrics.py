"""How many timer messages wait, by topic: config/timermetrics, and what code 61 answers (store.md §9)."""

from __future__ import annotations

import msgspec

from perseid.base.machine import Millis
from perseid.broker.kernel.saved_table import SavedTable
from perseid.wire import fastjson
from perseid.wire.bodies import DataVersion
from perseid.wire.body import Body
from perseid.wire.headers.base import Long

METRICS_PATH = "config/timermetrics"


class Metric(Body):
    """Of one topic."""

    count: Long = 0
    time_stamp: Long = 0


class TimerMetricsTable(SavedTable):
    """The file's form, and the answer's."""

    timing_count: dict[str, Metric] = msgspec.field(default_factory=dict)


class TimerMetrics:
    """The counts of one broker. A crash may leave them a little off, as in the original."""

    def __init__(self) -> None:
        self._table = TimerMetricsTable(data_version=DataVersion(counter=0, state_version=0, timestamp=0))
        self.dirty = False

    def count_of(self, topic: str) -> int:
        metric = self._table.timing_count.get(topic)
        return metric.count if metric is not None else 0

    def add(self, topic: str, change: int, now: Millis) -> None:
        """So many messages more of a topic wait."""
        metric = self._table.timing_count.setdefault(topic, Metric())
        metric.count += change
        metric.time_stamp = now
        self._table.data_version.next_version(now)
        self.dirty = True

    def forget(self, topic: str) -> None:
        """The topic is deleted."""
        if self._table.timing_count.pop(topic, None) is not None:
            self.dirty = True

    def load(self, text: bytes) -> None:
        """Take up the file. StoreError when the text is not such a file."""
        self._table = TimerMetricsTable.read(text, METRICS_PATH)

    def adopt(self, table: TimerMetricsTable) -> None:
        """Let the counts be a master's."""
        if table.data_version != self._table.data_version:
            self._table, self.dirty = table, True

    def to_json(self) -> bytes:
        """The text of the file, and of the answer."""
        return fastjson.dumps({"dataVersion": self._table.data_version, "timingCount": self._table.timing_count})
