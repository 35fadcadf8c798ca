"""Two brokers on simulated disks, one with the core and one with the handlers alone: what they do is compared. The same
of two slaves.

FUZZ_CORE names the folder of a compiled core to load in place of the installed one: `run.py` builds it with bounds
checks.
"""

import os
import re
import sys
from pathlib import Path
from random import Random
from typing import Any

from perseid import core
from perseid.base.machine import Close, Closed, Feed, Flush, Frames, Note, Opened, SaveState, Start, Stop, Tick, Write
from perseid.broker.access.config import Access
from perseid.broker.config import BrokerConfig
from perseid.broker.kernel import messages
from perseid.broker.node import Broker
from perseid.security.credentials import Credentials
from perseid.security.policies import Acl
from perseid.sim.disk import SimDisk
from perseid.store.config import StoreConfig
from perseid.store.replica import Replica, ReplicaRefused
from perseid.store.results import AppendRefused
from perseid.store.store import MessageStore
from perseid.testing.cores import core_from
from perseid.wire.codes import RequestCode
from perseid.wire.command import encode_request
from perseid.wire.frame import split
from perseid.wire.headers.base import Header
from perseid.wire.headers.send import EndTransactionRequest
from perseid.wire.host import host_from
from perseid.wire.properties import PGROUP
from perseid.wire.record import SYS_TRANSACTION_COMMIT, Message, Record
from perseid.wire.users import AclInfo, PolicyEntryInfo, PolicyInfo

CONN = 1
SMALL = StoreConfig(
    commit_log_file_bytes=1 << 20, consume_queue_file_bytes=20 * 10_000, max_hash_slot_num=1000, max_index_num=4000,
    timer_log_file_bytes=52 * 10_000, timer_wheel_slots=8192,
)  # fmt: skip
MAX_LOG_BYTES = 4 << 20
TINY = StoreConfig(
    commit_log_file_bytes=1 << 17, consume_queue_file_bytes=20 * 1000, max_hash_slot_num=1000, max_index_num=4000
)
MAX_SLAVE_LOG_BYTES = 64 << 10
NOW = 1_700_000_000_000
HOST = host_from("10.0.0.1:10911")
MOST_WORDS = 4
WAIT_MS = 300
"""Between two reads, at most: timers come due."""
MAY_DIFFER = re.compile(rb'"commitLogDi[^"]*":"[^"]*"|"counter":[0-9]+(?=.*"timingCount")')
"""In the answer to code 28: how soon the index is written. In that to code 61: in how many steps it was counted."""


def checked_core() -> core.Core:
    """The core with bounds checks where `run.py` built one, else the installed one, compiled or not."""
    path = os.environ.get("FUZZ_CORE")
    return core.installed if path is None else core_from(Path(path), ".so")


class Twins:
    """The two brokers, in the same state as long as nothing is wrong."""

    def __init__(self, user: Credentials | None = None) -> None:
        """`user`: requests have to be signed, and this one may do what the seeds ask for."""
        self.now = NOW
        self._user = user
        self._hidden: list[Any] = []
        sys.unraisablehook = self._hidden.append  # an index out of bounds in a function that can't raise
        core.compiled = checked_core()
        self.with_core, self.alone = self._broker(), self._broker()
        parts = self.alone.parts
        parts.quick.current = parts.timers.quick = parts.transactions.quick = parts.delay.quick = None

    def _broker(self) -> Broker:
        config = BrokerConfig(broker_name="b", enable_property_filter=True)
        access = None if self._user is None else Access(authenticates=True, authorizes=True, key=bytes(32))
        broker = Broker(config, SMALL, SimDisk(Random(1)), Random(1), access=access)
        self._play(broker, Start())
        if self._user is not None:
            broker.parts.users.create(self._user.access_key, self._user.secret_key, None, None)
            rights = [PolicyEntryInfo(resource, ["Pub", "Sub"], None, "Allow") for resource in ("Topic:t", "Group:*")]
            broker.parts.acls.put(self._user.access_key, Acl.of(AclInfo("User:u", [PolicyInfo(None, rights)])))
        self._play(broker, self._opened())
        return broker

    def _opened(self) -> Opened:
        return Opened(CONN, "10.0.0.1:5000", "10.0.0.9:10911", "main")

    def _play(self, broker: Broker, first: object) -> list[bytes | str]:
        """What a broker does about an event, in an order that does not matter."""
        done: list[bytes | str] = []
        events = [first]
        while events:
            effects = broker.handle(events.pop(0), self.now)
            while effects:
                effect = effects.pop(0)
                if isinstance(effect, Write):
                    data = effect.data
                    whole = bytes(data) if isinstance(data, bytes | bytearray | memoryview) else b"".join(data)
                    done += [MAY_DIFFER.sub(b"", bytes(one)[4:]) for one in split(whole)]
                elif isinstance(effect, Flush | SaveState):
                    effects[:0] = effect.then
                elif isinstance(effect, Feed):
                    events.append(effect.event)
                elif isinstance(effect, Close):
                    events += [Closed(CONN, effect.reason), self._opened()]
                elif isinstance(effect, Note):
                    done.append(effect.text.partition("\n")[0])
                else:
                    assert not isinstance(effect, Stop), f"the broker ended: {effect.reason}"
        return sorted(done, key=repr)

    def compare(self, data: bytes) -> bool:
        """Give both the same read, a moment later. False when it is time for new twins."""
        self.now += 1 + len(data) % WAIT_MS
        for broker in (self.with_core, self.alone):
            self._play(broker, Tick())
        begin = self.with_core.parts.store.log.end
        self._compare(data)
        if words := self._words():
            self._compare(words)
        logs = [bytes(broker.parts.store.log.segments.view(begin, 1 << 20)) for broker in (self.with_core, self.alone)]
        ends = self.with_core.parts.store.log.end, self.alone.parts.store.log.end
        assert logs[0] == logs[1] and ends[0] == ends[1], "the logs differ"
        assert not self._hidden, f"an error in a function that can't raise: {self._hidden[0].exc_value!r}"
        self.with_core.validate()
        return self.alone.parts.store.log.end < MAX_LOG_BYTES

    def _compare(self, data: bytes) -> None:
        did, wanted = (self._play(broker, Frames(CONN, data)) for broker in (self.with_core, self.alone))
        assert did == wanted, f"the core's broker did {did}, the other {wanted}"

    def _signed(self, header: Header) -> Header | dict[str, str | None]:
        return header if self._user is None else self._user.sign(header, b"")

    def _words(self) -> bytes:
        """Commits of the last halves, as their producers say it."""
        found = [
            messages.stored_at(self.alone.parts.store.reads, place)
            for place in self.alone.parts.transactions.places()[-MOST_WORDS:]
        ]
        return b"".join(
            encode_request(RequestCode.END_TRANSACTION, number, self._signed(_word(half)), oneway=True)
            for number, half in enumerate(found)
            if half is not None
        )


