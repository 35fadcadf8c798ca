"""The broker as one node: events in, effects out.

One `handle` is one turn. Frames are decoded and each request goes to its row of `ROUTES`; what the turn
appended wakes held pulls; what it changed in the tables is saved; answers are gathered, one write a connection.

What a turn promises, in this order:

1. An answer that depends on the log being durable (SYNC_FLUSH) or on more nodes than this one (SYNC_MASTER) waits in
   `acks` until the log is so up to its end offset (`ready`). One flush is under way at a time; what comes meanwhile
   shares the next one (group commit).
2. Tables that a turn changed (topics, groups) are saved once, at its end. From the request that changed one on,
   the turn's answers travel in the `then` of that save (pulls aside: they promise nothing). If it fails they
   become errors.
3. Consumer and delay offsets are saved behind a flush of the log, so that after a power cut they never stand
   for messages that are gone.
4. Bytes that are no request close their connection, after the answers to what stood before them.

States: new → (`Start`: recovery) running → (`Shutdown`) ending → ended. A failed fsync ends the node: what the
kernel dropped can't be written again, so nothing more may be acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import Any

from perseid.base.errors import LocalProtocolError
from perseid.base.machine import (
    Buffer,
    Closed,
    ConnectFailed,
    ConnId,
    DiskFailed,
    Effect,
    Event,
    Feed,
    Frames,
    Millis,
    Opened,
    Reads,
    Shutdown,
    Start,
    Stop,
    Tick,
)
from perseid.broker.acks import Acks
from perseid.broker.answers import Answers
from perseid.broker.arrivals import Arrivals, Service
from perseid.broker.clients import ConsumerTable, ProducerTable
from perseid.broker.config import BrokerConfig
from perseid.broker.cuts import cut_log
from perseid.broker.delay import OFFSETS_PATH as DELAYS_PATH
from perseid.broker.delay import DelayService
from perseid.broker.escape import Escape
from perseid.broker.fast import CoreSends, PlainSends, sends_of
from perseid.broker.fetches import Fetched, Fetches
from perseid.broker.group import Group, store_of
from perseid.broker.groups import GROUPS_PATH, SubscriptionGroupTable
from perseid.broker.handlers import mapped
from perseid.broker.hold import Holds
from perseid.broker.kernel.dispatch import Dispatch
from perseid.broker.kernel.durability import Durability
from perseid.broker.kernel.generation import Generation
from perseid.broker.kernel.roles import Roles
from perseid.broker.kernel.route import route_table
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.lite.service import LiteService
from perseid.broker.live import Kept, LiveSettings
from perseid.broker.locks import QueueLocks
from perseid.broker.mappings import MAPPINGS_PATH, TopicMappings
from perseid.broker.offsets import LMQ_OFFSETS_PATH, OFFSETS_PATH, ConsumerOffsets
from perseid.broker.peers import Peers
from perseid.broker.pop.modes import MODES_PATH
from perseid.broker.pop.order import ORDER_PATH
from perseid.broker.pop.service import PopService
from perseid.broker.put import Appender, Transformer
from perseid.broker.registration import Registration
from perseid.broker.replicas import Replicas
from perseid.broker.request import Connection, Reply
from perseid.broker.routes import routes
from perseid.broker.saves import Saved, Saves, StateFile
from perseid.broker.static_cleaner import StaticCleaner
from perseid.broker.stats import BrokerStats
from perseid.broker.switch import role_hooks
from perseid.broker.timer_metrics import METRICS_PATH
from perseid.broker.timers import CheckpointSaved, TimerService
from perseid.broker.topics import TOPICS_PATH, TopicTable
from perseid.broker.transactions import TransactionService
from perseid.disk.port import Disk
from perseid.raft.config import RaftConfig
from perseid.raft.files import FileLog
from perseid.raft.state import RaftEvent
from perseid.replication.config import ReplicationConfig
from perseid.replication.receiver import LISTENER as HA_LISTENER
from perseid.store.config import SYNC_FLUSH, StoreConfig
from perseid.store.plain import packed_host
from perseid.store.results import Flushed, StoreEvent
from perseid.store.timer.timers import TimerLogDurable
from perseid.store.truncation import Cut
from perseid.wire import command as wire
from perseid.wire.codes import ResponseCode
from perseid.wire.host import NOWHERE, Host, host_from
from perseid.wire.ids import UniqueIds
from perseid.wire.names import SCHEDULE_TOPIC, TIMER_TOPIC
from perseid.wire.rpc import Caller

HOUSEKEEPING_MS = 10_000
SOON_MS = 50
"""After a turn of plain sends only, deadlines are not worked out anew until this has passed."""


class _Ended:
    """Fed back when everything that a shutdown had to save is durable."""


class Broker:
    """A broker on a disk. `properties` gives its configuration under the original's names (code 26)."""

    def __init__(
        self,
        config: BrokerConfig,
        store_config: StoreConfig,
        disk: Disk,
        random: Random,
        *,
        properties: Callable[[], dict[str, str]] | None = None,
        kept: tuple[str, str] = ("", ""),
        replication: ReplicationConfig | None = None,
        raft: RaftConfig | None = None,
        new_log: type[FileLog] = FileLog,
    ) -> None:
        """`raft`: the log is that of a group, made by `new_log`. `kept`: the file of settings (`live`), or why none."""
        self.disk = disk
        self.random = random
        self.settings = Settings(config)
        self.answers = Answers(config)
        self.caller = Caller()
        self.turn = Turn(self.answers, self.caller)
        self.generation = Generation()
        self.roles = Roles(self.turn, self.settings)
        self.group = Group(self, raft, store_config, disk, random, new_log) if raft is not None else None
        self.store = store_of(self, store_config)
        self.acks = Acks()
        self.replicas = Replicas(self, replication or ReplicationConfig())
        self.topics = TopicTable(config, 0, lmq=store_config.lmq)
        self.store.batch_topics, self.store.compaction.topics = self.topics.batch_topics, self.topics.compacted
        self.mappings = TopicMappings(config.broker_name)
        self.groups = SubscriptionGroupTable(0, lmq=store_config.lmq)
        self.offsets = ConsumerOffsets(0, lmq=store_config.lmq)
        one_row = self.store.lmq and not config.enable_lmq_stats
        self.stats = BrokerStats(0, self.topics.is_system, one_row_of_lmq=one_row)
        sync_flush = store_config.flush_disk_type == SYNC_FLUSH and self.group is None
        self.durability = Durability(
            self.turn, self.settings, self.store, self.replicas, self.acks, self.stats, sync_flush=sync_flush
        )
        self.saves = Saves(self.turn, self.settings, self.store, disk)
        self.dispatch = Dispatch(self.turn, self.saves, self.generation, self.caller)
        self._build_parts(random)
        self.live = LiveSettings(self, properties, *kept)
        self.saves.keep(self._files())
        self.roles.hang(role_hooks(self))
        self.dispatch.serve(route_table(routes(self)), (self.replicas.gate,), partial(mapped.serve, self))
        self._taken: list[tuple[ConnId, bytes, int]] = []
        """Answers to this turn's plain sends that have to wait: connection, frames, messages."""
        self._state = "new"
        self._housekeeping_at = self._deadline = 0
        self._deadlines: list[Callable[[], Millis | None]] = []
        self._events = self._handlers()

    def _build_parts(self, random: Random) -> None:
        self.producers = ProducerTable(self.turn, self.settings)
        self.consumers = ConsumerTable(self.turn, self.settings)
        self.locks = QueueLocks()
        self.holds = Holds()
        self.fetches = Fetches()
        self.appender = Appender(self.turn, self.store, self.durability, self.stats)
        self.delay = DelayService(self)
        self.escape = Escape(self)
        self.timers = TimerService(self)
        self.transformer = Transformer(self.store, self.timers)
        self.transactions = TransactionService(self)
        self.pop = PopService(self)
        self.lite = LiteService(self)
        self.arrivals = Arrivals(
            self.store, self.roles, self.holds, self.stats,
            (
                Service(SCHEDULE_TOPIC, self.delay.arrived),
                Service(TIMER_TOPIC, lambda queue_id, tag_code: self.timers.arrived()),
                Service(self.pop.topic, lambda queue_id, tag_code: self.pop.arrived(queue_id), on_slave=True),
            ),
            self.lite.arrived,
        )  # fmt: skip
        self.peers = Peers(self)
        self.registration = Registration(
            self.turn, self.settings, self.caller, self.topics, self.mappings, self.replicas
        )
        self.static_cleaner = StaticCleaner(self)
        self.unique_ids = UniqueIds(self.store_host.ip, random.getrandbits(16), random.getrandbits(32))
        self.connections: dict[ConnId, Connection] = {}
        self.plain_sends: CoreSends | PlainSends | None = sends_of(self)

    # ---- until each part has its own ports ----

    @property
    def now(self) -> Millis:
        return self.turn.now

    @property
    def config(self) -> BrokerConfig:
        return self.settings.current

    @property
    def store_host(self) -> Host:
        return self.settings.store_host

    def note(self, level: str, text: str) -> None:
        self.turn.note(level, text)

    def _files(self) -> tuple[StateFile, ...]:
        """The state files; those that are saved in one turn are so in this order."""

        def offsets_ms(config: BrokerConfig) -> Millis:
            return config.flush_consumer_offset_interval

        def delays_ms(config: BrokerConfig) -> Millis:
            return config.flush_delay_offset_interval

        topics, groups, mappings, offsets = self.topics, self.groups, self.mappings, self.offsets
        order, modes, delay, metrics = self.pop.order, self.pop.modes, self.delay, self.timers.metrics
        return (
            StateFile(path=GROUPS_PATH, table=groups, text=groups.to_json),
            StateFile(
                path=MAPPINGS_PATH, table=mappings, text=mappings.to_json,
                in_use=lambda: mappings.version.counter > 0,
            ),
            StateFile(
                path=TOPICS_PATH, table=topics, text=topics.to_json, loaded_first=True,
                told=lambda: self.registration.topics_changed(topics.take_changed(), self.turn.now),
            ),
            StateFile(path=MODES_PATH, table=modes, text=modes.to_json),
            StateFile(
                path=offsets.path, table=offsets, text=offsets.to_json, every=offsets_ms,
                instead=OFFSETS_PATH if offsets.path == LMQ_OFFSETS_PATH else "",
            ),
            StateFile(path=ORDER_PATH, table=order, text=lambda: order.to_json(self.turn.now), every=offsets_ms),
            StateFile(path=DELAYS_PATH, table=delay, text=delay.to_json, every=delays_ms),
            StateFile(
                path=METRICS_PATH, table=metrics, text=metrics.to_json, every=delays_ms, in_use=lambda: metrics.dirty
            ),
        )  # fmt: skip

    def _handlers(self) -> dict[type[Any], Callable[[Any], None]]:
        """What is done with each kind of event."""
        return {
            Frames: lambda event: self._on_reads((event,)),
            Reads: lambda event: self._on_reads(event.frames),
            Opened: self._on_opened,
            Closed: self._on_closed,
            ConnectFailed: self._on_connect_failed,
            Tick: self._on_tick,
            Flushed: self._on_flushed,
            Fetched: self._on_fetched,
            DiskFailed: self._on_disk_failed,
            Start: self._on_start,
            Shutdown: self._on_shutdown,
            Saved: self.saves.saved,
            Kept: self.live.kept,
            Cut: lambda event: cut_log(self, event),
            TimerLogDurable: self.timers.durable,
            CheckpointSaved: self.timers.saved,
            _Ended: self._on_ended,
            **self.replicas.handlers(),
        }

    # ---- the machine ----

    def handle(self, event: Event, now: Millis) -> list[Effect]:
        """One turn. StoreError when the store can't be opened at `Start`."""
        out = self.turn.begin(now)
        self.dispatch.only_plain = self.group is None and type(event) in (Reads, Frames)
        if self._state == "ended":
            return out
        self.durability.begin()
        handler = self._events.get(type(event))
        if handler is not None:
            handler(event)
        elif isinstance(event, StoreEvent):
            out.extend(self.store.handle(event))
        elif isinstance(event, RaftEvent) and self.group is not None:
            self.group.feed(event)
        else:
            raise AssertionError(f"no event of a broker: {event!r}")
        if self._state != "ended":
            self._settle()
        return out

    def next_deadline(self) -> Millis | None:
        if self._state != "running":
            return None
        if self.dispatch.only_plain:  # only the store may have something to do sooner than before: look again soon
            return min(self._deadline, self.turn.now + SOON_MS)
        deadline = self._housekeeping_at
        for next_deadline in self._deadlines:
            if (due := next_deadline()) is not None and due < deadline:
                deadline = due
        self._deadline = deadline
        return deadline

    def validate(self) -> None:
        if self._state != "running":
            return
        for part in (
            self.store, self.topics, self.mappings, self.groups, self.offsets, self.locks, self.holds, self.timers,
            self.peers, self.replicas,
        ):  # fmt: skip
            part.validate()
        if not self.replicas.is_slave:
            self.delay.validate()
            self.transactions.validate()
            self.pop.validate()
            self.lite.validate()
        self.durability.validate()
        self.saves.validate()
        self.turn.validate()

    # ---- requests ----

    def _on_reads(self, reads: Iterable[Frames]) -> None:
        sends = self.plain_sends if self._state == "running" else None
        clients: list[tuple[Connection, Buffer]] = []
        for frames in reads:
            conn = self.connections.get(frames.conn)
            if conn is not None:
                clients.append((conn, frames.data))
            elif self._state == "running" and self.replicas.owns(frames.conn):
                self.replicas.received(frames)  # before sends are gathered: it may end our term
        for conn, data in clients:
            commands = wire.decode_each(data) if sends is None else sends.unusual(conn, data)
            if commands:
                self.dispatch.take(conn, commands)
            if sends is None:
                continue
            count = sends.taken if self.durability.waits else 0
            answers = sends.answers()
            if count:
                self._taken.append((conn.id, answers, count))
            elif answers:
                self.turn.write(conn.id, answers)
        if sends is not None:
            sends.settle()
            for conn_id, answers, count in self._taken:
                self.durability.acknowledge_frames(conn_id, answers, count)
            self._taken.clear()

    # ---- connections ----

    def _on_opened(self, event: Opened) -> None:
        if event.listener == HA_LISTENER or self.replicas.is_groups(event):
            self.replicas.opened(event)
            return
        try:
            born_host = host_from(event.peer)
        except LocalProtocolError:
            born_host = NOWHERE
            self.turn.note("warning", f"connection {event.conn} has a peer without an address: {event.peer!r}")
        self.connections[event.conn] = Connection(
            event.conn, event.peer, event.local, event.listener, event.dialled, born_host, packed_host(born_host)
        )
        if event.dialled:
            self.turn.emit_all(self.caller.handle(event, self.turn.now))

    def _on_closed(self, event: Closed) -> None:
        conn = self.connections.pop(event.conn, None)
        if conn is None:
            self.replicas.closed(event)
            return
        self.generation.rise()
        self.holds.connection_closed(event.conn)
        self.turn.emit_all(self.caller.handle(event, self.turn.now))
        if conn.dialled:
            self.registration.connection_closed(conn.dialled, self.turn.now)
            self.replicas.dialled_closed(conn.dialled, self.turn.now)
        self.producers.connection_closed(event.conn)
        self.consumers.connection_closed(event.conn)

    def _on_connect_failed(self, event: ConnectFailed) -> None:
        self.replicas.connect_failed(event)
        self.turn.emit_all(self.caller.handle(event, self.turn.now))

    # ---- time and durability ----

    def _on_tick(self, event: Tick) -> None:
        if self._state != "running":
            return
        now = self.turn.now
        self.durability.tick(now)
        if not self.replicas.is_slave or self.escape.on:
            self.delay.tick(now)
            self.transactions.tick(now)
        if not self.replicas.is_slave:
            self.pop.tick(now)
        self.lite.tick(now)
        self.timers.tick(now)
        self.replicas.tick(now)
        self.turn.emit_all(self.store.tick(now))
        self.turn.emit_all(self.caller.handle(event, now))
        self.registration.tick(now)
        self.static_cleaner.tick(now)
        self.saves.tick(now)
        if self.plain_sends is not None:
            self.plain_sends.count()
        if self.timers.quick is not None:
            self.timers.quick.count()
        self.stats.tick(now)
        if now >= self._housekeeping_at:
            self._housekeeping_at = now + HOUSEKEEPING_MS
            self.generation.rise()
            self.producers.expire(now)
            self.consumers.expire(now)
            self.locks.expire(now)

    def _on_flushed(self, event: Flushed) -> None:
        self.durability.flushed()
        self.turn.emit_all(self.store.handle(event))

    def _on_fetched(self, event: Fetched) -> None:
        request = self.fetches.fetched(event)
        if self.connections.get(request.conn.id) is not request.conn:
            return
        if event.failed:
            self.turn.reply(request, Reply(ResponseCode.SYSTEM_ERROR, remark="the disk can't read these messages"))
        else:
            self.dispatch.request(request)

    def _on_disk_failed(self, event: DiskFailed) -> None:
        if self.group is not None and event.path.startswith(self.group.folder):
            self.group.feed(event)
            return
        if self.saves.failed(event):
            if self._state == "ending":
                self._end(f"{event.path} was not saved: {event.reason}")
            return
        if self.live.failed(event):
            return
        if self.timers.failed(event) or self.store.lives_on(event, self.turn.now):
            self.turn.note("error", f"{event.path} could not be saved: {event.reason}; tried again")
            return
        self.fail(
            f"{event.path}: {event.reason}",
            f"{event.path}: {event.reason}: what was not yet durable may be lost; restart to recover",
        )

    def fail(self, reason: str, text: str = "") -> None:
        """Nothing may be promised any more: end here and now. `text`: what people are told."""
        self.store.fail(reason)
        self._stop(text or reason)

    def _stop(self, reason: str) -> None:
        self._state = "ended"
        self.dispatch.serves = False
        self.turn.emit(Stop(reason))

    def _settle(self) -> None:
        """Finish a turn: follow the group, wake held pulls, ask for the flush that acknowledgements wait for, write."""
        self.live.settle()
        self.transactions.do_words(self.dispatch.request)
        self.pop.settle()
        self.replicas.settle()  # first: what a group has committed, pulls wait for
        ready = self.holds.take_ready(self.turn.now)
        while ready:
            for request in ready:
                self.dispatch.request(request)
            ready = self.holds.take_ready(self.turn.now)
        self.saves.settle()
        self.durability.settle()
        self.turn.end()
        self.dispatch.close_refused()

    # ---- begin and end ----

    def _on_start(self, event: Start) -> None:
        now = self.turn.now
        self.saves.load_first()  # the store makes queues of their kind
        report = self.store.load(now)
        for note in report.notes:
            self.turn.note("info", note)
        self.arrivals.listen()
        self.stats.start(now)
        self.saves.load(now)
        self.timers.load(now)
        self.lite.load(now)
        if not self.replicas.is_slave:
            self.delay.start(now)
            self.timers.start(now)
            self.transactions.start()
            self.pop.start(now)
            self.lite.start(now)
        self.static_cleaner.start(now)
        self._housekeeping_at = now + HOUSEKEEPING_MS
        self._deadlines = [part.next_deadline for part in (
            self.store, self.holds, self.durability, self.delay, self.timers, self.transactions, self.pop, self.lite,
            self.stats, self.caller, self.registration, self.saves, self.static_cleaner, self.replicas,
        )]  # fmt: skip
        self._state = "running"
        self.dispatch.serves = True
        self.saves.tables()
        self.replicas.start(now)

    def _on_shutdown(self, event: Shutdown) -> None:
        if self._state != "running":
            self._stop("")
            return
        self._state = "ending"
        self.dispatch.serves = False
        self.registration.stop(self.turn.now)
        self.replicas.stop()
        self.pop.tell_progress()
        if self.group is not None:
            self.group.stop([])
        self.saves.everything([Feed(_Ended())])

    def _on_ended(self, event: _Ended) -> None:
        self._end("")

    def _end(self, reason: str) -> None:
        """Close the store, give the last answers, and stop: cleanly when there is no reason against it."""
        self.timers.close()
        failure = self.store.close(self.turn.now)
        if failure:
            self._stop(f"{failure}; the next start checks all of it")
            return
        self.durability.release()
        self._settle()
        self._stop(reason)
