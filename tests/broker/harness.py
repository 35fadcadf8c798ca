"""A whole broker on a folder of this machine, asked frame by frame; its effects are carried out here at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from random import Random
from typing import Any, ClassVar, TypeVar

from perseid.base.config import to_properties
from perseid.base.machine import (
    Close,
    Closed,
    Connect,
    DiskFailed,
    Effect,
    Event,
    Feed,
    Fetch,
    Flush,
    Frames,
    Note,
    Opened,
    SaveState,
    Shutdown,
    Start,
    Stop,
    Tick,
    Write,
)
from perseid.broker.access.config import Access
from perseid.broker.composition import Parts
from perseid.broker.config import BrokerConfig
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.node import Broker
from perseid.disk.real import RealDisk, RealFile
from perseid.raft.config import RaftConfig
from perseid.replication.config import ReplicationConfig
from perseid.store.config import StoreConfig
from perseid.wire import command
from perseid.wire.command import Command
from perseid.wire.ha import encode_report
from perseid.wire.headers.base import Header
from perseid.wire.headers.send import SendMessageRequest, SendMessageResponse
from perseid.wire.record import Record, decode_all

H = TypeVar("H", bound=Header)

NOW = 1_700_000_000_000
SMALL = StoreConfig(
    commit_log_file_bytes=1 << 20,
    consume_queue_file_bytes=2_000,
    max_hash_slot_num=100,
    max_index_num=1_000,
    timer_log_file_bytes=52 * 100 + 16,
    timer_wheel_slots=4_096,
)


class CountedDisk(RealDisk):
    """Keeps its files in `opened`: a test's end closes them, for the collector leaves hundreds of brokers about."""

    opened: ClassVar[list[RealFile]] = []

    def open(self, path: str, size: int | None = None, *, sparse: bool = False) -> RealFile:
        file = super().open(path, size, sparse=sparse)
        self.opened.append(file)
        return file