def _word(half: Record) -> EndTransactionRequest:
    return EndTransactionRequest(
        producer_group=half.props.get(PGROUP, "p"),
        tran_state_table_offset=half.queue_offset,
        commit_log_offset=half.physical_offset,
        commit_or_rollback=SYS_TRANSACTION_COMMIT,
        msg_id="",
    )


class ReplicaTwins:
    """Two slaves' stores, one with the core and one without, that are sent the same bytes of a master's log."""

    def __init__(self) -> None:
        self.now = NOW
        self._hidden: list[Any] = []
        sys.unraisablehook = self._hidden.append
        self.source = self._store()
        self.stores = [self._store(), self._store()]
        core.compiled = None
        alone = Replica(self.stores[1])
        core.compiled = checked_core()
        self.replicas = [Replica(self.stores[0]), alone]

    def _store(self) -> MessageStore:
        store = MessageStore(SimDisk(Random(1)), TINY, HOST)
        store.load(self.now)
        return store

    def compare(self, data: bytes) -> bool:
        """A message out of `data`, as the master stores it, some of its bytes changed; then as it is. False when it is
        time for new twins."""
        changes, rest = data[:8], data[8:]
        flag = (0, 0, 0, 0, 1, 4, 8, 12)[changes[0] & 7] if changes else 0
        properties, _, body = rest.decode(errors="replace").partition("\n")
        self.now += len(data) & 3
        for _ in range(2):
            made = Message(
                topic="T", body=body.encode() or b"b", queue_id=len(data) & 1, sys_flag=flag, born_host=HOST,
                store_host=HOST, properties=properties.encode(),
            )  # fmt: skip
            try:
                self.source.appends.append(made, self.now)
            except AppendRefused:
                return True
        begin, end = self.stores[0].log.end, self.source.log.end
        log = self.source.log.segments.view(begin, end - begin)
        changed = bytearray(log)
        for at in range(1, len(changes) - 1, 2):
            changed[changes[at] * 7 % len(changed)] ^= changes[at + 1]
        self._send(begin, changed)
        if self.stores[0].log.end < end:
            begin = self.stores[0].log.end
            self._send(begin, bytearray(self.source.log.segments.view(begin, end - begin)))
        assert not self._hidden, f"an error in a function that can't raise: {self._hidden[0].exc_value!r}"
        return self.stores[0].log.end == end < MAX_SLAVE_LOG_BYTES

    def _send(self, begin: int, data: bytearray) -> None:
        """Give both the same packet, and compare what they make of it."""
        said = []
        for replica in self.replicas:
            try:
                replica.expect(begin, len(data))
                replica.take(memoryview(bytes(data)))
                replica.write()
                said.append("")
            except ReplicaRefused as refused:
                said.append(str(refused))
            replica.forget_partial()
        one, two = self.stores
        assert said[0] == said[1], f"the core's slave says {said[0]!r}, the other {said[1]!r}"
        assert one.log.end == two.log.end, f"the core's slave ends at {one.log.end}, the other at {two.end}"
        only = set(one.queues.table) ^ set(two.queues.table)
        assert not only, f"only one of them has {only}; both said {said[0]!r}"
        assert one.log.segments.view(0, one.log.end) == two.log.segments.view(0, two.log.end), "the logs differ"
        for key in one.queues.table:
            units = [[store.reads.unit(*key, n) for n in range(store.reads.max_offset(*key))] for store in (one, two)]
            assert units[0] == units[1], f"{key}: the units differ"
