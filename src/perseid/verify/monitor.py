"""Polls controllers, members of a DLedger group and brokers while an outage lasts; the sender reports the name server's
answers. How each broker set fails over is asked of its brokers beforehand (`prepare`).

Each is polled every `poll_ms`, independently: one that hangs delays no other.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from perseid.base.errors import PerseidError
from perseid.client.admin import Admin
from perseid.client.controller import ControllerClient, ReplicaSet
from perseid.client.dledger import DLedgerClient, MemberStatus
from perseid.client.errors import ClientError
from perseid.client.session import Session
from perseid.verify.outage import (
    CONTROLLER_PHASES,
    DLEDGER_PHASES,
    FIRST_ACK,
    ROLE_CHANGE,
    STANDALONE_PHASES,
    Observation,
    Outage,
)
from perseid.wire.bodies import MASTER_ID

log = logging.getLogger("perseid.client")

ASK_TIMEOUT_MS = 500
"""Of one request; then it is sent again."""
REFRESH_S = 1.0
"""How often the master's epoch or the term is asked for without an outage."""
MAX_ERRORS = 20
"""Kinds of errors that are counted, an outage."""
SETTLE_S = 1.0
"""How long polling goes on after an outage under a new master, until the role change was seen: the first
acknowledgement may overtake the answers."""
CAUSE_S = 30.0
"""`cause()` explains an outage that begins within this time after it."""


@dataclass(slots=True)
class _BrokerSet:
    """How a broker set fails over, and its state before the outage."""

    broker_name: str
    controllers: str = ""
    peers: str = ""
    group: str = ""
    epoch: int | None = None
    """Of the master (controllers), or the term (groups)."""
    master_id: int | None = None
    members: dict[str, str] = field(default_factory=dict)
    """Of a group: member's id → broker's address."""

    @property
    def phase_names(self) -> tuple[str, ...]:
        return CONTROLLER_PHASES if self.controllers else DLEDGER_PHASES if self.peers else STANDALONE_PHASES


