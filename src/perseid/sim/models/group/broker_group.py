"""Brokers whose log is that of a Raft group, in virtual time: all that `group` looks at, and what their clients see.

- a message that was acknowledged is committed, where the answer says, and stays there: queue, offset and bytes;
- what a pull brings is committed, and each offset of a queue brings the same message for ever;
- a delayed message that was acknowledged is delivered, once or more often, and so is one of a transaction whose commit
  was acknowledged; what is open or rolled back is not;
- in the end all brokers have the same queues, without gaps, and each message of the log once in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from perseid.broker.config import BrokerConfig
from perseid.broker.kernel.request import MAIN_LISTENER
from perseid.broker.node import Broker
from perseid.broker.replication.dledger_member import DLedgerMember
from perseid.broker.replication.modes.dledger import DLedger
from perseid.nameserver.config import NameServerConfig
from perseid.nameserver.node import NameServer
from perseid.raft.config import RaftConfig
from perseid.raft.node import LISTENER, Raft
from perseid.raft.state import Role
from perseid.sim.disk import SimDisk
from perseid.sim.driver import EPOCH_MS, NodeDriver
from perseid.sim.features.played import drawn, store_settings
from perseid.sim.features.stage import Features, Stage, same_tables
from perseid.sim.history import Violation, require_linearizable
from perseid.sim.models.broker.run import Result, played
from perseid.sim.models.raft.group import PORT, Group, Watched, WatchedLog
from perseid.sim.models.raft.run import LIVENESS_US, Faults
from perseid.sim.net import End
from perseid.sim.options import DRAWN, Options
from perseid.sim.pace import under_faults
from perseid.sim.queues import Queues
from perseid.sim.scheduler import US_PER_MS, US_PER_S, Scheduler
from perseid.sim.selection import WHOLE, Selection
from perseid.sim.timed import check_time, delay_of, still_waits
from perseid.sim.told import BROKER, STORE, besides
from perseid.store.config import StoreConfig
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command, decode_all, encode_request
from perseid.wire.dledger import Entry
from perseid.wire.headers.pull import PullMessageRequest, PullMessageResponse
from perseid.wire.headers.send import EndTransactionRequest, SendMessageRequestV2, SendMessageResponse
from perseid.wire.names import AUTO_CREATE_TOPIC, SCHEDULE_TOPIC
from perseid.wire.record import SYS_TRANSACTION_COMMIT, SYS_TRANSACTION_ROLLBACK, RecordError, decode
from perseid.wire.record import decode_all as decode_records

BROKER_PORT = 10911
NAMESRV_IP, NAMESRV_PORT = "10.0.0.2", 9876
NAME = "g"
TOPIC, QUEUES = "orders", 2
CLIENTS = 4
TIMEOUT_MS = 4_000
PAUSES_MS = (10, 200, 1_000)
"""Of a client between two operations: on average one of them."""
DELAYED = 0.1
"""So many of the sends ask for a delay."""
TRANSACTIONS, COMMITS = 0.15, 0.6
"""So many of the operations are transactions, where there are any; so many of those are to be committed."""
DELAY_US = 1 * US_PER_S
ENTRY_HEADER_BYTES = 48


def member_of(broker: Broker) -> DLedgerMember:
    """A broker's member of the group."""
    mode = broker.parts.mode
    assert isinstance(mode, DLedger), mode
    return mode.member


class BrokerMember(Watched):
    """A member that is a broker."""

    @property
    def broker(self) -> Broker | None:
        machine: Any = self.driver.machine
        found: Broker | None = machine
        return found

    @property
    def raft(self) -> Raft | None:
        broker = self.broker
        return member_of(broker).raft if broker is not None else None


