"""What retention takes away: it is gone from the log's start, and only when there was a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perseid.sim.history import History
from perseid.sim.promises import Violation


class Retention:
    """That of one run."""

    def __init__(self, history: History, on_delete: Callable[[], None]) -> None:
        """`on_delete`: an old file is gone."""
        self.history, self._on_delete = history, on_delete
        self.log_start = 0
        self.may_delete = False
        """Something happened that lets old files go: a full disk, a clock that jumped far."""

    def look(self, store: Any) -> None:
        """Old files may have gone."""
        start = store.log.start
        if start < self.log_start:
            self.log_start = start  # a removal that was not synced came back with a power cut
        if start == self.log_start:
            return
        if not self.may_delete:
            raise Violation("files go for a reason", f"the log begins at {start}, was {self.log_start}")
        self.log_start = start
        order = self.history.order
        old = [place for table in (order.acked, order.read) for place, one in table.items() if one.physical < start]
        self.history.forget(old, lost=False)
        for table in (self.history.delayed, self.history.halves):
            for value in [value for value, stored in table.items() if stored.physical < start]:
                del table[value]
        self._on_delete()