class OutageMonitor:
    """Observes a sender (`SteadySender(observer=monitor)`) within `async with`; `outages` are those that are over.

    `controllers` are asked instead of those that the brokers name. `on_begin` and `on_end` are called with each outage.
    """

    def __init__(
        self,
        session: Session,
        *,
        poll_ms: float = 5,
        controllers: str | None = None,
        on_begin: Callable[[Outage], None] | None = None,
        on_end: Callable[[Outage], None] | None = None,
    ) -> None:
        self.outages: list[Outage] = []
        self.open: dict[str, Outage] = {}
        self._session = session
        self._admin = Admin(session=session, timeout_ms=ASK_TIMEOUT_MS)
        self._poll_ms = poll_ms
        self._given = controllers
        self._on_begin, self._on_end = on_begin, on_end
        self._known: dict[str, _BrokerSet] = {}
        self._controllers: dict[str, ControllerClient] = {}
        self._groups: dict[str, DLedgerClient] = {}
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}
        self._settling: dict[str, tuple[Outage, asyncio.Task[None]]] = {}
        self._routeless: set[str] = set()
        self._first_error: dict[str, str] = {}
        self._cause: Observation | None = None
        self._refresher: asyncio.Task[None] | None = None

    async def __aenter__(self) -> OutageMonitor:
        await self._admin.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(task for _, task in self._settling.values()))
        tasks = [task for tasks in self._tasks.values() for task in tasks]
        tasks += [self._refresher] if self._refresher is not None else []
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end  # a defect of ours: what others can bring about is caught where it is asked
        for group in self._groups.values():
            await group.__aexit__(None, None, None)
        await self._admin.stop()

    def cause(self, what: str) -> None:
        """Something is about to be done that may bring an outage about, or prolong one: its window begins here."""
        self._cause = Observation(self._now(), what)
        for outage in self.open.values():
            outage.cause = outage.cause or self._cause

    # ---- before an outage ----

    async def prepare(self, topic: str) -> None:
        """Find out how the brokers of a topic fail over. ClientError when they don't answer."""
        route = await self._session.routes.fetch(topic)
        for name, replicas in route.brokers.items():
            self._known[name] = await self._learn(name, replicas)
        await self._refresh()
        self._refresher = asyncio.create_task(self._keep_fresh())

    async def _learn(self, name: str, replicas: dict[int, str]) -> _BrokerSet:
        known = _BrokerSet(name, controllers=self._given or "")
        for address in replicas.values():
            try:
                config = await self._admin.broker_config(address)
            except ClientError as error:
                log.info("%s does not say how it fails over: %s", address, error)
                continue
            if config.get("enableControllerMode") == "true":
                known.controllers = known.controllers or config.get("controllerAddr", "")
            elif config.get("enableDLegerCommitLog") == "true":
                known.peers, known.group = config.get("dLegerPeers", ""), config.get("dLegerGroup", "")
                known.members[config.get("dLegerSelfId", "")] = address
        if known.controllers and known.controllers not in self._controllers:
            self._controllers[known.controllers] = ControllerClient(
                known.controllers, timeout_ms=ASK_TIMEOUT_MS, connections=self._session.connections
            )
        if known.peers and known.peers not in self._groups:
            self._groups[known.peers] = await DLedgerClient(known.peers, group=known.group).__aenter__()
        return known

    async def _keep_fresh(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            await self._refresh()

    async def _refresh(self) -> None:
        for known in self._known.values():
            if self._busy(known.broker_name):
                continue
            try:
                if known.controllers:
                    for found in await self._controllers[known.controllers].replica_sets([known.broker_name]):
                        if not self._busy(known.broker_name) and found.master_alive:
                            known.epoch, known.master_id = found.master_epoch, found.master_id
                elif known.peers:
                    rows = (await self._groups[known.peers].status()).values()
                    terms = [row.term for row in rows if row.term is not None and row.leader == row.id]
                    if not self._busy(known.broker_name) and terms:
                        known.epoch = max(terms)
            except PerseidError as error:
                log.info("%s: %s", known.broker_name, error)

    def _busy(self, broker_name: str) -> bool:
        """Is it polled now? Then its state before is kept, to be compared with."""
        return broker_name in self.open or broker_name in self._settling

    # ---- for the sender ----

    def outage_began(self, broker_name: str, master: str, last_ack: float, time_ms: int) -> None:
        """Start polling."""
        now = self._now()
        if broker_name in self._settling:
            before, settling = self._settling.pop(broker_name)
            settling.cancel()
            self._finish(before)
        known = self._known.setdefault(broker_name, _BrokerSet(broker_name))
        outage = Outage(broker_name, master, known.phase_names, last_ack, now, time_ms, poll_ms=self._poll_ms)
        outage.epochs = (known.epoch, known.epoch)
        if self._cause is not None and now - self._cause.at < CAUSE_S:
            outage.cause = self._cause
        self._cause = None
        if broker_name in self._first_error:
            outage.errors[self._first_error.pop(broker_name)] = 1
        self.open[broker_name] = outage
        asks: list[Coroutine[Any, Any, None]]
        if known.controllers:
            asks = [self._ask_controllers(outage, known)]
        elif known.peers:
            asks = [self._ask_member(outage, known, name) for name in self._groups[known.peers].members]
        else:
            asks = [self._ask_old_master(outage)]
        self._tasks[broker_name] = [asyncio.create_task(ask, name=f"monitor {broker_name}") for ask in asks]
        if self._on_begin is not None:
            self._on_begin(outage)

    def attempt_failed(self, broker_name: str, why: str) -> None:
        """Count it; the attempt that begins an outage fails before that."""
        outage = self.open.get(broker_name)
        if outage is None:
            self._first_error[broker_name] = why
        elif (why in outage.errors or len(outage.errors) < MAX_ERRORS):
            outage.errors[why] = outage.errors.get(why, 0) + 1

    def route_answered(self, broker_name: str, master: str | None) -> None:
        """The name server names another master, or one again."""
        outage = self.open.get(broker_name)
        if outage is None:
            return
        if master is None:
            self._routeless.add(broker_name)
        elif master != outage.old_master or broker_name in self._routeless:
            outage.note("route", self._now(), f"the name server names {master}")

    def outage_ended(self, broker_name: str, master: str) -> None:
        """A message was acknowledged."""
        outage = self.open.pop(broker_name, None)
        if outage is None:
            return
        now = self._now()
        outage.first_ack, outage.new_master = now, master
        outage.note(FIRST_ACK, now, f"{master} acknowledges")
        self._routeless.discard(broker_name)
        self._first_error.pop(broker_name, None)
        self.outages.append(outage)
        if master == outage.old_master or self._role_change_seen(outage):
            self._finish(outage)
        else:
            self._settling[broker_name] = outage, asyncio.create_task(self._settle(outage))

    @staticmethod
    def _role_change_seen(outage: Outage) -> bool:
        return ROLE_CHANGE not in outage.phase_names or ROLE_CHANGE in outage.seen

    async def _settle(self, outage: Outage) -> None:
        deadline = self._now() + SETTLE_S
        while not self._role_change_seen(outage) and self._now() < deadline:
            await self._pause()
        del self._settling[outage.broker_name]
        self._finish(outage)

    def _finish(self, outage: Outage) -> None:
        """Polling ends."""
        for task in self._tasks.pop(outage.broker_name, []):
            task.cancel()
        self._known[outage.broker_name].epoch = outage.epochs[1]
        if self._on_end is not None:
            self._on_end(outage)

    # ---- polling ----

    async def _ask_controllers(self, outage: Outage, known: _BrokerSet) -> None:
        """Until another broker was elected, and says that it is master."""
        client = self._controllers[known.controllers]
        active: str | None = None
        elected: ReplicaSet | None = None
        while elected is None:
            try:
                sets = await client.replica_sets([outage.broker_name])
            except ClientError as error:
                sets = []
                self._remark(outage, f"no answer from the controllers: {error}")
            else:
                if active not in (None, client.active):
                    what = f"controller {client.active} is active instead of {active}"
                    outage.remarks.append(Observation(self._now(), what))
                active = client.active
            for found in sets:
                if self._elected(outage, known, found, active or "a controller"):
                    elected = found
            if elected is None:
                await self._pause()
        while True:
            try:
                told = await self._admin.broker_epochs(elected.master_address)
            except ClientError as error:
                log.debug("%s: %s", elected.master_address, error)
            else:
                if told.broker_id == MASTER_ID and told.epochs and told.epochs[-1][0] >= elected.master_epoch:
                    what = f"{elected.master_address} is master, its log begins epoch {told.epochs[-1][0]}"
                    outage.note(ROLE_CHANGE, self._now(), f"{what} at {told.epochs[-1][1]:,}")
                    return
            await self._pause()

    def _elected(self, outage: Outage, known: _BrokerSet, found: ReplicaSet, active: str) -> bool:
        """True when a newer master is there; notes what else is new."""
        now, newer = self._now(), known.epoch is not None and found.master_epoch > known.epoch
        dead = [r for r in found.replicas if r.id == known.master_id and not r.alive]
        if dead and not (newer and found.master_id is not None):
            outage.note("detection", now, f"controller {active} takes broker {known.master_id} for dead")
        if not newer:
            return False
        if found.master_id is None:
            self._remark(outage, f"controller {active}: nobody can be elected (epoch {found.master_epoch})")
            return False
        outage.epochs = (outage.epochs[0], found.master_epoch)
        outage.note("election", now, f"controller {active}: broker {found.master_id}, epoch {found.master_epoch}")
        known.master_id = found.master_id
        return True

    def _remark(self, outage: Outage, what: str) -> None:
        if len(outage.remarks) < MAX_ERRORS and what not in (one.what for one in outage.remarks):
            outage.remarks.append(Observation(self._now(), what))

    async def _ask_member(self, outage: Outage, known: _BrokerSet, name: str) -> None:
        """One member of a group, and, when it leads a newer term, the broker on it."""
        client = self._groups[known.peers]
        while True:
            row: MemberStatus = await client.status_of(name, timeout_ms=ASK_TIMEOUT_MS)
            if row.term is not None and (known.epoch is None or row.term > known.epoch):
                outage.note("detection", self._now(), f"{name} is in term {row.term}")
                if row.leader == name:
                    outage.epochs = (outage.epochs[0], row.term)
                    outage.note("election", self._now(), f"{name} leads term {row.term}")
                    break
            await self._pause()
        while (address := known.members.get(name)) is not None:
            try:
                role = (await self._admin.broker_config(address)).get("brokerRole", "")
            except ClientError as error:
                log.debug("%s: %s", address, error)
            else:
                if role.endswith("MASTER"):
                    outage.note(ROLE_CHANGE, self._now(), f"{address} is {role}")
                    return
            await self._pause()

    async def _ask_old_master(self, outage: Outage) -> None:
        """Until a process answers where the master was, once none did."""
        gone = False
        while True:
            try:
                await self._admin.broker_runtime_info(outage.old_master)
            except ClientError:
                gone = True
            else:
                if gone:
                    outage.note("return", self._now(), f"a process answers at {outage.old_master}")
                    return
            await self._pause()

    async def _pause(self) -> None:
        await asyncio.sleep(self._poll_ms / 1000)

    @staticmethod
    def _now() -> float:
        return time.monotonic()  # uvloop's own clock counts whole milliseconds