class BrokerGroup(Group):
    """The brokers of one run."""

    def __init__(
        self, seed: int, *, transactions: bool | None = False, strangers: bool = True, named: bool = False,
        told: Mapping[str, Any] | None = None, selection: Selection = WHOLE,
    ) -> None:  # fmt: skip
        """`transactions`: whether there are any; None: as the seed draws. `strangers`: they may come. `named`: there is
        a name server, by which slaves find whose tables they copy. `told`: settings of
        stores, besides."""
        self._told, self._named = dict(told or {}), named
        self.records: dict[int, bytes] = {}
        """Place in the log → the body of the message that is committed there."""
        super().__init__(seed, strangers=strangers, selection=selection)
        drawn = self.scheduler.stream("transactions").random() < 0.3
        self.transactions = drawn if transactions is None else transactions
        self._clients = 0
        self.namesrv = NodeDriver(
            "namesrv", NAMESRV_IP, self.scheduler, self.network,
            lambda disk, random: NameServer(NameServerConfig(), disk), {"main": NAMESRV_PORT}, self.count,
        )  # fmt: skip
        self.stage = Stage(self, NAME, BROKER_PORT, lambda: [one.driver for one in self.members])
        self.stage.master = self._leader
        self.stage.copied = self._copied
        self.stage.log_start = self._log_start

    def start(self) -> None:
        if self._named:
            self.namesrv.start()
        super().start()

    def _log_start(self) -> int:
        """Where the shortest log of them begins: a disk that was too full has no older files."""
        brokers = [one.broker for one in self.members if isinstance(one, BrokerMember)]
        return max((one.parts.store.log.start for one in brokers if one is not None), default=0)

    def _copied(self) -> bool:
        """Who is away, and may lead when it is back, has what it had: that is not known."""
        all_run = all(one.driver.machine is not None for one in self.members)
        return self._leader() is not None and all_run and same_tables(self.stage.brokers())

    def _leader(self) -> NodeDriver | None:
        """Who leads, in its own eyes."""
        leading = (one.driver for one in self.members if one.raft is not None and one.raft.member.is_leader)
        return next(leading, None)

    def client_ip(self, name: str) -> str:
        """An address for a client of a feature."""
        self._clients += 1
        ip = f"10.0.7.{self._clients}"
        self.network.machines[ip] = name
        return ip

    def answered(self, client: str, request: RequestCode, name: str, command: Command) -> None:
        """A client of a feature got an answer; refusals are worth a line."""
        if command.code != ResponseCode.SUCCESS:
            self.scheduler.note(client, f"{request.name} answered {name}: {command.remark}")

    def _role(self, watched: Watched, raft: Raft, role: Role, term: int) -> None:
        super()._role(watched, raft, role, term)
        if role is Role.LEADER:
            self.stage.repeated()

    def _member(self, name: str, number: int, settings: dict[str, Any]) -> Watched:
        raft = RaftConfig(self_id=name, **{**settings, "max_wait_ack_time_ms": 2_000})
        ip = f"10.0.3.{number}"
        made: list[Watched] = []
        store = StoreConfig(
            commit_log_file_bytes=self.data_bytes, consume_queue_file_bytes=400, max_hash_slot_num=50,
            max_index_num=200, message_delay_level="1s 2s", flush_consume_queue_thorough_interval=2_000,
            timer_wheel_slots=4_096, timer_log_file_bytes=52 * 10 + 16, timer_roll_window_slot=4,
            **self._told, **besides(self.scheduler, {**STORE, "hot_bytes": (4 << 10,)}),
        )  # fmt: skip
        name_server = f"{NAMESRV_IP}:{NAMESRV_PORT}" if self._named else ""
        config = BrokerConfig(
            broker_ip1=ip, broker_name=NAME, namesrv_addr=name_server, enable_dleger_commit_log=True,
            **besides(self.scheduler, BROKER),
        )  # fmt: skip

        def new_log(*arguments: Any, **more: Any) -> WatchedLog:
            log = WatchedLog(*arguments, **more)
            log.watcher = made[0]
            return log

        def build(disk: SimDisk, random: Random) -> Broker:
            watched = made[0]
            broker = Broker(config, store, disk, random, raft=raft, new_log=new_log)  # type: ignore[arg-type]
            self.hear(watched, member_of(broker).raft)
            return broker

        listeners = {MAIN_LISTENER: BROKER_PORT, LISTENER: PORT}
        driver = NodeDriver(name, ip, self.scheduler, self.network, build, listeners, self.count)
        watched = BrokerMember(self, name, driver)
        made.append(watched)
        self._watch(watched)
        return watched

    def _committed(self, raft: Raft, entry: Entry) -> None:
        try:
            record = decode(entry.body)
        except RecordError as error:
            raise Violation("an entry is a message", f"entry {entry.index}: {error}") from None
        if record.physical_offset != entry.pos + ENTRY_HEADER_BYTES:
            raise Violation("a message says where it stands", f"entry {entry.index}: {record.physical_offset}")
        self.records[record.physical_offset] = record.body


