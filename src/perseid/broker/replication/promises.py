"""How many nodes must have a message before it is acknowledged, while that number changes.

A message keeps the promise under which it was stored: what waits when an operator asks for fewer nodes, or when a slave
falls behind (enableAutoInSyncReplicas), waits for as many as before, or for its time to be up.

    older ends rise, and are not behind the log's end; nobody waits for what ends at or before a place that was dropped
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

MAX_OLDER = 16
"""Promises that messages still wait under. Beyond it the messages of two wait for both."""


class Promises:
    """Those of one broker. `replicated` tells up to where the log is on so many nodes."""

    def __init__(self, nodes: int | None, replicated: Callable[[int | None], int]) -> None:
        self.nodes = nodes
        """For what is stored from now on; None: all that are in sync (allAckInSyncStateSet)."""
        self._replicated = replicated
        self._older: deque[tuple[int, frozenset[int | None]]] = deque()
        """(end, nodes): of the messages that end there at most, and behind the one before."""

    def change(self, nodes: int | None, log_end: int, awaited: int) -> None:
        """Promise so many nodes for what comes behind `log_end`. `awaited`: where the first message ends that somebody
        waits for."""
        if nodes == self.nodes:
            return
        self.forget(awaited)
        if awaited <= log_end:
            if len(self._older) == MAX_OLDER:
                self._older[-1] = log_end, self._older[-1][1] | {self.nodes}
            else:
                self._older.append((log_end, frozenset((self.nodes,))))
        self.nodes = nodes

    def forget(self, awaited: int) -> None:
        """Forget what ends before `awaited`: no acknowledgement waits for it any more."""
        while self._older and self._older[0][0] < awaited:
            self._older.popleft()

    def kept(self) -> int:
        """Up to here the log is on as many nodes as was promised."""
        for end, nodes in self._older:
            have = min(map(self._replicated, nodes))
            if have < end:
                return have
        return self._replicated(self.nodes)

    def validate(self, log_end: int) -> None:
        ends = [end for end, _ in self._older]
        assert ends == sorted(ends) and len(ends) <= MAX_OLDER, ends
        assert not ends or ends[-1] <= log_end, (ends, log_end)
