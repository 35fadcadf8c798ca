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

import traceback
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from perseid.base.errors import LocalProtocolError, RemoteProtocolError, RequestRefused
from perseid.base.machine import (
    Buffer,
    Close,
    Closed,
    ConnectFailed,
    ConnId,
    DiskFailed,
    Effect,
    Event,
    Feed,
    Frames,
    Millis,
    Note,
    Opened,
    Reads,
    Shutdown,
    Start,
    Stop,
    Tick,
    Write,
)
from perseid.broker import lateness
from perseid.broker.acks import Acks
from perseid.broker.answers import Answers
from perseid.broker.arrivals import Arrivals
from perseid.broker.clients import ConsumerTable, ProducerTable
from perseid.broker.config import BrokerConfig
from perseid.broker.cuts import cut_log
from perseid.broker.delay import DelayService
from perseid.broker.escape import Escape
from perseid.broker.fast import CoreSends, PlainSends, sends_of
from perseid.broker.fetches import Fetched, Fetches
from perseid.broker.group import Group, store_of
from perseid.broker.groups import SubscriptionGroupTable
from perseid.broker.handlers import mapped
from perseid.broker.handlers.mapped import MAPPED
from perseid.broker.hold import Holds
from perseid.broker.lite.service import LiteService
from perseid.broker.live import Kept, LiveSettings
from perseid.broker.locks import QueueLocks
from perseid.broker.mappings import TopicMappings
from perseid.broker.offsets import ConsumerOffsets
from perseid.broker.peers import Peers
from perseid.broker.pop.service import PopService
from perseid.broker.pulls import KEEP_EPOCH
from perseid.broker.registration import Registration
from perseid.broker.replicas import Replicas
from perseid.broker.request import VIP_LISTENER, Connection, Reply, Request
from perseid.broker.routes import NOT_ON_VIP, READS, ROUTES
from perseid.broker.saves import Saved, Saves
from perseid.broker.static_cleaner import StaticCleaner
from perseid.broker.stats import BrokerStats
from perseid.broker.timers import CheckpointSaved, TimerService
from perseid.broker.topics import TopicTable
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
from perseid.wire.command import Command
from perseid.wire.host import NOWHERE, host_from
from perseid.wire.ids import UniqueIds
from perseid.wire.properties import encode as encode_properties
from perseid.wire.rpc import Caller, Failure, Fields

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
        self.config = config
        self.disk = disk
        self.random = random
        self.now: Millis = 0
        self.store_host = host_from(config.address)
        self.group = Group(self, raft, store_config, disk, random, new_log) if raft is not None else None
        self.store = store_of(self, store_config)
        self.sync_flush = store_config.flush_disk_type == SYNC_FLUSH and self.group is None
        self.replicas = Replicas(self, replication or ReplicationConfig())
        for_nodes = self.replicas.synchronous or self.group is not None
        self.waits: bool = self.sync_flush or for_nodes
        """Acknowledgements wait: for the disk, for slaves, for both, or for the group."""
        self.topics = TopicTable(config, 0, lmq=store_config.lmq)
        self.store.batch_topics, self.store.compaction.topics = self.topics.batch_topics, self.topics.compacted
        self.mappings = TopicMappings(config.broker_name)
        self.groups = SubscriptionGroupTable(0, lmq=store_config.lmq)
        self.offsets = ConsumerOffsets(0, lmq=store_config.lmq)
        self.producers = ProducerTable()
        self.consumers = ConsumerTable()
        self.locks = QueueLocks()
        self.holds = Holds()
        self.acks = Acks(for_nodes=for_nodes)
        self.fetches = Fetches()
        self.delay = DelayService(self)
        self.escape = Escape(self)
        self.timers = TimerService(self)
        self.transactions = TransactionService(self)
        self.pop = PopService(self)
        self.lite = LiteService(self)
        self.stats = BrokerStats(0)
        self.arrivals = Arrivals(self)
        self.caller = Caller()
        self.peers = Peers(self)
        self.registration = Registration(self)
        self.saves = Saves(self)
        self.static_cleaner = StaticCleaner(self)
        self.answers = Answers(config)
        self.unique_ids = UniqueIds(self.store_host.ip, random.getrandbits(16), random.getrandbits(32))
        self.connections: dict[ConnId, Connection] = {}
        self.own_properties: bytes = encode_properties(self.answers.own_properties)
        self.plain_sends: CoreSends | PlainSends | None = sends_of(self)
        self.epoch = 0
        """Rises when something may have changed that the checks of a pull look at (`pulls`)."""
        self.live = LiveSettings(self, properties, *kept)
        self._out: list[Effect] = []
        self._writes: dict[ConnId, Buffer | list[Buffer]] = {}
        """What this turn sends: bytes, or a list of them."""
        self._after_save: list[tuple[Request, Reply]] = []
        self._unflushed: list[tuple[ConnId, bytes, int]] = []
        self._refused: dict[ConnId, str] = {}
        self._flushing = False
        self._state = "new"
        self._housekeeping_at = self._deadline = 0
        self._deadlines: list[Callable[[], Millis | None]] = []
        self._only_plain = False
        self._events = self._handlers()

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
        self.now = now
        self._only_plain = self.group is None and type(event) in (Reads, Frames)
        out = self._out = []
        if self._state == "ended":
            return out
        if self.waits:
            self.acks.turn(self.store.end)
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
        if self._only_plain:  # only the store may have something to do sooner than before: look again soon
            return min(self._deadline, self.now + SOON_MS)
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
        self.acks.validate(self.ready)
        assert not self._writes and not self._after_save, "an answer was not written"

    @property
    def ready(self) -> int:
        """What ends up to here in the log is as durable as the mode promises."""
        own = self.store.flushed if self.sync_flush else self.store.end
        return min(own, self.replicas.replicated()) if self.replicas.synchronous else own

    @property
    def most_wait_ms(self) -> int:
        """How long an acknowledgement waits at most."""
        if self.group is not None:
            return self.group.raft.config.max_wait_ack_time_ms
        own = self.config.sync_flush_timeout if self.sync_flush else self.replicas.config.slave_timeout
        return min(own, self.replicas.config.slave_timeout) if self.replicas.synchronous else own

    # ---- for handlers ----

    def emit(self, effect: Effect) -> None:
        """Add an effect to this turn."""
        self._out.append(effect)

    def note(self, level: str, text: str) -> None:
        self._out.append(Note(level, text))

    def call(
        self, address: str, code: int, header: Fields, body: Buffer, timeout_ms: Millis,
        ended: Callable[[Command | Failure, Millis], None],
    ) -> None:  # fmt: skip
        """Ask another node; `ended` is told once how it ended, perhaps at once, and emits what follows from it."""

        def answered(answer: Command | Failure, now: Millis) -> list[Effect]:
            ended(answer, now)
            return []

        self._out.extend(self.caller.call(address, code, header, body, self.now, timeout_ms, answered))

    def write(self, conn: ConnId, data: Buffer) -> None:
        """Send bytes with this turn's answers on a connection."""
        before = self._writes.get(conn)
        if before is None:
            self._writes[conn] = data
        elif isinstance(before, list):
            before.append(data)
        else:
            self._writes[conn] = [before, data]

    def reply(self, request: Request, reply: Reply) -> None:
        """Answer a request now; a one-way request has no answer."""
        if not request.command.is_oneway:
            if request.finish is not None:
                reply = request.finish(reply)
            for piece in self.answers.encode(request, reply):
                self.write(request.conn.id, piece)

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
                self._serve(conn, commands)
            if sends is None:
                continue
            count = sends.taken if self.waits else 0
            answers = sends.answers()
            if count:
                self._unflushed.append((conn.id, answers, count))
            elif answers:
                self.write(conn.id, answers)
        if sends is not None:
            sends.settle()
            for conn_id, answers, count in self._unflushed:
                self.acks.wait_frames(self.store.appended_end, self.now, self.most_wait_ms, conn_id, answers, count)
            self._unflushed.clear()

    def _serve(self, conn: Connection, commands: Iterable[Command]) -> None:
        """Hand the commands of a connection on, one after the other."""
        try:
            for command in commands:
                self._only_plain = False
                if command.is_response:
                    self._out.extend(self.caller.answered(conn.id, command, self.now))
                else:
                    self._dispatch(Request(conn, command, None))
        except RemoteProtocolError as error:
            self.note("warning", f"connection {conn.id} of {conn.peer}: {error}; it is closed")
            self._refused[conn.id] = str(error)

    def _dispatch(self, request: Request) -> None:
        """Hand one request to its handler, and its answer to this turn."""
        if request.command.code not in KEEP_EPOCH:
            self.epoch += 1
        try:
            reply = self._handled(request)
        except RequestRefused as refused:
            reply = Reply(refused.code, remark=refused.remark)
        except (AssertionError, RemoteProtocolError):
            raise
        except Exception as error:
            self.note("error", f"request {request.command.code} of {request.conn.peer}: {traceback.format_exc()}")
            reply = Reply(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")
        if reply is not None:
            self.answer(request, reply)

    def answer(self, request: Request, reply: Reply) -> None:
        """Answer a request of this turn: when what it changed is durable."""
        if request.command.is_oneway:
            return
        if self.saves.due and request.command.code not in READS:
            self._after_save.append((request, reply))
        else:
            self.reply(request, reply)

    def _handled(self, request: Request) -> Reply | None:
        code = request.command.code
        route = ROUTES.get(code)
        if route is None or (request.conn.listener == VIP_LISTENER and code in NOT_ON_VIP):
            raise RequestRefused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {code} not supported")
        if self._state != "running":
            raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, "the broker is shutting down")
        if self.replicas.hands_on(request):
            return None
        self.replicas.check(code)
        if route.header is not None and request.header is None:
            request.header = request.command.header(route.header)
        if (self.mappings.rows or request.asked is not None) and code in MAPPED:
            return mapped.serve(self, request, route.handler)
        return route.handler(self, request)

    # ---- connections ----

    def _on_opened(self, event: Opened) -> None:
        if event.listener == HA_LISTENER or self.replicas.is_groups(event):
            self.replicas.opened(event)
            return
        try:
            born_host = host_from(event.peer)
        except LocalProtocolError:
            born_host = NOWHERE
            self.note("warning", f"connection {event.conn} has a peer without an address: {event.peer!r}")
        self.connections[event.conn] = Connection(
            event.conn, event.peer, event.local, event.listener, event.dialled, born_host, packed_host(born_host)
        )
        if event.dialled:
            self._out.extend(self.caller.handle(event, self.now))

    def _on_closed(self, event: Closed) -> None:
        conn = self.connections.pop(event.conn, None)
        if conn is None:
            self.replicas.closed(event)
            return
        self.epoch += 1
        self.holds.connection_closed(event.conn)
        self._out.extend(self.caller.handle(event, self.now))
        if conn.dialled:
            self.registration.connection_closed(conn.dialled, self.now)
            self.replicas.dialled_closed(conn.dialled, self.now)
        self.producers.connection_closed(event.conn)
        self.consumers.connection_closed(self, event.conn)

    def _on_connect_failed(self, event: ConnectFailed) -> None:
        self.replicas.connect_failed(event)
        self._out.extend(self.caller.handle(event, self.now))

    # ---- time and durability ----

    def _on_tick(self, event: Tick) -> None:
        if self._state != "running":
            return
        now = self.now
        for late in self.acks.expire(now):
            lateness.answer(self, late)
        if not self.replicas.is_slave or self.escape.on:
            self.delay.tick(now)
            self.transactions.tick(now)
        if not self.replicas.is_slave:
            self.pop.tick(now)
        self.lite.tick(now)
        self.timers.tick(now)
        self.replicas.tick(now)
        self._out.extend(self.store.tick(now))
        self._out.extend(self.caller.handle(event, now))
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
            self.epoch += 1
            self.producers.expire(self, now)
            self.consumers.expire(self, now)
            self.locks.expire(now)

    def give_up_waiting(self, why: str) -> None:
        """Nobody knows what becomes of the messages that are waited for: say so."""
        for one in self.acks.give_up():
            lateness.answer_instead(self, one, ResponseCode.SYSTEM_ERROR, f"UNKNOWN_ERROR: {why}")

    def _on_flushed(self, event: Flushed) -> None:
        self._flushing = False
        self._out.extend(self.store.handle(event))

    def _on_fetched(self, event: Fetched) -> None:
        request = self.fetches.fetched(event)
        if self.connections.get(request.conn.id) is not request.conn:
            return
        if event.failed:
            self.reply(request, Reply(ResponseCode.SYSTEM_ERROR, remark="the disk can't read these messages"))
        else:
            self._dispatch(request)

    def _release(self) -> None:
        """Give the answers whose messages are as durable as promised now."""
        for done in self.acks.release(self.ready):
            self.stats.put_took(self.now - done.since, done.count)
            if done.request is not None and done.reply is not None:
                self.reply(done.request, done.reply)
            elif done.frames:
                self.write(done.conn, done.frames)

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
        if self.timers.failed(event) or self.store.lives_on(event, self.now):
            self.note("error", f"{event.path} could not be saved: {event.reason}; tried again")
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
        self._out.append(Stop(reason))

    def _settle(self) -> None:
        """Finish a turn: follow the group, wake held pulls, ask for the flush that acknowledgements wait for, write."""
        self.live.settle()
        self.transactions.do_words(self._dispatch)
        self.pop.settle()
        self.replicas.settle()  # first: what a group has committed, pulls wait for
        ready = self.holds.take_ready(self.now)
        while ready:
            for request in ready:
                self._dispatch(request)
            ready = self.holds.take_ready(self.now)
        if self.saves.due:
            self.saves.tables(self._after_save)
            self._after_save = []
        if len(self.acks):
            self._release()
        if self.sync_flush and len(self.acks) and not self._flushing and self.store.needs_flush:
            self._flushing = True
            self._out.append(self.store.flush([]))
        if self._writes:
            self._out += [Write(conn, pieces) for conn, pieces in self._writes.items()]
            self._writes.clear()
        if self._refused:
            self._out += [Close(conn, reason) for conn, reason in self._refused.items()]
            self._refused.clear()

    # ---- begin and end ----

    def _on_start(self, event: Start) -> None:
        now = self.now
        self.saves.load_topics()  # the store makes queues of their kind
        report = self.store.load(now)
        for note in report.notes:
            self.note("info", note)
        self.arrivals.listen()
        one_row = self.store.lmq and not self.config.enable_lmq_stats
        self.stats = BrokerStats(now, self.topics.is_system, one_row_of_lmq=one_row)
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
            self.store, self.holds, self.acks, self.delay, self.timers, self.transactions, self.pop, self.lite,
            self.stats, self.caller, self.registration, self.saves, self.static_cleaner, self.replicas,
        )]  # fmt: skip
        self._state = "running"
        self.saves.tables([])
        self.replicas.start(now)

    def _on_shutdown(self, event: Shutdown) -> None:
        if self._state != "running":
            self._stop("")
            return
        self._state = "ending"
        self.registration.stop(self.now)
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
        failure = self.store.close(self.now)
        if failure:
            self._stop(f"{failure}; the next start checks all of it")
            return
        self._release()
        self._settle()
        self._stop(reason)