class Book:
    """What all clients were told."""

    def __init__(self, group: BrokerGroup) -> None:
        self.group = group
        self.seen: dict[tuple[int, int], bytes] = {}
        """Queue, offset → body."""
        self.delayed: set[bytes] = set()
        """To be delivered."""
        self.committed: dict[bytes, bool] = {}
        """Messages of transactions: did their producer say that they are to be committed?"""
        self.acknowledged = 0
        self.queues = Queues(fresh=False)
        """A leader that is none any more does not know so, and names its own ends."""

    def acked(self, queue_id: int, offset: int, physical: int, body: bytes, delayed: bool, called_us: int) -> None:
        """A send was acknowledged that was called at `called_us`."""
        self.acknowledged += 1
        if self.group.records.get(physical) != body:
            raise Violation("acknowledged is committed", f"{body[:20]!r} at {physical}")
        if delayed:
            self.delayed.add(body)
            self.group.count("acknowledged: delayed")
        else:
            self.met(queue_id, offset, body)
            self.queues.sent(TOPIC, queue_id, offset, called_us, self.group.scheduler.now_us)
            self.group.count("acknowledged")

    def met(self, queue_id: int, offset: int, body: bytes) -> None:
        """A message stands at an offset, as somebody was told."""
        if not self.committed.get(body, True):
            raise Violation("only what is committed is read", f"{queue_id}@{offset}: {body[:20]!r}")
        before = self.seen.setdefault((queue_id, offset), body)
        if before != body:
            raise Violation("an offset keeps its message", f"{queue_id}@{offset}: {before[:20]!r}, then {body[:20]!r}")


