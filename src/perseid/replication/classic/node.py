"""Both ends of classic replication behind one `handle`: what a broker has of it.

Each broker serves its log to whoever follows it, a slave too. A slave follows its master besides.
"""

from __future__ import annotations

from collections.abc import Callable

from perseid.base.deadlines import soonest
from perseid.base.machine import Closed, ConnectFailed, ConnId, Effect, Frames, Millis, Opened
from perseid.replication.classic.master import Master
from perseid.replication.classic.slave import Slave
from perseid.replication.config import ReplicationConfig
from perseid.replication.receiver import LISTENER
from perseid.replication.sender import FetchedFor
from perseid.store.config import SYNC_FLUSH
from perseid.store.replica import Replica
from perseid.store.store import MessageStore


class ClassicReplication:
    """The replication of one store. `prove`, which a slave needs, asks the master for our last record."""

    def __init__(
        self,
        config: ReplicationConfig,
        store: MessageStore,
        prove: Callable[[Millis], list[Effect]] | None = None,
        *,
        wanted_from: Callable[[], int] | None = None,
        now: Millis = 0,
    ) -> None:
        """`wanted_from`: from there on an acknowledgement may stand for a message that somebody waits for; not given,
        from the log's end."""
        self.config = config
        self._store = store
        self._durable_only = store.config.flush_disk_type == SYNC_FLUSH
        own = store.config
        longest = min(own.max_record_bytes, own.commit_log_file_bytes)
        wanted = wanted_from or (lambda: store.log.end)
        self.master = Master(
            config, store.log, self._sendable, wanted, hot_bytes=own.hot_bytes, longest_record=longest
        )
        self.slave = Slave(config, Replica(store), prove, now=now) if prove is not None else None

    def reconfigure(self, config: ReplicationConfig) -> None:
        """Follow other settings from now on, the store's too."""
        own, self.config = self._store.config, config
        self.master.reconfigure(config, min(own.max_record_bytes, own.commit_log_file_bytes))
        if self.slave is not None:
            self.slave.reconfigure(config)

    def _sendable(self) -> int:
        """With SYNC_FLUSH only what is durable: a master must not come back with less than its slaves have."""
        return self._store.log.flushed if self._durable_only else self._store.log.end

    def owns(self, conn: ConnId) -> bool:
        """Is this a connection of the HA stream?"""
        return conn in self.master.followers or (self.slave is not None and conn == self.slave.conn)

    # ---- events ----

    def opened(self, event: Opened, now: Millis) -> list[Effect]:
        """A connection named `LISTENER`, accepted or dialled."""
        assert event.listener == LISTENER
        if not event.dialled:
            return self.master.opened(event.conn, event.peer, now)
        assert self.slave is not None, "only a slave dials"
        return self.slave.opened(event.conn, event.dialled, now)

    def connect_failed(self, event: ConnectFailed, now: Millis) -> list[Effect]:
        return self.slave.connect_failed(event.address, event.reason, now) if self.slave is not None else []

    def received(self, event: Frames, now: Millis) -> list[Effect]:
        """The one hook through which all bytes of the stream come in."""
        if self.slave is not None and event.conn == self.slave.conn:
            return self.slave.received(event.data, now)
        return self.master.received(event.conn, event.data, now)

    def closed(self, event: Closed, now: Millis) -> list[Effect]:
        if self.slave is not None and event.conn == self.slave.conn:
            return self.slave.closed(event.conn, event.reason, now)
        return self.master.closed(event.conn, event.reason)

    def fed(self, event: object, now: Millis) -> list[Effect]:
        """Something that we asked for has come to pass."""
        assert isinstance(event, FetchedFor)
        return self.master.fetched(event)

    def settle(self, now: Millis) -> list[Effect]:
        """At the end of a turn: send what is new, and report what has become durable."""
        effects = self.master.send(now) if self.master.followers else []
        if self.slave is not None:
            effects += self.slave.go_on(now)
        if self.slave is not None and self.config.ha_report_durable_only:
            log = self._store.log
            effects += self.slave.report_new(log.flushed, now)
            if self.slave.following and log.end > log.issued == log.flushed:  # one at a time: the next covers more
                effects.append(self._store.flusher.flush([]))
        return effects

    # ---- time ----

    def tick(self, now: Millis) -> list[Effect]:
        effects = self.master.tick(now)
        return effects if self.slave is None else effects + self.slave.tick(now)

    def next_deadline(self) -> Millis | None:
        return soonest(self.master.next_deadline(), self.slave.next_deadline() if self.slave is not None else None)

    def validate(self) -> None:
        self.master.validate()
        if self.slave is not None:
            self.slave.validate()
