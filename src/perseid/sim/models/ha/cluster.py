"""A whole cluster in virtual time: three controllers, two or three brokers of one set, a name server.

The controllers are a Raft group (`Group`: R1 to R10 after every event). What they agree on is read a second time
(`oracle.py`: C1 to C3, C6 to C8). Each broker's log is a chain of hashes (`chain.py`: C9, C12), and what clients are
told is held against the logs of all who are in sync at that moment (`history.py`: C4, C5, C10; `queues.py`: C11).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

from perseid.base.machine import Flush, SaveState
from perseid.broker.node import Broker
from perseid.controller.config import ControllerConfig
from perseid.controller.node import LISTENER as CONTROLLER
from perseid.controller.node import Controller
from perseid.nameserver.config import NameServerConfig
from perseid.nameserver.node import NameServer
from perseid.raft.config import RaftConfig
from perseid.raft.node import LISTENER as GROUP
from perseid.raft.node import Raft
from perseid.security.credentials import Credentials
from perseid.sim.disk import SimDisk, SimFile
from perseid.sim.driver import NodeDriver
from perseid.sim.features.stage import Stage, same_tables
from perseid.sim.models.ha.broker import IDENTITY, MAIN_PORT, MAX_SKEW_MS, Settings, build_broker, listeners
from perseid.sim.models.ha.chain import LogHistories
from perseid.sim.models.ha.history import SetHistory
from perseid.sim.models.ha.members import ControllerMember, Replica
from perseid.sim.models.ha.oracle import BrokerSet, Oracle
from perseid.sim.models.ha.queues import QUEUES, TOPIC, Stored
from perseid.sim.models.raft.group import FAILED, MAX_FAILED_STARTS, PORT, Group, Watched, WatchedLog
from perseid.sim.net import End
from perseid.sim.process import Process
from perseid.sim.promises import Violation
from perseid.sim.rare_settings import BROKER, STORE, rare_settings
from perseid.sim.scheduler import US_PER_MS, US_PER_S
from perseid.sim.security import has_users
from perseid.sim.selection import WHOLE, Selection
from perseid.sim.users import ACCESS, ROOT, members
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command, decode_all
from perseid.wire.dledger import Entry

SET_NAME = "sim-a"
CONTROLLERS = 3
NAMESRV_IP, NAMESRV_PORT = "10.0.0.2", 9876
LOG_FILE_BYTES = (8 << 10, 16 << 10, 64 << 10)
VALIDATE_EVERY = 11
SEEN_BY = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE)
"""Requests of clients whose answers are looked at."""
OURS = (TOPIC, None)
"""Topics of the clients whose history is kept here; features keep their own."""
CONTROL = range(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, RequestCode.CONTROLLER_APPLY_BROKER_ID + 1)
LATE_MS = (5_000, 25_000)
"""When a broker starts that begins with the last file of the log."""
MAX_ASKED = 20_000
"""Requests whose answers are waited for; older ones are forgotten."""


class Ha(Group):
    """The machines of one run."""

    set_name = SET_NAME
    namesrv_address = f"{NAMESRV_IP}:{NAMESRV_PORT}"
    topics = ((TOPIC, QUEUES),)
    model = "ha"

    def __init__(
        self, seed: int, brokers: int = 0, *, modes: bool = False, strangers: bool = True,
        selection: Selection = WHOLE, **given: Any,
    ) -> None:  # fmt: skip
        """How many brokers, and all settings (`Settings`), are drawn, but for those that are given. `modes`: those too
        that few sets have. `strangers`: they may come to the controllers."""
        self.healed_at_us = 0
        with_users = has_users(self.model, seed)
        self.signs: Credentials | None = ROOT if with_users else None
        self.access = ACCESS if with_users else None
        synced = given.pop("synced", None)
        given_raft = {} if synced is None else {"sync_before_answer": synced}
        beat_ms = given.pop("controllers_beat_ms", None)
        if beat_ms is not None:
            given_raft["heart_beat_time_interval_ms"] = beat_ms
        super().__init__(seed, CONTROLLERS, strangers=strangers, selection=selection, **given_raft)
        self.stranger.is_unsigned = with_users
        self.synced = self.synced if synced is None else synced
        self.silence_us = self.silence_us if beat_ms is None else beat_ms * 3 * US_PER_MS
        random = self.scheduler.stream("ha")
        self.settings = Settings.drawn(random, synced=self.synced, **given)
        count = brokers or random.choice((2, 3, 3))
        if modes:
            self.settings = self.settings.with_modes(self.scheduler.stream("modes"), count)
        stores = {**self.settings.store_settings, **rare_settings(self.scheduler, STORE)}
        brokers_have = rare_settings(self.scheduler, BROKER)
        self.settings = replace(self.settings, store_settings=stores, broker_settings=brokers_have)
        for words in self.settings.modes():
            self.count(f"mode: {words}")
        self.oracle = Oracle(self.settings.unclean, self.count)
        self.oracle.is_learner = lambda number: number == self.learner
        self.log_histories = LogHistories()
        self.history = SetHistory(self)
        self.controllers = [one for one in self.members if isinstance(one, ControllerMember)]
        self.control_addresses = ";".join(self.addresses)
        self._moves = 0
        self.replicas = [self._broker(number) for number in range(1, count + 1)]
        self.stage = Stage(self, SET_NAME, MAIN_PORT, lambda: [one.driver for one in self.replicas])
        self.stage.offices = [self.namesrv_address, *self.addresses]
        self.stage.copied = self._copied
        self.stage.may_forget = self._may_forget
        self.stage.trusts = self._trusts_answers
        self.stage.master = lambda: self.master.driver if self.master is not None else None
        self.namesrv = NodeDriver(
            "namesrv", NAMESRV_IP, self.scheduler, self.network,
            lambda disk, random: NameServer(NameServerConfig(), disk, members=members(authenticates=with_users)),
            {"main": NAMESRV_PORT}, self.count_once,
        )  # fmt: skip
        self.namesrv.on_error = self._broke
        self.names = Watched(self, "namesrv", self.namesrv)
        self.namesrv.on_end = lambda reason: self.restart_later(self.names, 300, 2_000)
        self.network.tap = self._tap
        self._asked: dict[tuple[int, int], Command] = {}
        self._clients = 0
        self._checked: tuple[Any, ...] = ()
        self._ever_in_sync: dict[int, set[int]] = {}
        """Master's epoch → who was in sync at any time of it, or was to be."""
        self._led: dict[int, tuple[str, int]] = {}
        """Epoch → who led it, in which life: no other life may, for it may have less."""
        if self.settings.drift_ppm:
            self._set_clocks()

    # ---- parts ----

    @property
    def agreed(self) -> BrokerSet:
        """What the controllers have agreed on about the set."""
        return self.oracle.of(SET_NAME)

    @property
    def master(self) -> Replica | None:
        """The agreed master, if it knows and runs."""
        agreed = self.agreed
        for one in self.replicas:
            if one.is_master and one.look is not None and (one.id, one.epoch) == (agreed.master, agreed.master_epoch):
                return one
        return None

    @property
    def learner(self) -> int:
        """The id of the broker that is never in sync; 0: there is none, or it has none yet."""
        number = self.settings.learner
        return self.replicas[number - 1].id if number else 0

    def by_id(self, number: int) -> Replica | None:
        return next((one for one in self.replicas if one.id == number), None)

    def count(self, what: str, times: int = 1) -> None:
        self.counts[what] += times

    def count_once(self, what: str) -> None:
        self.counts[what] += 1

    def client_ip(self, name: str) -> str:
        """An address for a new client."""
        self._clients += 1
        ip = f"10.0.4.{self._clients}"
        self.network.machines[ip] = name
        return ip

    def answered(self, client: str, request: RequestCode, name: str, command: Command) -> None:
        """A client got an answer; refusals are worth a line."""
        if command.code != ResponseCode.SUCCESS:
            if "in-sync replicas not enough" in (command.remark or ""):
                self.count("send refused: too few are in sync")
            self.count(f"refusal {request.name} {name}")
            self.scheduler.note(client, f"{request.name} answered {name}: {command.remark}")

    def _member(self, name: str, number: int, settings: dict[str, Any]) -> Watched:
        raft = RaftConfig(self_id=name, **settings)
        made: list[Watched] = []

        def new_log(*arguments: Any, **more: Any) -> WatchedLog:
            log = WatchedLog(*arguments, **more)
            log.watcher = made[0]
            return log

        def build(disk: SimDisk, random: Random) -> Controller:
            watched = made[0]
            assert isinstance(watched, ControllerMember)
            watched.seen = -1
            config = ControllerConfig(
                controller_dleger_group=raft.group, controller_dleger_peers=raft.peers, controller_dleger_self_id=name,
                scan_inactive_master_interval=2_000, enable_elect_unclean_master=self.settings.unclean,
            )  # fmt: skip
            certified = self.network.tls is not None and self.network.tls.certified(GROUP)
            controller = Controller(
                config, raft, disk, random, new_log=new_log,  # type: ignore[arg-type]
                members=members(authenticates=self.access is not None, certified=certified),
            )  # fmt: skip
            self.hear(watched, controller.raft)
            return controller

        ip = f"10.0.3.{number}"
        driver = NodeDriver(name, ip, self.scheduler, self.network, build, {CONTROLLER: PORT}, self.count_once)
        watched = ControllerMember(self, name, driver)
        made.append(watched)
        self._watch(watched)
        return watched

    def _committed(self, raft: Raft, entry: Entry) -> None:
        before = self.agreed
        epoch, members = before.master_epoch, before.members
        self.oracle.apply(bytes(entry.body))
        agreed = self.agreed
        self.in_sync(agreed.master_epoch, agreed.members)
        if agreed.master_epoch == epoch:
            self._check_joiners(agreed.members - members)

    def _check_joiners(self, joiners: frozenset[int]) -> None:
        """C4: who comes in sync has all with which its master's epoch began, confirmed by then or not."""
        master = self.master
        if master is None or not self.strict or not master.epochs or master.tail_epoch != self.agreed.master_epoch:
            return
        epoch, start = master.epochs[-1]
        for number in sorted(joiners):
            member = self.by_id(number)
            if member is not None and not member.excused and member.end < start:
                raise Violation("C4", f"{member.name} is in sync, ends at {member.end}; epoch {epoch} began at {start}")

    def _broker(self, number: int) -> Replica:
        name, ip = f"broker{number}", f"10.0.2.{number}"
        made: list[Replica] = []

        def build(disk: SimDisk, random: Random) -> Broker:
            ip = made[0].driver.ip
            return self._build_broker(number, ip, disk, random)

        driver = NodeDriver(name, ip, self.scheduler, self.network, build, listeners(), self.count_once)
        replica = Replica(self, name, driver)
        made.append(replica)
        self._watch(replica)
        driver.validate_every = VALIDATE_EVERY
        driver.on_started = replica.started
        return replica

    def _build_broker(self, number: int, ip: str, disk: SimDisk, random: Random) -> Broker:
        addresses = self.control_addresses, self.namesrv_address
        return build_broker(self.settings, number, ip, *addresses, disk, random, self.access)

    # ---- life ----

    def start(self) -> None:
        self.namesrv.start()
        super().start()
        for number, replica in enumerate(self.replicas, 1):
            if number == self.settings.late:
                self.restart_later(replica, *LATE_MS)
            else:
                self._start(replica)

    def _set_clocks(self) -> None:
        random, most = self.scheduler.stream("clocks"), self.settings.drift_ppm
        for one in (*self.controllers, *self.replicas, self.names):
            one.driver.drift_ppm = random.randint(-most, most)
            one.driver.clock_ms = random.randint(-MAX_SKEW_MS, MAX_SKEW_MS)

    def _start(self, watched: Watched) -> None:
        if isinstance(watched, ControllerMember):
            super()._start(watched)
            return
        self.down.discard(watched.name)
        watched.driver.start()
        if watched.driver.machine is not None:
            self._failed_starts = 0

    def cut_power(self, watched: Watched) -> None:
        super().cut_power(watched)
        if isinstance(watched, Replica):
            watched.log.dirty = 0

    def wipe(self, replica: Replica, keep: tuple[str, ...]) -> None:
        """The disk of a broker that is down is replaced by an empty one, with some files of the old one."""
        old = replica.driver.disk
        new = SimDisk(self.scheduler.stream(f"disk {replica.name} {replica.driver.lives}"))
        for path in keep:
            data = old.read(path)
            if data is not None:
                new.write(path, data)
                new.sync_file(path)
        new.sync_dir("")
        replica.driver.disk = new
        replica.log.watch(new)
        replica.excused, replica.wiped, replica.trusted = True, True, (0, b"")

    def move(self, replica: Replica) -> None:
        """A broker that is down gets another address."""
        self._moves += 1
        replica.driver.ip = f"10.0.5.{self._moves}"
        self.network.machines[replica.driver.ip] = replica.name

    def copy(self, replica: Replica) -> NodeDriver:
        """Start a broker at another address, on a copy of a broker's disk as it is."""
        self._moves += 1
        ip = f"10.0.6.{self._moves}"
        driver = NodeDriver(
            "copy", ip, self.scheduler, self.network,
            lambda disk, random: self._build_broker(0, ip, disk, random), listeners(), self.count_once,
        )  # fmt: skip
        for file in replica.driver.disk.files():
            driver.disk.names.link(file.path, SimFile(driver.disk, file.path, bytearray(file.data)))
        driver.on_error = self._broke
        driver.start()
        return driver

    def _ended(self, watched: Watched, reason: str) -> None:
        if not reason:
            self.count(f"{'controller' if isinstance(watched, ControllerMember) else 'broker'} ended cleanly")
            if self.healed and watched.name not in self.down:  # `heal` found it still running
                self.restart_later(watched, 300, 2_000)
            return
        if isinstance(watched, ControllerMember):
            super()._ended(watched, reason)
            return
        kind = "crash point" if reason == "crash point" else "disk failed"
        if reason.startswith("can't start"):
            kind = "could not start"
            self._failed_starts += 1
        self.count(f"broker ended: {kind}")
        if self._failed_starts > MAX_FAILED_STARTS or "CorruptLog" in reason:
            raise Violation("a broker runs", f"{watched.name}: {reason}")
        if kind == "disk failed" and not any(words in reason for words in FAILED):
            raise Violation("a broker runs", f"{watched.name}: {reason}")
        if watched.name not in self.down:
            self.restart_later(watched, 300, 2_000)

    def _job(self, watched: Watched, effect: Flush | SaveState) -> Any:
        return super()._job(watched, effect) if isinstance(watched, ControllerMember) else None

    def _noted(self, watched: Watched, text: str) -> None:
        if isinstance(watched, ControllerMember):
            super()._noted(watched, text)
        elif "does not know the id" in text and isinstance(watched, Replica):
            self.scheduler.after(US_PER_S, self._give_new_id, watched, watched.driver.lives)
        elif "Wipe the store" in text and text.startswith("master ") and isinstance(watched, Replica):
            self.scheduler.after(US_PER_S, self._wipe_for, watched.id)
        elif "Wipe its store" in text and text.startswith("replica "):
            self.scheduler.after(US_PER_S, self._wipe_for, int(text.split()[1]))
        elif " follows from " in text and text.split()[1] == str(self.learner):
            self.count("learner follows")

    def _wipe_for(self, number: int) -> None:
        """An operator reads that a replica shares no history with its master, as after an unclean election, or where
        the one in sync may have lost all of its log, or that its master's log begins behind its end, and wipes it;
        nobody else has to be helped so."""
        replica, may_part = self.by_id(number), self.settings.unclean or self.settings.late or not self.strict
        if replica is None or number in self.agreed.members or replica.driver.machine is None or not may_part:
            return
        self.count("wiped, has another history than its master")
        self.crash(replica)
        self.wipe(replica, (IDENTITY,))
        self.restart_later(replica, 50, 500)

    def _give_new_id(self, replica: Replica, life: int) -> None:
        """An operator reads what a broker says whom the controllers have forgotten, and does it."""
        if replica.driver.lives == life and replica.driver.machine is not None:
            self.count("forgotten, comes back with a new id")
            replica.driver.crash("its id is removed")
            replica.driver.disk.remove(IDENTITY)
            self.restart_later(replica, 50, 500)

    # ---- what passes by ----

    def _tap(self, end: End, data: bytes) -> None:
        """Bytes are about to leave a machine."""
        owner, other = end.owner, end.other.owner
        if isinstance(owner, Process):
            self._remember(end, data, SEEN_BY)
        elif not isinstance(owner, NodeDriver):
            return
        elif end.listener == CONTROLLER or end.other.listener == CONTROLLER or end.address.endswith(f":{PORT}"):
            if not isinstance(other, NodeDriver) or not other.name.startswith("n"):
                self._control_answers(end, data)
        elif end.other.address.endswith(f":{PORT}"):
            self._remember(end, data, CONTROL)
        elif owner.name.startswith("broker") and end.address.endswith(f":{MAIN_PORT}"):
            self._broker_answers(owner, end, data)
        elif owner.name == "copy" and end.address.endswith(f":{MAIN_PORT}"):
            self._copy_answers(end, data)

    def _remember(self, end: End, data: bytes, codes: Any) -> None:
        for command in decode_all(data):
            of_feature = command.code in SEEN_BY and command.ext.get("b", command.ext.get("topic")) not in OURS
            if not command.is_response and command.code in codes and not of_feature:
                self._asked[end.other.id, command.opaque] = kept = command.keep()
                if command.code == RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET:
                    proposed = json.loads(bytes(kept.body))["syncStateSet"]
                    self.in_sync(int(kept.ext["masterEpoch"]), proposed)
                if len(self._asked) > MAX_ASKED:
                    del self._asked[next(iter(self._asked))]

    def _control_answers(self, end: End, data: bytes) -> None:
        for command in decode_all(data):
            request = self._asked.pop((end.id, command.opaque), None) if command.is_response else None
            if request is not None:
                self.count(f"control {RequestCode(request.code).name} {ResponseCode(command.code).name}")
                self.oracle.check(request, command)

    def _broker_answers(self, driver: NodeDriver, end: End, data: bytes) -> None:
        replica = next(one for one in self.replicas if one.driver is driver)
        for command in decode_all(data):
            request = self._asked.pop((end.id, command.opaque), None) if command.is_response else None
            if request is not None and replica.look is not None:
                replica.after_event()
                self.history.answered(replica, request, command)

    def _copy_answers(self, end: End, data: bytes) -> None:
        for command in decode_all(data):
            request = self._asked.pop((end.id, command.opaque), None) if command.is_response else None
            if request is not None and command.code == ResponseCode.SUCCESS:
                raise Violation("C7", f"a broker on a copied disk answers {RequestCode(request.code).name}")

    # ---- what must hold ----

    @property
    def strict(self) -> bool:
        """Do acknowledgements wait for all that are in sync, and for their disks where power may fail?"""
        return self.settings.strict

    @property
    def certain(self) -> bool:
        """Was nothing that clients were told allowed to get lost until now?"""
        return self.strict and not self.agreed.unclean_at and not self.history.places.begun_anew

    def trusts(self, replica: Replica) -> bool:
        """Does what this broker tells clients hold for ever? Not if somebody who was not in sync was elected since:
        what it had beyond that one's log is lost, whatever it answers."""
        unclean_at = self.agreed.unclean_at
        return self.strict and (not unclean_at or unclean_at <= min(replica.epoch, replica.tail_epoch))

    def _trusts_answers(self, driver: NodeDriver) -> bool:
        """May a feature believe what this broker tells it? Where one may lead that has only the last files, not a
        master that does not know yet that another one leads: it tells of what that one lacks."""
        replica = next((one for one in self.replicas if one.driver is driver), None)
        if replica is None:
            return False
        return self.is_current(replica) or (self.trusts(replica) and not self.settings.late)

    def _copied(self) -> bool:
        """Who is away, and may be master when it is back, has what it had: that is not known."""
        away = any(one.driver.machine is None and one.id in self.agreed.members for one in self.replicas)
        return self.master is not None and not away and same_tables(self.stage.brokers())

    def _may_forget(self) -> bool:
        """May someone lead who never had the tables of topics and groups? Who was elected without being in sync, and
        whose disk was new when it came in sync, before its first copy of them."""
        return not self.certain or bool(self.settings.late) or any(one.wiped for one in self.replicas)

    def _tell_features(self) -> None:
        """Another life, or another broker, leads: it may do again what the last one began, and lack what it knew where
        that is allowed."""
        self.stage.repeated()
        if not self.certain or self.settings.late:
            self.stage.lost()

    def in_sync(self, epoch: int, members: Iterable[int]) -> None:
        """These are in sync in an epoch, or are proposed."""
        self._ever_in_sync.setdefault(epoch, set()).update(members)

    def ever_in_sync(self, epoch: int) -> set[int]:
        """Who was in sync at any time, or was to be, since the master of an epoch has been one."""
        masters, found = self.agreed.masters, set(self._ever_in_sync.get(epoch, ()))
        master = masters.get(epoch)
        while epoch > 1 and masters.get(epoch - 1) in (None, master):
            epoch -= 1
            found |= self._ever_in_sync.get(epoch, set())
        return found

    def require_nodes(self, replica: Replica, stored: Stored) -> None:
        """inSyncReplicas: so many nodes, no learners among the slaves, have what the agreed master acknowledges; one
        whose disk was wiped counts as who it was, too."""
        settings = self.settings
        if settings.nodes <= 1 or settings.all_ack or (settings.synced and not settings.report_durable):
            return
        counts = [one for one in self.replicas if one is replica or one.id != self.learner]
        who = [one for one in counts if one.excused or one.has(stored)]
        if len(who) + sum(one.wiped for one in who) < settings.nodes:
            raise Violation(
                "inSyncReplicas", f"{replica.name} acknowledges {stored.body[:20]!r} at {stored.physical}, which only "
                f"{', '.join(one.name for one in who)} have, {settings.nodes} should"
            )  # fmt: skip
        self.count(f"acknowledged by {settings.nodes} nodes")

    def require_holders(self, promise: str, replica: Replica, stored: Stored) -> str:
        """C4, C10: who is in sync, as agreed, has a message. Their names."""
        agreed = self.agreed
        found = []
        for number in sorted(agreed.members):
            member = self.by_id(number)
            if member is None or member.excused:
                continue
            if member.has(stored):
                found.append(member.name)
            elif self.strict:
                what = f"{stored.body[:20]!r} at {stored.physical}"
                raise Violation(
                    promise, f"{replica.name} (epoch {replica.epoch}) answers {what}, which {member.name} has not; in "
                    f"sync: {sorted(agreed.members)}, master {agreed.master} of {agreed.master_epoch}"
                )  # fmt: skip
        return ", ".join(found)

    def check_confirmed(self, master: Replica, confirmed: int) -> None:
        """C10: what a master calls confirmed, all in sync have."""
        agreed = self.agreed
        state = (master.name, confirmed, agreed.set_epoch, agreed.master_epoch)
        if state == self._checked:
            return
        self._checked = state
        digest = master.log.at(confirmed)
        for number in sorted(agreed.members):
            member = self.by_id(number)
            if member is None or member is master or member.excused or member.look is None or digest is None:
                continue
            if member.start <= confirmed and member.log.at(confirmed) != digest:
                raise Violation(
                    "C10", f"{master.name} (epoch {master.epoch}) has {confirmed} confirmed, {member.name} ends at "
                    f"{member.end}; in sync: {sorted(agreed.members)}, master {agreed.master} of {agreed.master_epoch}"
                )  # fmt: skip

    def became_master(self, replica: Replica, *, again: bool) -> None:
        """C1, C5, C11: a broker takes a new epoch as its master."""
        self.count("became master again" if again else "became master")
        self._tell_features()
        agreed, life = self.agreed, (replica.name, replica.driver.lives)
        self.oracle.master_is(SET_NAME, replica.epoch, replica.id)
        if self._led.setdefault(replica.epoch, life) != life:
            raise Violation("C9", f"{replica.name} leads epoch {replica.epoch}, as life {self._led[replica.epoch]} did")
        self.scheduler.note("checkers", f"{replica.name} is master of {replica.epoch}, its log ends at {replica.end}")
        if replica.epoch != agreed.master_epoch:
            self.count("became master late")  # others were elected since
            if agreed.unclean_at >= replica.epoch > self.history.began:  # it may be who was not in sync
                self.history.master_began(replica)
            return
        self.history.master_began(replica)
        self.history.places.check(replica)
        if not again:
            self.ambush(0.1, "a new master is killed", replica)

    def current(self, address: str) -> bool:
        """Is the broker at this address the agreed master?"""
        master = self.master
        return master is not None and master.address == address

    def is_current(self, replica: Replica) -> bool:
        """Is this the agreed master, in its own eyes too?"""
        return replica.is_master and (replica.id, replica.epoch) == (self.agreed.master, self.agreed.master_epoch)

    def has_all(self, replica: Replica) -> bool:
        """Has it everything that anybody was told of?"""
        stored = self.history.stored.values()
        return bool(stored) and max(one.end for one in stored) <= replica.end and all(map(replica.has, stored))

    def settled(self) -> str:
        """Why not everything is as it should be in the end; "" when it is."""
        why = super().settled()
        if why:
            return why
        master, agreed = self.master, self.agreed
        if master is None:
            return f"nobody is master of {agreed.master_epoch}, agreed: {agreed.master}"
        for one in self.replicas:
            if one.look is None:
                return f"{one.name} is down"
            if one.id not in agreed.members and one.id != self.learner:
                return f"{one.name} ({one.id}) is not in sync: {sorted(agreed.members)}"
            if one.log.hashes[-1:] != master.log.hashes[-1:]:
                return f"{one.name} ends at {one.end}, {master.name} at {master.end}"
            if one.confirmed < one.end:
                return f"{one.name} has {one.confirmed} confirmed, its log ends at {one.end}"
        return ""

    @property
    def serving(self) -> bool:
        """C13: the agreed master is there, and an active controller."""
        return self.master is not None and any(one.active for one in self.controllers)

    def active_within(self) -> int:
        """C13: until then an active controller has to be there after all has healed, in microseconds."""
        return self.healed_at_us + 6 * US_PER_S + 4 * self.silence_us