class Client:
    """Sends numbered messages one after the other, and pulls, from whoever is master."""

    def __init__(self, group: BrokerGroup, name: str, book: Book) -> None:
        self.group, self.name, self.book = group, name, book
        self.scheduler, self.random = group.scheduler, group.scheduler.stream(name)
        self.ip = f"10.0.4.{name[-1]}"
        self.running = True
        self._member = self.random.choice(group.members)
        self._end: End | None = None
        self._number = 0
        self._call: tuple[bytes, int, Any, Any] | None = None
        """Frame, opaque, who wants the answer, timer."""
        group.network.machines[self.ip] = name

    def begin(self) -> None:
        """Go on after a while."""
        pause = self.scheduler.slowed(self.random.choice(PAUSES_MS))
        self.scheduler.after(self.random.randint(1, max(1, int(2 * pause))) * US_PER_MS, self._work)

    def _work(self) -> None:
        has = self.scheduler.chosen.has
        if self.running and self.group.transactions and self.random.random() < TRANSACTIONS and has("transactions"):
            self._begin_transaction()
        elif self.running:
            (self._pull if self.random.random() < 0.2 and has("pulls") else self._send)()

    def _send(self) -> None:
        self._number += 1
        body = f"{self.name}.{self._number}.".encode().ljust(self.random.choice((12, 40, 300)), b"x")
        delayed = self.random.random() < DELAYED and self.scheduler.chosen.has("delays")
        header = SendMessageRequestV2(
            producer_group="p", topic=TOPIC, default_topic=AUTO_CREATE_TOPIC, default_topic_queue_nums=QUEUES,
            queue_id=self.random.randrange(QUEUES), sys_flag=0, born_timestamp=1, flag=0,
            properties=f"UNIQ_KEY\x01{self.name}{self._number}\x02" + (delay_of(self._number) if delayed else ""),
        )  # fmt: skip

        called_us = self.scheduler.now_us

        def answered(reply: Command | None) -> None:
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                done = reply.header(SendMessageResponse)
                physical = int(done.msg_id[-16:], 16)
                self.book.acked(done.queue_id, done.queue_offset, physical, body, delayed, called_us)
            else:
                self._elsewhere()
            self.begin()

        self._ask(RequestCode.SEND_MESSAGE_V2, header, body, answered)

    def _begin_transaction(self) -> None:
        self._number += 1
        body = f"{self.name}.{self._number}.half".encode()
        header = SendMessageRequestV2(
            producer_group="p", topic=TOPIC, default_topic=AUTO_CREATE_TOPIC, default_topic_queue_nums=QUEUES,
            queue_id=self.random.randrange(QUEUES), sys_flag=4, flag=0,
            born_timestamp=EPOCH_MS + self.scheduler.now_us // US_PER_MS,
            properties=f"UNIQ_KEY\x01{self.name}{self._number}\x02TRAN_MSG\x01true\x02PGROUP\x01p\x02",
        )  # fmt: skip
        self.book.committed[body] = False

        def answered(reply: Command | None) -> None:
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                done = reply.header(SendMessageResponse)
                physical = int(done.msg_id[-16:], 16)
                if self.group.records.get(physical) != body:
                    raise Violation("acknowledged is committed", f"half {body[:20]!r} at {physical}")
                self.group.count("acknowledged: half")
                self._end_transaction(body, done.queue_offset, physical)
            else:
                self._elsewhere()
                self.begin()

        self._ask(RequestCode.SEND_MESSAGE_V2, header, body, answered)

    def _end_transaction(self, body: bytes, offset: int, physical: int) -> None:
        commit = self.random.random() < COMMITS
        self.book.committed[body] |= commit
        header = EndTransactionRequest(
            producer_group="p", tran_state_table_offset=offset, commit_log_offset=physical, msg_id="id",
            commit_or_rollback=SYS_TRANSACTION_COMMIT if commit else SYS_TRANSACTION_ROLLBACK,
        )  # fmt: skip

        def answered(reply: Command | None) -> None:
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                self.group.count("committed by a word" if commit else "rolled back by a word")
                if commit:
                    self.book.delayed.add(body)
            else:
                self._elsewhere()
            self.begin()

        self._ask(RequestCode.END_TRANSACTION, header, b"", answered)

    def _pull(self) -> None:
        queue_id = self.random.randrange(QUEUES)
        most = max((offset for queue, offset in self.book.seen if queue == queue_id), default=0)
        header = PullMessageRequest(
            consumer_group="c", topic=TOPIC, queue_id=queue_id,
            queue_offset=self.random.randint(max(0, most - 20), most),
            max_msg_nums=8, sys_flag=4, commit_offset=0, suspend_timeout_millis=0, subscription="*", sub_version=0,
            expression_type="TAG",
        )  # fmt: skip

        called_us = self.scheduler.now_us

        def answered(reply: Command | None) -> None:
            if reply is None:
                self._elsewhere()
            elif reply.code == ResponseCode.SUCCESS:
                end = reply.header(PullMessageResponse).max_offset
                self.book.queues.ends(TOPIC, queue_id, end, called_us, self.scheduler.now_us)
                for record in decode_records(reply.body):
                    if self.group.records.get(record.physical_offset) != record.body:
                        raise Violation("what is read is committed", f"{record.body[:20]!r}")
                    self.book.met(queue_id, record.queue_offset, record.body)
                    self.group.count("message read")
            self.begin()

        self._ask(RequestCode.PULL_MESSAGE, header, b"", answered)

    # ---- one call at a time ----

    def _ask(self, code: int, header: Any, body: bytes, answered: Any) -> None:
        self.group.operations += 1
        self._number += 1
        timer = self.scheduler.after(TIMEOUT_MS * US_PER_MS, self._late)
        self._call = encode_request(code, self._number, header, body), self._number, answered, timer
        if self._end is None:
            self.group.network.dial(self, self.ip, f"{self._member.driver.ip}:{BROKER_PORT}")
        elif not self._end.dialling:
            self.group.network.write(self._end, self._call[0])

    def _answer(self, reply: Command | None) -> None:
        if self._call is not None:
            _, _, answered, timer = self._call
            self._call = None
            Scheduler.cancel(timer)
            if reply is not None:
                self.group.count(f"answer {ResponseCode(reply.code).name}")
            answered(reply)

    def _late(self) -> None:
        self._elsewhere()
        self._answer(None)

    def _elsewhere(self) -> None:
        self._member = self.random.choice(self.group.members)
        if self._end is not None:
            end, self._end = self._end, None
            self.group.network.close(end, "client goes")

    def opened(self, end: End, listener: str, dialled: str) -> None:
        """The network's side, as the next three."""
        if dialled != f"{self._member.driver.ip}:{BROKER_PORT}" or self._end is not None:
            self.group.network.close(end, "not wanted")
            return
        self._end = end
        if self._call is not None:
            self.group.network.write(end, self._call[0])

    def connect_failed(self, address: str, reason: str) -> None:
        if self._end is None:
            self._elsewhere()
            self._answer(None)

    def received(self, end: End, frames: bytearray) -> None:
        for command in decode_all(bytes(frames)):
            if command.is_response and self._call is not None and command.opaque == self._call[1]:
                self._answer(command.keep())

    def closed(self, end: End, reason: str) -> None:
        if end is self._end:
            self._end = None
            self._answer(None)


