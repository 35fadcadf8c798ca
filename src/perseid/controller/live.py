"""Which brokers are alive, by their heartbeats to this controller (controller.md §6.2, B19 to B21).

    never heard → alive → dead → alive …

A broker is dead when it has been silent for longer than the timeout that its own heartbeats name, or when its channel
has closed: the connection that brought its last heartbeat, and no other one. Of a broker that this controller never
heard there is no judgement, until it has been active for a whole timeout: heartbeats go to all controllers, so that a
new active one knows most of them.

The channel of a broker that is alive is taken over from its own machine alone: that of the address in the heartbeat, or
that of the channel. Otherwise a stranger's heartbeat, and the end of its connection, would be the end of a master.

What is due is found by a heap that has one entry for each broker alive, put right when it comes up: a heartbeat costs
the same however many brokers there are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush

from perseid.base.hosts import is_same_machine
from perseid.base.machine import ConnId, Millis
from perseid.wire.headers.namesrv import BrokerHeartbeatRequest

DEFAULT_TIMEOUT_MS = 10_000
"""Of a heartbeat that names none."""
MAX_TIMEOUT_MS = 3_600_000
LOWEST_PRIORITY = 2**31 - 1
GRAIN_MS = 20
"""Silence is found at multiples of this: brokers that die together are found together."""
MAX_ROWS = 100_000
"""Brokers; beyond them those that are dead are forgotten, and new ones refused."""

Key = tuple[str, str, int]
"""Cluster, set, id."""


@dataclass(slots=True)
class Row:
    """One broker, as its heartbeats have it."""

    key: Key
    address: str
    conn: ConnId
    """Its channel."""
    peer: str
    """The other end of its channel."""
    heard: Millis = 0
    timeout_ms: Millis = DEFAULT_TIMEOUT_MS
    epoch: int = -1
    max_offset: int = -1
    confirm_offset: int = -1
    priority: int = LOWEST_PRIORITY
    alive: bool = False
    due: Millis = 0
    """Of its entry in the heap."""

    @property
    def broker_id(self) -> int:
        return self.key[2]

    @property
    def name(self) -> str:
        return self.key[1]


@dataclass(slots=True)
class Liveness:
    """All brokers that were heard."""

    rows: dict[Key, Row] = field(default_factory=dict)
    judging_from: Millis = 0
    """From then on also those are dead that were never heard."""
    _by_conn: dict[ConnId, dict[Key, Row]] = field(default_factory=dict)
    _heap: list[tuple[Millis, Key]] = field(default_factory=list)

    # ---- what comes ----

    def heard(self, beat: BrokerHeartbeatRequest, broker_id: int, conn: ConnId, peer: str, now: Millis) -> Row | None:
        """A heartbeat, on a connection of `peer`. The row, if it is alive only now; None if it was before. KeyError:
        there are too many brokers, a broker at another address has the id and is alive, or it is alive and this is not
        its machine."""
        key = (beat.cluster_name, beat.broker_name, broker_id)
        row = self.rows.get(key)
        if row is None:
            row = self._new(key, beat, conn, peer)
        elif row.address != beat.broker_addr:
            if row.alive:
                raise KeyError(f"the broker at {row.address} has the id {broker_id} in {beat.broker_name} and is alive")
            row.address = beat.broker_addr
        if row.conn != conn:
            if row.alive and not any(is_same_machine(peer, one) for one in (row.peer, row.address)):
                raise KeyError(f"the broker at {row.address} is alive, and its heartbeats come from {row.peer}")
            self._unbind(row)
            row.conn, row.peer = conn, peer
        row.heard = now
        wanted = beat.heartbeat_timeout_mills
        if wanted is not None:
            row.timeout_ms = max(1, min(wanted, MAX_TIMEOUT_MS))
        if beat.epoch is not None and beat.max_offset is not None:
            row.epoch, row.max_offset = beat.epoch, beat.max_offset
        if beat.confirm_offset is not None:
            row.confirm_offset = beat.confirm_offset
        if beat.election_priority is not None:
            row.priority = beat.election_priority
        due = _grain(now + row.timeout_ms)
        if due < row.due or not row.due:
            row.due = due
            heappush(self._heap, (due, key))
        if row.alive:
            if conn not in self._by_conn:
                self._by_conn[conn] = {key: row}
            else:
                self._by_conn[conn][key] = row
            return None
        row.alive = True
        self._by_conn.setdefault(conn, {})[key] = row
        return row

    def _new(self, key: Key, beat: BrokerHeartbeatRequest, conn: ConnId, peer: str) -> Row:
        if len(self.rows) >= MAX_ROWS:
            for old in [row.key for row in self.rows.values() if not row.alive]:
                del self.rows[old]
            if len(self.rows) >= MAX_ROWS:
                raise KeyError(f"{MAX_ROWS} brokers are alive; no other one is taken in")
        row = self.rows[key] = Row(key, beat.broker_addr, conn, peer)
        return row

    def closed(self, conn: ConnId) -> list[Row]:
        """A connection is gone: those whose channel it was are dead."""
        rows = list(self._by_conn.pop(conn, {}).values())
        for row in rows:
            row.alive = False
        return rows

    def expired(self, now: Millis) -> list[Row]:
        """Those who have been silent for too long are dead from now on."""
        found: list[Row] = []
        heap = self._heap
        while heap and heap[0][0] <= now:
            due, key = heappop(heap)
            row = self.rows.get(key)
            if row is None or row.due != due:
                continue
            row.due = 0
            if not row.alive:
                continue
            if now - row.heard > row.timeout_ms:
                row.alive = False
                self._unbind(row)
                found.append(row)
            else:
                row.due = _grain(row.heard + row.timeout_ms)
                heappush(heap, (row.due, key))
        return found

    def _unbind(self, row: Row) -> None:
        bound = self._by_conn.get(row.conn)
        if bound is not None:
            bound.pop(row.key, None)
            if not bound:
                del self._by_conn[row.conn]

    def next_deadline(self) -> Millis | None:
        return self._heap[0][0] if self._heap else None

    # ---- what is asked ----

    def alive(self, cluster: str, name: str, broker_id: int) -> Row | None:
        """The row of a broker that is alive."""
        row = self.rows.get((cluster, name, broker_id))
        return row if row is not None and row.alive else None

    def may_live(self, cluster: str, name: str, broker_id: int, now: Millis) -> bool:
        """Is it alive, or may it be, as far as we know?"""
        row = self.rows.get((cluster, name, broker_id))
        return row.alive if row is not None else now < self.judging_from

    def validate(self) -> None:
        """AssertionError when the state contradicts itself."""
        bound = {key for rows in self._by_conn.values() for key in rows}
        assert bound == {row.key for row in self.rows.values() if row.alive}, "channels and rows differ"
        for conn, rows in self._by_conn.items():
            assert rows and all(row.conn == conn for row in rows.values()), conn
        queued = {(due, key) for due, key in self._heap}
        assert all((row.due, row.key) in queued for row in self.rows.values() if row.alive), "a row without a deadline"


def _grain(due: Millis) -> Millis:
    """The first moment after `due` at which silence is looked for."""
    return (due // GRAIN_MS + 1) * GRAIN_MS
