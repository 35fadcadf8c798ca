"""Both ends of the AutoSwitch stream, and a controller, each by itself on a simulated disk: what they are told is any
bytes, cut anywhere."""

from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from perseid.base.errors import RemoteProtocolError
from perseid.base.machine import (
    Close,
    Connect,
    Feed,
    Fetch,
    Flush,
    Frames,
    Note,
    Opened,
    SaveState,
    Start,
    Tick,
    Write,
)
from perseid.controller.config import ControllerConfig
from perseid.controller.node import LISTENER as CONTROLLER
from perseid.controller.node import Controller
from perseid.raft.config import RaftConfig
from perseid.replication.auto_switch.in_sync import Proposal
from perseid.replication.auto_switch.node import AutoSwitchReplication, Led
from perseid.replication.config import ReplicationConfig
from perseid.replication.receiver import LISTENER
from perseid.sim.disk import SimDisk
from perseid.store.config import StoreConfig
from perseid.store.recovery import save_durably
from perseid.store.results import StoreEvent
from perseid.store.store import MessageStore
from perseid.wire.host import host_from
from perseid.wire.record import Message

CONN = 1
HOST = host_from("10.0.0.1:10911")
NOW = 1_700_000_000_000
FILES = StoreConfig(commit_log_file_bytes=4096, consume_queue_file_bytes=1000, max_hash_slot_num=50, max_index_num=200)
BODIES = (b"one", b"two two", b"three" * 20)
FOLLOWER, MEMBERS, SET_EPOCH = 2, (1, 2), 7
MASTER = "10.0.0.9:10912"
MAX_TURNS = 1_000


class End:
    """A broker's store with its replication: a master of epoch 5 with messages, or a slave of such a log."""

    def __init__(self) -> None:
        self.now, self.closed = NOW, False
        self.wrote = bytearray()
        self.proposals: list[frozenset[int]] = []
        self._disk = SimDisk(Random(1))
        self.store = MessageStore(self._disk, FILES, HOST, gated=True)
        self.store.load(self.now)
        config = ReplicationConfig(all_ack_in_sync_state_set=True)
        self.node = AutoSwitchReplication(config, self.store, self._disk, self._propose, self._is_at)
        self.node.broker_id = self.node.slave.broker_id = 1
        self.run(self.node.start())

    def _propose(self, proposal: Proposal) -> list[Any]:
        self.proposals.append(proposal.members)
        return []

    def _is_at(self, replica: int, peer: str, now: int) -> bool:
        """The controllers know each replica at the other end of the connection."""
        return True

    def write(self) -> None:
        """Messages of three sizes."""
        for body in BODIES:
            self.store.appends.append(Message(topic="T", body=body, born_host=HOST, store_host=HOST), self.now)

    def lead(self, epoch: int) -> None:
        self.run(self.node.lead(epoch, self.now))
        self.run([self.store.flusher.flush([])])
        assert self.node.master is not None
        self.node.master.in_sync.agree(MEMBERS, SET_EPOCH, self.now)

    def follow(self) -> None:
        """Up to where a master answered the dial."""
        self.closed, self.wrote = False, bytearray()
        self.run(self.node.slave.follow(MASTER, self.now))

    def run(self, effects: Iterable[Any]) -> None:
        """Carry out effects, and what follows."""
        waiting, turns = deque(effects), 0
        while waiting:
            turns += 1
            assert turns < MAX_TURNS, "no end of effects"
            effect = waiting.popleft()
            if isinstance(effect, Write):
                pieces = [effect.data] if isinstance(effect.data, bytes | memoryview) else effect.data
                self.wrote += b"".join(bytes(piece) for piece in pieces)
            elif isinstance(effect, Flush):
                for file in effect.files:
                    file.sync()
                waiting.extend(effect.then)
            elif isinstance(effect, SaveState):
                save_durably(self._disk, effect.path, effect.data)
                waiting.extend(effect.then)
            elif isinstance(effect, Fetch):
                waiting.extend(effect.then)
            elif isinstance(effect, Connect):
                waiting.extend(self.node.opened(Opened(CONN, MASTER, "10.0.0.1:4000", LISTENER, MASTER), self.now))
            elif isinstance(effect, Close):
                self.closed = True
            elif isinstance(effect, Feed):
                waiting.extend(self._fed(effect.event))
            else:
                assert isinstance(effect, Note), effect

    def _fed(self, event: Any) -> Iterable[Any]:
        if isinstance(event, StoreEvent):
            return self.store.handle(event)
        if isinstance(event, Led):
            self.node.led(event.epoch)
            return []
        return self.node.fed(event, self.now)

    def hear(self, data: bytes) -> None:
        """All of it, in pieces whose sizes its first byte says."""
        size = data[0] % 40 + 1 if data else 1
        for at in range(1, len(data), size):
            if self.closed or not self.node.owns(CONN):
                break
            piece = bytearray(data[at : at + size])
            try:
                self.run(self.node.received(Frames(CONN, piece), self.now))
            except RemoteProtocolError:
                self.closed = True
            piece[:] = b"\xee" * len(piece)
            self.now += 1
            self.run(self.node.settle(self.now))
            self.check()

    def check(self) -> None:
        """The books agree, and readers see nothing that is not there."""
        self.store.validate()
        self.node.validate()
        assert self.store.reads.confirmed <= self.store.log.end