class Course:
    """The course of one seed."""

    def __init__(self, seed: int, options: Options = DRAWN) -> None:
        played = drawn("group", seed, options.features, options.selection)
        self.group = group = BrokerGroup(
            seed, transactions=options.transactions, strangers=options.strangers, named=bool(played),
            told=store_settings(played), selection=options.selection,
        )  # fmt: skip
        group.ambushes = True
        self.book = Book(group)
        self.clients = [Client(group, f"client{n}", self.book) for n in range(CLIENTS)]
        self.features = Features(group.stage, played)
        self.faults = Faults(group)

    def play(self) -> None:
        """All of it. Violation when something is wrong."""
        group, scheduler = self.group, self.group.scheduler
        group.start()
        self.features.prepare()
        for client in scheduler.chosen.some(self.clients, self.clients[0]):
            client.begin()
        self.features.begin()
        under_faults(group, self.faults, "the group serves")
        self.faults.heal()
        wanted = self.book.acknowledged + 5
        if not scheduler.run(scheduler.now_us + LIVENESS_US, lambda: self.book.acknowledged >= wanted):
            raise Violation("sends succeed after faults heal", f"not within {LIVENESS_US // US_PER_S} s")
        self.features.finish()
        for client in self.clients:
            client.running = False
        scheduler.run(scheduler.now_us + 5 * DELAY_US)
        if not scheduler.run(scheduler.now_us + LIVENESS_US, lambda: not self.unsettled()):
            raise Violation("every broker catches up", self.unsettled())
        self.check()

    def unsettled(self) -> str:
        """Why not all brokers have everything yet."""
        if why := self.group.settled():
            return why
        for member in self.group.members:
            assert isinstance(member, BrokerMember) and member.broker is not None
            if not member_of(member.broker).store.settled:
                return f"{member.name} has not dispatched all"
        return ""

    def check(self) -> None:
        """The last look: the queues of all brokers."""
        for member in self.group.members:
            assert isinstance(member, BrokerMember) and member.broker is not None
            store = member.broker.parts.store
            begin = store.log.start  # a disk that was too full has no older ones
            met: set[int] = set()
            bodies: set[bytes] = set()
            clock_ms = min(one.driver.now for one in self.group.members)
            for topic, queue_id in store.queues.table:
                last = -1
                for offset in range(store.reads.min_offset(topic, queue_id), store.reads.max_offset(topic, queue_id)):
                    unit = store.reads.unit(topic, queue_id, offset)
                    if unit is not None and topic in store.queues.batch_topics and unit.physical_offset == last:
                        continue  # another message of one record
                    last = unit.physical_offset if unit is not None else -1
                    body = self.group.records.get(unit.physical_offset) if unit is not None else None
                    if unit is None or body is None or unit.physical_offset in met:
                        raise Violation("queues have no gaps", f"{member.name}: {topic}/{queue_id}@{offset} is {unit}")
                    met.add(unit.physical_offset)
                    found = decode(store.reads.record_at(unit.physical_offset) or b"")
                    if check_time(found):
                        self.group.count("timed message came")
                    if still_waits(found, clock_ms):
                        bodies.add(body)
                    if topic == TOPIC:
                        bodies.add(body)
                        if not self.book.committed.get(body, True):
                            raise Violation("only what is committed is read", f"{member.name}: {body[:20]!r}")
                        if self.book.seen.get((queue_id, offset), body) != body:
                            raise Violation("an offset keeps its message", f"{member.name}: {queue_id}@{offset}")
            for queue_id, offset in self.book.seen:
                if offset >= store.reads.max_offset(TOPIC, queue_id):
                    raise Violation("nothing acknowledged is lost", f"{member.name} has no {queue_id}@{offset}")
            wanted = {offset for offset in self.group.records if offset >= begin}
            if met != wanted:
                raise Violation("each message is in its queue", f"{member.name}: {len(met)} of {len(wanted)}")
            if not begin and (missing := self.book.delayed - bodies):
                waits = store.reads.max_offset(SCHEDULE_TOPIC, 0)
                raise Violation("delayed messages come", f"{member.name}: {len(missing)} of {waits} are missing")
        require_linearizable(self.book.queues, self.group.counts)


def run(seed: int, options: Options = DRAWN) -> Result:
    """Play one seed; never raises for what the brokers did wrong."""
    course = Course(seed, options)
    return played(seed, course.play, course.group, course.faults, story=options.story)
