"""Both ends of AutoSwitch replication behind one `handle`: what a broker has of it.

    nobody → following ⇄ leading

Roles come from outside, with an epoch each. A broker leads when its epoch's entry is durable (`Led`); until then it has
followers, if they come, and gives nothing to them that they have not got.

While it leads, what all replicas have that are in sync is confirmed (`allAckInSyncStateSet`); otherwise all that it
has, as in the original. While it follows, the master says what is confirmed.
"""

from __future__ import annotations

from collections.abc import Callable

from perseid.base.deadlines import soonest
from perseid.base.machine import Close, Closed, ConnectFailed, ConnId, Effect, Feed, Frames, Millis, Note, Opened
from perseid.disk.port import Disk
from perseid.replication.auto_switch.epochs import Epochs
from perseid.replication.auto_switch.in_sync import InSync, Proposal
from perseid.replication.auto_switch.master import IsAt, Master
from perseid.replication.auto_switch.slave import Slave, Trim
from perseid.replication.config import ReplicationConfig
from perseid.replication.receiver import LISTENER
from perseid.replication.sender import FetchedFor
from perseid.store.config import SYNC_FLUSH
from perseid.store.replica import Replica
from perseid.store.store import MessageStore
from perseid.wire.ha_auto import NO_EPOCH


class Led:
    """Fed back when the entry of our own epoch is durable."""

    __slots__ = ("epoch",)

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch


class CutFor:
    """Fed back when our log durably ends where a `Trim` wants it."""

    __slots__ = ("trim",)

    def __init__(self, trim: Trim) -> None:
        self.trim = trim


class TrimmedTo:
    """Fed back when our epochs durably are what a `Trim` wants."""

    __slots__ = ("trim",)

    def __init__(self, trim: Trim) -> None:
        self.trim = trim