class Rig:
    """One broker, and clients 1, 2, … that are connected to it when they first ask.

    After `hold_io` flushes and saves wait in `io` until `finish_io` or `fail_io`.
    """

    def __init__(
        self,
        root: Path,
        now: int = NOW,
        store: StoreConfig = SMALL,
        replication: ReplicationConfig | None = None,
        raft: RaftConfig | None = None,
        kept: tuple[str, str] = ("", ""),
        access: Access | None = None,
        **settings: Any,
    ) -> None:
        """`raft`: of a group of one member, which leads when this returns."""
        self.config = BrokerConfig(**{"broker_name": "b", "broker_cluster_name": "C", **settings})
        self.disk = CountedDisk(str(root))
        self.io: deque[Flush | SaveState] = deque()
        self.fetches: deque[Fetch] = deque()
        self._io_held = False
        self.broker = Broker(
            self.config,
            store,
            self.disk,
            Random(1),
            properties=lambda: to_properties(self.parts.settings.current, store),
            replication=replication,
            raft=raft,
            kept=kept,
            access=access,
        )
        self.now = now
        self.sent: dict[int, list[Command]] = {}
        self.streams: dict[int, bytearray] = {}
        """What was sent on connections of the HA stream."""
        self.dialled: list[str] = []
        self.closed: list[int] = []
        self.notes: list[Note] = []
        self.saved: list[str] = []
        self.stopped: str | None = None
        self._opaque = 100
        self.handle(Start())
        while raft is not None and self.parts.roles.is_slave and self.now < now + 60_000:
            self.now += 100
            self.handle(Tick())

    @property
    def parts(self) -> Parts:
        """The broker's own."""
        return self.broker.parts

    def handle(self, event: Event) -> None:
        self._carry_out(self.broker.handle(event, self.now))
        self.broker.validate()

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Write) and effect.conn in self.streams:
                pieces = [effect.data] if isinstance(effect.data, bytes) else effect.data
                self.streams[effect.conn] += b"".join(bytes(piece) for piece in pieces)
            elif isinstance(effect, Connect):
                self.dialled.append(effect.address)
            elif isinstance(effect, Write):
                data = effect.data if isinstance(effect.data, bytes | bytearray | memoryview) else b"".join(effect.data)
                self.sent.setdefault(effect.conn, []).extend(c.keep() for c in command.decode_all(bytes(data)))
            elif isinstance(effect, Flush | SaveState) and self._io_held:
                self.io.append(effect)
            elif isinstance(effect, SaveState):
                self.saved.append(effect.path)
                self.disk.write(effect.path, effect.data)
                self._carry_out(effect.then)
            elif isinstance(effect, Flush):
                for file in effect.files:
                    file.sync()
                self._carry_out(effect.then)
            elif isinstance(effect, Fetch):
                self.fetches.append(effect)
            elif isinstance(effect, Feed):
                self.handle(effect.event)
            elif isinstance(effect, Close):
                self.closed.append(effect.conn)
                self.handle(Closed(effect.conn, effect.reason))
            elif isinstance(effect, Note):
                self.notes.append(effect)
            elif isinstance(effect, Stop):
                self.stopped = effect.reason

    # ---- durability ----

    def hold_io(self) -> None:
        self._io_held = True

    def finish_io(self, count: int | None = None) -> None:
        """Carry out what waits: all of it, or the first `count`. What it asks for waits again."""
        for _ in range(len(self.io) if count is None else count):
            effect = self.io.popleft()
            self._io_held = False
            files, then = (effect.files, effect.then) if isinstance(effect, Flush) else ((), effect.then)
            for file in files:
                file.sync()
            if isinstance(effect, SaveState):
                self.saved.append(effect.path)
                self.disk.write(effect.path, effect.data)
            self._io_held = True
            self._carry_out(then)

    def fail_io(self, reason: str = "no space left") -> None:
        """The first that waits fails, and the broker hears of it."""
        effect = self.io.popleft()
        path = effect.path if isinstance(effect, SaveState) else next(iter(effect.files)).path
        self.handle(DiskFailed(path, reason))

    def fetch(self, *, fails: bool = False) -> None:
        """The reader thread has done, or could not do, what it was asked for first."""
        effect = self.fetches.popleft()
        for file, offset, length in effect.parts:
            file.fetch(offset, length)
        self._carry_out(effect.failed if fails else effect.then)

    # ---- time and life ----

    def until(self, now: int) -> None:
        """Let time pass, with all the ticks that the broker asks for."""
        while (due := self.broker.next_deadline()) is not None and due <= now:
            self.now = max(self.now, due)
            self.handle(Tick())
        self.now = now

    def stop(self) -> None:
        self.handle(Shutdown())
        assert self.stopped == ""

    # ---- clients ----

    def connect(self, client: int) -> None:
        if client not in self.parts.connections:
            self.handle(Opened(client, f"10.0.0.{client}:5000", "10.0.0.9:10911", "main"))

    def follow(self, slave: int, offset: int = 0) -> None:
        """A slave connects to the HA port and makes its request."""
        self.streams[slave] = bytearray()
        self.handle(Opened(slave, f"10.0.2.{slave}:5000", "10.0.0.9:10912", "ha"))
        self.report(slave, offset)

    def report(self, slave: int, offset: int) -> None:
        """A slave reports its log's end."""
        self.handle(Frames(slave, encode_report(offset)))

    def leave(self, client: int) -> None:
        self.handle(Closed(client, "left"))

    def tell(
        self,
        code: int,
        header: Header | Mapping[str, str | None] | None = None,
        body: bytes = b"",
        *,
        client: int = 1,
        oneway: bool = False,
    ) -> int:
        """Send a request; its opaque."""
        self.connect(client)
        self._opaque += 1
        frame = command.encode_request(code, self._opaque, header, body, oneway=oneway)
        self.handle(Frames(client, frame))
        return self._opaque

    def tell_all(self, requests: Iterable[tuple[int, Header]], *, client: int = 1) -> list[int]:
        """Send requests that come in one read; their opaques."""
        self.connect(client)
        first = self._opaque + 1
        frames = []
        for code, header in requests:
            self._opaque += 1
            frames.append(command.encode_request(code, self._opaque, header))
        self.handle(Frames(client, b"".join(frames)))
        return list(range(first, self._opaque + 1))

    def ask(
        self,
        code: int,
        header: Header | Mapping[str, str | None] | None = None,
        body: bytes = b"",
        *,
        client: int = 1,
    ) -> Command:
        """Send a request; its answer, which has to be there at once."""
        opaque = self.tell(code, header, body, client=client)
        answers = [c for c in self.sent[client] if c.is_response and c.opaque == opaque]
        assert len(answers) == 1, f"{len(answers)} answers"
        self.sent[client].remove(answers[0])
        return answers[0]

    def call(self, code: int, header: Any = None, body: bytes = b"") -> Reply:
        """The reply of a request's handler, in no turn; RequestRefused as it raises it."""
        self.connect(1)
        self.parts.turn.now = self.now
        request = Request(self.parts.connections[1], Command(body=body), header)
        reply = self.parts.dispatch.routes[code].handler(request)
        assert reply is not None
        return reply

    def answer(self, opaque: int, client: int = 1) -> Command | None:
        """The answer to a request of `tell`; None: there is none yet."""
        answers = [c for c in self.sent.get(client, []) if c.is_response and c.opaque == opaque]
        assert len(answers) < 2, f"{len(answers)} answers"
        return answers[0] if answers else None

    def told(self, client: int, code: int) -> list[Command]:
        """The requests with this code that a client got since the last look."""
        told = [c for c in self.sent.get(client, []) if not c.is_response and c.code == code]
        self.sent[client] = [c for c in self.sent.get(client, []) if c not in told]
        return told

    def send(self, topic: str, queue_id: int = 0, body: bytes = b"hello", properties: str = "") -> SendMessageResponse:
        """Store one message."""
        header = SendMessageRequest(
            producer_group="p",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=0,
            born_timestamp=self.now,
            flag=0,
            properties=properties,
        )
        answer = self.ask(10, header, body)
        assert answer.code == 0, answer.remark
        return answer.header(SendMessageResponse)


def records(rig: Rig, topic: str, queue_id: int = 0) -> list[Record]:
    """All that a queue holds, as readers see it."""
    found: list[Record] = []
    at = 0
    while at < rig.parts.store.reads.max_offset(topic, queue_id):
        read = rig.parts.store.reads.read(topic, queue_id, at, 32, 1 << 20)
        found += decode_all(b"".join(read.buffers))
        at = read.next_offset
    return found
