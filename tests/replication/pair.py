"""A master and a slave on simulated disks, and between them a stream whose bytes come cut anywhere."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

from perseid.base.machine import (
    Close,
    Closed,
    Connect,
    ConnectFailed,
    Effect,
    Feed,
    Fetch,
    Flush,
    Frames,
    Note,
    Opened,
    Write,
)
from perseid.replication.classic.node import ClassicReplication
from perseid.replication.config import ReplicationConfig
from perseid.replication.receiver import LISTENER, State
from perseid.replication.sender import FetchedFor
from perseid.store.results import StoreEvent
from perseid.wire.names import SCHEDULE_TOPIC
from store.harness import Node, message

MASTER = "10.0.0.1:10912"
ODD_PROPERTIES = tuple(
    text.encode()
    for text in (
        "", "UNIQ_KEY\x01one\x02", "TAGS\x01a\x02", "KEYS\x01 b  c \x02", "UNIQ_KEY\x01one\x02UNIQ_KEY\x01two\x02",
        "UNIQ_KEY\x01one\x02TAGS\x01a\x02TAGS\x01b\x02", "UNIQ_KEY\x01ü\x02", "UNIQ_KEY\x01one\x02TAGS\x01ü\x02",
        "UNIQ_KEY\x01one\x02DELAY\x013\x02", "UNIQ_KEY\x01\x02", "lonely\x02UNIQ_KEY\x01one\x02", "\x01x\x02",
        "UNIQ_KEY\x01one\x02CLUSTER\x01c\x02MSG_REGION\x01r\x02TRACE_ON\x01true\x02", "XTAGS\x01a\x02TAGSX\x01b\x02",
    )
)  # fmt: skip
PIECE = 700
"""The longest piece that arrives at once, but for a test that says otherwise."""


class Side:
    """A store with its replication, and what it did."""

    def __init__(self, node: Node, config: ReplicationConfig, *, slave: bool, pair: Pair | None = None) -> None:
        self.node = node
        self.pair = pair
        self.replication = ClassicReplication(config, node.store, self.prove if slave else None, now=node.now)
        self.notes: list[str] = []
        self.closed: list[int] = []
        self.flushes: list[Flush] = []
        """Asked for, and not carried out."""

    def prove(self, now: int) -> list[Effect]:
        assert self.pair is not None and self.replication.slave is not None
        slave, store = self.replication.slave, self.node.store
        theirs = self.pair.master.node.store.reads.record_at(store.log.last_offset)
        ours = store.reads.record_at(store.log.last_offset)
        if theirs is None or ours is None or bytes(theirs) != bytes(ours):
            why = f"another record at {store.log.last_offset}, ours ends at {store.log.end}"
            return slave.refuted(why, now, final=True)
        return slave.proved(now)


class Pair:
    """`master` and `slave`, connected when `up`."""

    def __init__(
        self, seed: int = 0, *, piece: int = PIECE, store: dict[str, Any] | None = None, **config: Any
    ) -> None:
        self.random = Random(seed)
        self.piece = piece
        self.config = ReplicationConfig(**config)
        self.up = True
        self._next = 0
        self._links: dict[int, int] = {}
        """Connection of one side → that of the other; the slave's are odd."""
        self.master = Side(self._node(1, store), self.config, slave=False)
        self.slave = Side(self._node(2, store), self.config, slave=True, pair=self)

    @staticmethod
    def _node(seed: int, store: dict[str, Any] | None) -> Node:
        node = Node(seed, **(store or {}))
        node.load()
        return node

    @property
    def now(self) -> int:
        return self.master.node.now

    def write(self, count: int, body_bytes: int = 40) -> None:
        """Messages of several topics and queues, keys and tags, most of them plain ones."""
        random = self.random
        for _ in range(count):
            n = random.randrange(1000)
            one = message(
                random.choice(("T", "U", "T", "ü", SCHEDULE_TOPIC)), random.randbytes(random.randrange(body_bytes)),
                n % 2, random.choice((0, 0, 0, 0, 1, 8, 4, 12)), UNIQ_KEY=f"k{n}", KEYS=f"a{n} b", TAGS=f"x{n % 5}",
            )  # fmt: skip
            if random.random() < 0.3:
                one.properties = random.choice(ODD_PROPERTIES)
            self.master.node.now += random.choice((0, 0, 0, 1, 1_500))
            self.slave.node.now = self.master.node.now
            self.master.node.store.appends.append(one, self.now)

    def follow(self) -> None:
        assert self.slave.replication.slave is not None
        self.run(self.slave, self.slave.replication.slave.follow(MASTER, self.now))

    def run(self, side: Side, effects: Iterable[Effect]) -> None:
        """Carry out effects of one side, and what follows at the other."""
        for effect in effects:
            if isinstance(effect, Write):
                pieces = [effect.data] if isinstance(effect.data, bytes | memoryview) else effect.data
                self._send(side, effect.conn, b"".join(bytes(p) for p in pieces))
            elif isinstance(effect, Connect):
                self._connect(effect)
            elif isinstance(effect, Close):
                side.closed.append(effect.conn)
                self.cut(effect.conn)
            elif isinstance(effect, Note):
                side.notes.append(effect.text)
            elif isinstance(effect, Flush):
                side.flushes.append(effect)
            elif isinstance(effect, Fetch):
                for then in effect.then:
                    assert isinstance(then, Feed) and isinstance(then.event, FetchedFor)
                    self.run(side, side.replication.fetched(then.event))
            else:
                raise AssertionError(f"no effect of replication: {effect}")
        side.replication.validate()
        side.node.store.validate()

    def _connect(self, effect: Connect) -> None:
        slave = self.slave.replication
        if not self.up:
            self.run(self.slave, slave.connect_failed(ConnectFailed(effect.address, "refused"), self.now))
            return
        near, far = self.connect()
        self.run(self.slave, slave.opened(Opened(near, MASTER, "", effect.listener, effect.address), self.now))
        assert far in self._links or self.slave.closed

    def connect(self) -> tuple[int, int]:
        """A connection to the master: its number here and there."""
        self._next += 2
        near, far = self._next - 1, self._next
        self._links |= {near: far, far: near}
        opened = Opened(far, f"10.0.0.2:{4000 + near}", MASTER, LISTENER)
        self.run(self.master, self.master.replication.opened(opened, self.now))
        return near, far

    def _send(self, side: Side, conn: int, data: bytes) -> None:
        other = self.slave if side is self.master else self.master
        while data and conn in self._links:
            size = self.random.randint(1, self.piece)
            piece, data = bytearray(data[:size]), data[size:]
            self.run(other, other.replication.received(Frames(self._links[conn], piece), self.now))
            piece[:] = b"\xee" * len(piece)

    def send_to_master(self, conn: int, data: bytes) -> None:
        """What a stranger, or a test, sends on its own connection."""
        self._send(self.slave, conn, data)

    def cut(self, conn: int) -> None:
        """A connection ends; both sides hear it."""
        other = self._links.pop(conn, None)
        if other is None:
            return
        del self._links[other]
        for number in (conn, other):
            side = self.slave if number % 2 else self.master
            self.run(side, side.replication.closed(Closed(number, "cut"), self.now))

    def settle(self) -> None:
        """Turns, until nothing more happens."""
        before = -1
        while before != self.slave.node.store.log.end:
            before = self.slave.node.store.log.end
            for side in (self.master, self.slave):
                self.run(side, side.replication.settle(self.now))

    def wait(self, ms: int) -> None:
        """Time passes for both."""
        end = self.now + ms
        while self.now < end:
            for side in (self.master, self.slave):
                side.node.now = min(end, side.node.now + 500)
                self.run(side, side.replication.tick(side.node.now))
            self.settle()

    def flush(self, side: Side) -> None:
        """Make all durable that a side has written."""
        for flush in [*side.flushes, side.node.store.flusher.flush([])]:
            for file in flush.files:
                file.sync()
            for then in flush.then:
                assert isinstance(then, Feed) and isinstance(then.event, StoreEvent)
                side.node.store.handle(then.event)
        side.flushes.clear()

    @property
    def state(self) -> State:
        assert self.slave.replication.slave is not None
        return self.slave.replication.slave.state

    def check_same(self) -> None:
        """The slave's log is the master's from where it begins, and its queues and keys say the same."""
        one, two = self.master.node.store, self.slave.node.store
        assert two.log.end == one.log.end
        assert _bytes(two) == _bytes(one)[two.log.start - one.log.start :]
        for key in one.queues.table:
            units = [one.reads.unit(*key, n) for n in range(one.reads.max_offset(*key))]
            first = next((n for n, unit in enumerate(units) if unit.physical_offset >= two.log.start), len(units))
            low, high = two.reads.min_offset(*key), two.reads.max_offset(*key)
            assert (low, high) == ((first, len(units)) if first < len(units) or high else (0, 0)), key
            assert [two.reads.unit(*key, n) for n in range(low, high)] == units[low:high]
            queue = two.queues.get(*key)
            per_file = queue.segments.file_bytes // queue.unit_bytes if queue is not None else 1
            assert queue is None or queue.first <= low < queue.first + per_file, "no file is there for nothing"
        if one.log.start == two.log.start:
            for key in one.queues.table:
                assert [one.reads.unit(*key, n) for n in range(one.reads.max_offset(*key))] == [
                    two.reads.unit(*key, n) for n in range(two.reads.max_offset(*key))
                ]
                found = [store.reads.query(key[0], "b", 64, 0, 1 << 60).records for store in (one, two)]
                assert found[0] == found[1]


def _bytes(store: Any) -> bytes:
    found, at = bytearray(), store.log.start
    while at < store.log.end:
        view = store.log.segments.view(at, store.log.end - at)
        found += view
        at += len(view)
    return bytes(found)