class AutoSwitchReplication:
    """The replication of one gated store. `propose` asks the controller for another set of replicas in sync; `is_at`
    says whether a connection is that of a replica."""

    def __init__(
        self,
        config: ReplicationConfig,
        store: MessageStore,
        disk: Disk,
        propose: Callable[[Proposal], list[Effect]],
        is_at: IsAt,
    ) -> None:
        assert store.gate is not None, "what is not confirmed must not be seen"
        self.config = config
        self._store = store
        self._disk = disk
        self._propose = propose
        self._is_at = is_at
        self._durable_only = store.config.flush_disk_type == SYNC_FLUSH
        self.epochs = Epochs()
        self.epoch = NO_EPOCH
        """Of our mastership, or of the master that we follow."""
        self.broker_id = 0
        """Given by the controller; 0: none is, yet."""
        self.master: Master | None = None
        self.leads = False
        self._waits: Callable[[Millis], list[Effect]] | None = None
        """What to do when the cut that is under way has ended."""
        self._log_start = 0
        self.slave = Slave(
            config, Replica(store), self.epochs, self._trim, store.flusher.confirm, lambda: store.reads.confirmed
        )

    def start(self) -> list[Effect]:
        """The store is loaded: take in the epochs."""
        self._log_start = self._store.log.start
        return [Note("error", note) for note in self.epochs.load(self._disk)]

    def reconfigure(self, config: ReplicationConfig) -> None:
        """Follow other settings from now on, the store's too."""
        own, self.config = self._store.config, config
        self.slave.reconfigure(config)
        if self.master is not None:
            self.master.reconfigure(config, min(own.max_record_bytes, own.commit_log_file_bytes))
            self.master.in_sync.reconfigure(config.ha_max_time_slave_not_catchup)

    # ---- roles ----

    def lead(self, epoch: int, now: Millis) -> list[Effect]:
        """We are master of `epoch`: `Led` comes when that is durable. The set of replicas is ours alone until the
        controller's is told (`agree`)."""
        if self._store.truncation.under_way:
            self._waits = lambda now: self.lead(epoch, now)
            return []
        assert self.epochs.last < epoch, f"an earlier life was master of epoch {self.epochs.last}, told {epoch}"
        effects = [*self.slave.follow("", now), *self.let_go("it is master of another epoch now")]
        self.epoch, self.leads = epoch, False
        store, own = self._store, self._store.config
        self.epochs.begin(epoch, store.log.end)
        self.master = Master(
            self.config,
            store.log,
            self.epochs,
            InSync(self.broker_id, self.config.ha_max_time_slave_not_catchup),
            self._sendable,
            lambda: store.reads.confirmed,
            self._is_at,
            hot_bytes=own.hot_bytes,
            longest_record=min(own.max_record_bytes, own.commit_log_file_bytes),
        )
        if self._durable_only and store.log.flushed < store.log.end:
            # Readers saw it at the last master: it is shown here from the beginning on.
            effects.append(store.flusher.flush([]))
        return [*effects, self.epochs.save(self._disk, [Feed(Led(epoch))])]

    def led(self, epoch: int) -> bool:
        """Our epoch's entry is durable; False: we have another role by now."""
        if epoch != self.epoch or self.master is None:
            return False
        self.leads = True
        return True

    def lead_on(self, epoch: int) -> list[Effect]:
        """The master is elected again: what it does goes on, in another epoch."""
        assert self.master is not None
        self.epoch = epoch
        self.epochs.begin(epoch, self._store.log.end)  # also without a byte since: a restart has to know that it led
        return [self.epochs.save(self._disk, [Feed(Led(epoch))])]

    def follow(self, epoch: int, now: Millis) -> list[Effect]:
        """Another one is master of `epoch`; where, `slave.follow` is told when it is known."""
        self._waits = None
        self.epoch, self.leads = epoch, False
        return [*self.let_go("it is master no longer"), *self.slave.follow("", now)]

    def let_go(self, why: str) -> list[Effect]:
        """End the connections of those who follow us."""
        conns, self.master = list(self.master.followers) if self.master is not None else [], None
        return [Close(conn, why) for conn in conns]

    @property
    def log_end_epoch(self) -> int:
        """The epoch of our last byte; while we lead, our own."""
        return self.epoch if self.leads else self.epochs.at_end(self._store.log.end)

    # ---- what a slave cuts ----

    def _trim(self, trim: Trim) -> list[Effect]:
        if trim.end >= self._store.log.end:
            return self._adopt(trim)
        if self._store.truncation.under_way:
            self._waits = lambda now: []
            return [Close(trim.conn, "the last cut is still under way")]
        end, confirmed = self._store.log.end, self._store.reads.confirmed
        note = Note("warning", f"our log ends at {end}, and is the master's up to {trim.end}: the rest is cut off")
        notes = [note]
        if trim.end < confirmed:
            text = f"readers saw messages up to {confirmed}, the master's log goes another way from {trim.end} on"
            notes.append(Note("error", text))
        return [*notes, *self._store.truncation.begin(trim.end, [Feed(CutFor(trim))])]

    def _adopt(self, trim: Trim) -> list[Effect]:
        if not self.epochs.adopt(trim.theirs, trim.end):
            return [Feed(TrimmedTo(trim))]
        return [self.epochs.save(self._disk, [Feed(TrimmedTo(trim))])]

    def _cut(self, trim: Trim, now: Millis) -> list[Effect]:
        waits, self._waits = self._waits, None
        if waits is not None:
            return waits(now)
        return self._adopt(trim) if trim.conn == self.slave.conn else []

    # ---- what is confirmed, and acknowledged ----

    def _sendable(self) -> int:
        """With SYNC_FLUSH only what is durable: a master must not come back with less than its replicas have."""
        return self._store.log.flushed if self._durable_only else self._store.log.end

    def replicated(self) -> int:
        """The log is on as many replicas as the mode wants up to here; −1 while we don't lead."""
        return self.on(None if self.config.all_ack_in_sync_state_set else self.config.in_sync_replicas)

    def on(self, nodes: int | None) -> int:
        """The log is on so many replicas up to here, or on all in sync (None); −1 while we don't lead."""
        if self.master is None or not self.leads:
            return -1
        return self.master.on_all() if nodes is None else self.master.on_nodes(nodes)

    def confirm(self) -> None:
        """Let readers see what is confirmed by now, while we lead."""
        assert self.master is not None
        end = self._sendable()  # with SYNC_FLUSH readers see nothing that a power cut could take back
        self._store.flusher.confirm(min(end, self.master.on_all()) if self.config.all_ack_in_sync_state_set else end)

    # ---- events ----

    def owns(self, conn: ConnId) -> bool:
        """Is this a connection of the HA stream?"""
        return conn == self.slave.conn or (self.master is not None and conn in self.master.followers)

    def opened(self, event: Opened, now: Millis) -> list[Effect]:
        """A connection named `LISTENER`, accepted or dialled."""
        assert event.listener == LISTENER
        if event.dialled:
            return self.slave.opened(event.conn, event.dialled, now)
        if self.master is None:
            return [Close(event.conn, "it is no master")]
        return self.master.opened(event.conn, event.peer, now)

    def connect_failed(self, event: ConnectFailed, now: Millis) -> list[Effect]:
        return self.slave.connect_failed(event.address, event.reason, now)

    def received(self, event: Frames, now: Millis) -> list[Effect]:
        """The one hook through which all bytes of the stream come in."""
        if event.conn == self.slave.conn:
            return self.slave.received(event.data, now)
        return self.master.received(event.conn, event.data, now) if self.master is not None else []

    def closed(self, event: Closed, now: Millis) -> list[Effect]:
        if event.conn == self.slave.conn:
            return self.slave.closed(event.conn, event.reason, now)
        return self.master.closed(event.conn, event.reason) if self.master is not None else []

    def fed(self, event: FetchedFor | CutFor | TrimmedTo, now: Millis) -> list[Effect]:
        """Something that we asked for has come to pass."""
        if isinstance(event, CutFor):
            return self._cut(event.trim, now)
        if isinstance(event, TrimmedTo):
            return self.slave.trimmed(event.trim, now)
        return self.master.fetched(event) if self.master is not None else []

    def settle(self, now: Millis) -> list[Effect]:
        """At the end of a turn: show what is confirmed, send what is new, propose who is in sync, and report what has
        become durable."""
        effects = self.slave.go_on(now)
        if self.master is not None and self.master.followers:
            effects += self.master.believe(now)
        if self.master is not None and self.leads:
            self.confirm()
            if self.master.followers:
                effects += self.master.send(now)
            proposal = self.master.proposal(now)
            if proposal is not None:
                effects += self._propose(proposal)
        elif not self.config.ha_report_durable_only:
            effects += self.slave.report_new(self._store.log.end, now)
        else:
            log = self._store.log
            effects += self.slave.report_new(log.flushed, now)
            if self.slave.following and log.end > log.issued == log.flushed:  # one at a time: the next covers more
                effects.append(self._store.flusher.flush([]))
        return effects

    # ---- time ----

    def tick(self, now: Millis) -> list[Effect]:
        effects = self.slave.tick(now)
        if self.master is not None:
            self.master.refresh(now)
            effects += self.master.tick(now)
        if self._store.log.start > self._log_start and not self._store.truncation.under_way:
            self._log_start = self._store.log.start
            if self.epochs.drop_before(self._log_start):
                effects.append(self.epochs.save(self._disk, []))
        return effects

    def next_deadline(self) -> Millis | None:
        slave, master = self.slave.next_deadline(), self.master
        if master is None:
            return slave
        return soonest(slave, master.next_deadline(), master.in_sync.next_deadline() if self.leads else None)

    def validate(self) -> None:
        self.slave.validate()
        self.epochs.validate()
        if self.master is not None:
            self.master.validate()
