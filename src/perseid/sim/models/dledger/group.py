"""Brokers whose log is that of a Raft group, in virtual time, and all that `sim/models/raft/group.py` looks at."""

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
from perseid.security.credentials import Credentials
from perseid.sim.disk import SimDisk
from perseid.sim.driver import NodeDriver
from perseid.sim.features.stage import Stage, same_tables
from perseid.sim.models.raft.group import PORT, Group, Watched, WatchedLog
from perseid.sim.promises import Violation
from perseid.sim.rare_settings import BROKER, STORE, rare_settings
from perseid.sim.security import has_users
from perseid.sim.selection import WHOLE, Selection
from perseid.sim.users import ACCESS, ROOT, members
from perseid.store.config import StoreConfig
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.dledger import Entry
from perseid.wire.record import RecordError, decode

BROKER_PORT = 10911
NAMESRV_IP, NAMESRV_PORT = "10.0.0.2", 9876
NAME = "g"
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

    model = "dledger"

    def __init__(
        self, seed: int, *, transactions: bool | None = False, strangers: bool = True, named: bool = False,
        store_settings: Mapping[str, Any] | None = None, selection: Selection = WHOLE,
    ) -> None:  # fmt: skip
        """`transactions`: whether there are any; None: as the seed draws. `strangers`: they may come. `named`: there is
        a name server, by which slaves find whose tables they copy. `store_settings`: settings
        of stores, besides."""
        self._store_settings, self._named = dict(store_settings or {}), named
        self.records: dict[int, bytes] = {}
        """Place in the log → the body of the message that is committed there."""
        with_users = has_users(self.model, seed)
        self.signs: Credentials | None = ROOT if with_users else None
        self.access = ACCESS if with_users else None
        super().__init__(seed, strangers=strangers, selection=selection)
        self.stranger.is_unsigned = with_users
        drawn = self.scheduler.stream("transactions").random() < 0.3
        self.transactions = drawn if transactions is None else transactions
        self._clients = 0
        self.namesrv = NodeDriver(
            "namesrv", NAMESRV_IP, self.scheduler, self.network,
            lambda disk, random: NameServer(NameServerConfig(), disk, members=members(authenticates=with_users)),
            {"main": NAMESRV_PORT}, self.count,
        )  # fmt: skip
        self.stage = Stage(self, NAME, BROKER_PORT, lambda: [one.driver for one in self.members])
        self.stage.offices = [f"{NAMESRV_IP}:{NAMESRV_PORT}"]
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
            **self._store_settings, **rare_settings(self.scheduler, {**STORE, "hot_bytes": (4 << 10,)}),
        )  # fmt: skip
        name_server = f"{NAMESRV_IP}:{NAMESRV_PORT}" if self._named else ""
        config = BrokerConfig(
            broker_ip1=ip, broker_name=NAME, namesrv_addr=name_server, enable_dleger_commit_log=True,
            **rare_settings(self.scheduler, BROKER),
        )  # fmt: skip

        def new_log(*arguments: Any, **more: Any) -> WatchedLog:
            log = WatchedLog(*arguments, **more)
            log.watcher = made[0]
            return log

        def build(disk: SimDisk, random: Random) -> Broker:
            watched = made[0]
            broker = Broker(
                config, store, disk, random, raft=raft, new_log=new_log,  # type: ignore[arg-type]
                access=self.access,
            )  # fmt: skip
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
