"""Replicas on simulated disks, a controller that is a dictionary, and between them streams whose bytes come cut
anywhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from random import Random
from typing import Any

from tests.durable import make_durable

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
    SaveState,
    Write,
)
from perseid.replication.auto_switch.in_sync import Proposal
from perseid.replication.auto_switch.node import AutoSwitchReplication, CutFor, Led, TrimmedTo
from perseid.replication.config import ReplicationConfig
from perseid.replication.receiver import LISTENER
from perseid.replication.sender import FetchedFor
from perseid.sim.disk import SimDisk
from perseid.store.results import Appended, StoreEvent
from perseid.store.store import MessageStore
from store.harness import HOST, START, config, message

PIECE = 300
TOPICS = (("T", 0), ("T", 1), ("U", 0))


class Replica:
    """One broker's store with its replication. Flushes and saves wait in `io` while `slow_disk`."""

    def __init__(self, made: Replicas, number: int, settings: dict[str, Any], **replication: Any) -> None:
        self.made, self.number = made, number
        self.disk = SimDisk(Random(number))
        self.settings = config(**settings)
        self.config = ReplicationConfig(**({"all_ack_in_sync_state_set": True} | replication))
        self.io: deque[Flush | SaveState] = deque()
        self.slow_disk = False
        self.notes: list[str] = []
        self.proposals: list[Proposal] = []
        self.up = False
        self.start()

    def start(self) -> None:
        """A new life on the same disk."""
        self.store = MessageStore(self.disk, self.settings, HOST, gated=True)
        self.store.load(self.made.now)
        self.replication = AutoSwitchReplication(self.config, self.store, self.disk, self._propose, self.made.is_at)
        self.replication.broker_id = self.replication.slave.broker_id = self.number
        self.io.clear()
        self.up = True
        self.run(self.replication.start())

    def _propose(self, proposal: Proposal) -> list[Effect]:
        self.proposals.append(proposal)
        return []

    @property
    def address(self) -> str:
        return f"10.0.0.{self.number}:10912"

    @property
    def leads(self) -> bool:
        return self.up and self.replication.leads

    def run(self, effects: Iterable[Effect]) -> None:
        """Carry out effects, and what follows at the others."""
        for effect in effects:
            if isinstance(effect, Write):
                pieces = [effect.data] if isinstance(effect.data, bytes | memoryview) else effect.data
                self.made.send(self, effect.conn, b"".join(bytes(p) for p in pieces))
            elif isinstance(effect, Connect):
                self.made.connect(self, effect.address)
            elif isinstance(effect, Close):
                self.made.cut(effect.conn)
            elif isinstance(effect, Note):
                self.notes.append(effect.text)
            elif isinstance(effect, Flush | SaveState):
                self.io.append(effect)
                if not self.slow_disk:
                    self.sync()
            elif isinstance(effect, Feed):
                self.feed(effect.event)
            else:
                assert isinstance(effect, Fetch), effect
                self.run(effect.then)

    def sync(self, count: int = 1 << 30) -> None:
        """The disk does what was asked for, in order."""
        while self.io and count > 0:
            count -= 1
            effect = self.io.popleft()
            make_durable(self.disk, effect)
            self.run(effect.then)

    def feed(self, event: Any) -> None:
        if not self.up:
            return
        if isinstance(event, StoreEvent):
            self.run(self.store.handle(event))
        elif isinstance(event, Led):
            if self.replication.led(event.epoch):
                self.made.led(self)
        else:
            assert isinstance(event, CutFor | TrimmedTo | FetchedFor), event
            self.run(self.replication.fed(event, self.made.now))
        self.check()

    def settle(self) -> None:
        self.run(self.replication.settle(self.made.now))
        self.check()

    def check(self) -> None:
        if self.up and not self.store.truncation.under_way:
            self.store.validate()
            self.replication.validate()

    def append(self, body: bytes, topic: str = "T", queue_id: int = 0) -> Appended:
        """The master stores a message, and its turn ends."""
        done = self.store.appends.append(message(topic, body, queue_id, KEYS=body[:4].hex()), self.made.now)
        self.settle()
        return done

    def acknowledged(self, done: Appended) -> bool:
        """Would its sender have heard of it by now?"""
        return self.replication.leads and done.physical_offset + done.size <= self.replication.replicated()

    def bytes(self) -> bytes:
        """The whole log."""
        found, at, log = bytearray(), self.store.log.start, self.store.log
        while at < log.end:
            view = log.segments.view(at, log.end - at)
            found += view
            at += len(view)
        return bytes(found)

    def kill(self, *, power: bool = False) -> None:
        """Its process dies, or its power."""
        self.up = False
        self.io.clear()
        self.made.lost(self)
        if power:
            self.disk.cut_power()
        else:
            self.disk.kill()