def master_hears(data: bytes) -> None:
    """A stranger's bytes: it is never in sync before it had all, and nobody who is in sync leaves by it."""
    end = End()
    end.write()
    end.lead(5)
    end.run(end.node.opened(Opened(CONN, "10.0.0.7:5000", "10.0.0.1:10912", LISTENER, ""), end.now))
    end.hear(data)
    master = end.node.master
    assert master is not None and set(MEMBERS) <= master.in_sync.required
    assert not end.store.reads.confirmed or FOLLOWER in master._has, "readers see what nobody else has reported"
    assert all(members <= {1, FOLLOWER} | set(master._has) for members in end.proposals)


def slave_hears(data: bytes) -> None:
    """A master's bytes: log and epochs stay what a start would read."""
    end = End()
    if data and data[-1] & 1:
        end.write()
        end.lead(1)  # it led once, and has an epoch of its own
        end.run(end.node.follow(6, end.now))
    else:
        end.run(end.node.follow(6, end.now))
    end.follow()
    end.hear(data)
    end.node.epochs.validate()


class Single:
    """A controller that is a group by itself, and leads."""

    def __init__(self) -> None:
        self.now = NOW
        raft = RaftConfig(
            group="g", self_id="n0", peers="n0-10.0.0.1:9878", mapped_file_size_for_entry_data=1 << 20,
            mapped_file_size_for_entry_index=32 * 1024,
        )  # fmt: skip
        config = ControllerConfig(
            controller_dleger_group="g", controller_dleger_peers=raft.peers, controller_dleger_self_id="n0"
        )
        self.disk = SimDisk(Random(1))
        self.node = Controller(config, raft, self.disk, Random(5))
        self.play(Start())
        while not self.node.active:
            due = self.node.next_deadline()
            assert due is not None and due < NOW + 60_000, "it does not come to lead"
            self.now = max(self.now + 1, due)
            self.play(Tick())
        self._open()

    def _open(self) -> None:
        self.play(Opened(CONN, "10.0.0.2:5000", "10.0.0.1:9878", CONTROLLER))

    def play(self, first: Any) -> None:
        """One event, and what follows from it here."""
        events, turns = deque([first]), 0
        while events:
            turns += 1
            assert turns < MAX_TURNS, "no end of events"
            waiting = deque(self.node.handle(events.popleft(), self.now))
            while waiting:
                effect = waiting.popleft()
                if isinstance(effect, Flush):
                    for file in effect.files:
                        file.sync()
                    waiting.extend(effect.then)
                elif isinstance(effect, SaveState):
                    save_durably(self.disk, effect.path, effect.data)
                    waiting.extend(effect.then)
                elif isinstance(effect, Feed):
                    events.append(effect.event)
                else:
                    assert isinstance(effect, Write | Close | Note | Connect), f"the controller says {effect}"
                    assert not isinstance(effect, Note) or "Traceback" not in effect.text, effect.text
        self.node.validate()

    def hear(self, frame: bytes) -> bool:
        """A frame. False when it is time for a new one."""
        self.now += 1
        try:
            self.play(Frames(CONN, frame))
        except RemoteProtocolError:
            pass
        return self.node.raft.log.end < 2_000


_single: list[Single] = []


def controller_hears(data: bytes, framed: Callable[[bytes], bytes]) -> None:
    """A request for a controller: its header and body are any bytes."""
    if not _single:
        _single.append(Single())
    try:
        again = _single[0].hear(framed(data))
    except BaseException:
        _single.clear()
        raise
    if not again:
        _single.clear()