class Replicas:
    """`count` replicas, numbered from 1, and who is master of them."""

    def __init__(
        self, count: int = 2, seed: int = 0, *, piece: int = PIECE, store: dict[str, Any] | None = None, **config: Any
    ) -> None:
        self.random = Random(seed)
        self.now = START
        self.piece = piece
        self.epoch = 0
        self.set_epoch = 0
        self.members: frozenset[int] = frozenset()
        self.unreachable: set[int] = set()
        """Who hears nothing of the controller."""
        self.cut_off: set[frozenset[int]] = set()
        """Pairs that can't reach one another."""
        self.homes: dict[int, str] = {}
        """Where the controllers know replicas, by id; those that are not there may connect from anywhere."""
        self.master: Replica | None = None
        self._next = 0
        self._links: dict[int, tuple[Replica, int]] = {}
        """Connection → the other side, and its number there."""
        self.all = [Replica(self, number, store or {}, **config) for number in range(1, count + 1)]

    def __getitem__(self, number: int) -> Replica:
        return self.all[number - 1]

    # ---- the controller ----

    def is_at(self, number: int, peer: str, now: int) -> bool:
        return peer.startswith(self.homes.get(number, ""))

    def elect(self, number: int) -> None:
        """`number` is master of the next epoch; who can hear it, does."""
        self.epoch += 1
        self.set_epoch += 1
        self.members = frozenset((number,))
        self.master = self[number]
        for one in self.all:
            self.tell(one)

    def tell(self, one: Replica) -> None:
        """A replica hears who is master."""
        if not one.up or one.number in self.unreachable or self.master is None:
            return
        if one is self.master:
            if one.replication.epoch < self.epoch and one.replication.epochs.last < self.epoch:
                one.run(one.replication.lead(self.epoch, self.now))
        elif one.replication.epoch < self.epoch:
            one.run(one.replication.follow(self.epoch, self.now))
        if one is not self.master and one.replication.epoch == self.epoch and self.master.up:
            one.run(one.replication.slave.follow(self.master.address, self.now))
        one.check()

    def led(self, one: Replica) -> None:
        """Its epoch is durable."""
        if one is self.master and one.replication.master is not None and one.number not in self.unreachable:
            one.replication.master.in_sync.agree(self.members, self.set_epoch, self.now)
            one.settle()

    def answer(self, one: Replica, *, lost: bool = False) -> None:
        """The controller answers the proposals of a replica; `lost`: it does what it is asked for, and nobody hears."""
        proposals, one.proposals = one.proposals, []
        master = one.replication.master
        if not proposals or master is None:
            return
        in_sync = master.in_sync
        if one.number in self.unreachable:
            in_sync.failed(proposals[-1], self.now, refused=False)
            return
        if one is not self.master or one.replication.epoch != self.epoch or in_sync.epoch != self.set_epoch:
            in_sync.failed(proposals[-1], self.now, refused=True)
            return
        self.members, self.set_epoch = proposals[-1].members, self.set_epoch + 1
        if lost:
            in_sync.failed(proposals[-1], self.now, refused=False)
        else:
            in_sync.agree(self.members, self.set_epoch, self.now)
        one.settle()

    # ---- streams ----

    def connect(self, one: Replica, address: str) -> None:
        other = self[int(address.split(":")[0].rpartition(".")[2])]
        if not other.up or frozenset((one.number, other.number)) in self.cut_off:
            one.run(one.replication.connect_failed(ConnectFailed(address, "refused"), self.now))
            return
        near, far = self.link(one, other)
        other.run(other.replication.opened(Opened(far, f"{one.address}", "", LISTENER), self.now))
        if near in self._links:
            one.run(one.replication.opened(Opened(near, address, "", LISTENER, address), self.now))
        else:
            one.run(one.replication.connect_failed(ConnectFailed(address, "reset"), self.now))

    def link(self, one: Replica, other: Replica) -> tuple[int, int]:
        """Numbers of a new connection, here and there."""
        self._next += 2
        near, far = self._next - 1, self._next
        self._links[near], self._links[far] = (other, far), (one, near)
        return near, far

    def stranger(self, victim: Replica) -> int:
        """Somebody connects to a master's HA port: what it calls that connection."""
        _, far = self.link(victim, victim)
        victim.run(victim.replication.opened(Opened(far, "10.9.9.9:1", "", LISTENER), self.now))
        return far

    def says(self, victim: Replica, conn: int, data: bytes) -> None:
        """The stranger sends something."""
        victim.run(victim.replication.received(Frames(conn, data), self.now))
        victim.settle()

    def send(self, one: Replica, conn: int, data: bytes) -> None:
        while data and conn in self._links:
            other, number = self._links[conn]
            size = self.random.randint(1, self.piece)
            piece, data = bytearray(data[:size]), data[size:]
            if other.up and other is not one:
                other.run(other.replication.received(Frames(number, piece), self.now))
                other.check()
            piece[:] = b"\xee" * len(piece)

    def cut(self, conn: int) -> None:
        """A connection ends; both sides hear it."""
        if conn not in self._links:
            return
        other, number = self._links.pop(conn)
        one, _ = self._links.pop(number)
        for side, its in ((one, conn), (other, number)):
            if side.up:
                side.run(side.replication.closed(Closed(its, "cut"), self.now))

    def lost(self, one: Replica) -> None:
        """All connections of a replica end."""
        for conn in [conn for conn, (other, _) in self._links.items() if other is one]:
            self.cut(conn)

    def part(self, one: int, other: int) -> None:
        """They can't reach one another any more."""
        self.cut_off.add(frozenset((one, other)))
        for conn, (side, number) in list(self._links.items()):
            if conn in self._links and {side.number, self._links[number][0].number} == {one, other}:
                self.cut(conn)

    # ---- time ----

    def wait(self, ms: int, *, answers: bool = True) -> None:
        """Time passes, and the controller answers."""
        end = self.now + ms
        while self.now < end:
            self.now = min(end, self.now + 100)
            for one in self.all:
                if one.up:
                    one.run(one.replication.tick(self.now))
                    one.run(one.store.tick(self.now))
                    one.settle()
                    self.tell(one)
                    if answers:
                        self.answer(one)

    def write(self, count: int) -> list[Appended]:
        """Messages of several topics at the master."""
        assert self.master is not None
        random, found = self.random, []
        for number in range(count):
            body = b"%d." % number + random.randbytes(random.randrange(60))
            found.append(self.master.append(body, *random.choice(TOPICS)))
        return found

    def check_same(self) -> None:
        """All have the same log, epochs and queues, and readers see all of it."""
        one = self.all[0]
        for other in self.all[1:]:
            assert other.bytes() == one.bytes()
            assert other.replication.epochs.entries == one.replication.epochs.entries
            for key in one.store.queues.table:
                assert one.store.reads.max_offset(*key) == other.store.reads.max_offset(*key), key
                ends = range(one.store.reads.max_offset(*key))
                assert [one.store.reads.unit(*key, n) for n in ends] == [other.store.reads.unit(*key, n) for n in ends]
