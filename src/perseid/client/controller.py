"""Administers the controllers of a cluster, Perseid's or the original's: who is master, who is in sync, their settings.

    async with ControllerClient("host:9878;host:9868;host:9858") as controllers:
        (found,) = await controllers.replica_sets(["broker-a"])

Requests that only the active controller answers are sent to it: `addresses` may name any of them. While none is active
(they are electing) requests wait up to `timeout_ms`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from perseid.client.answers import body_of, header_of
from perseid.client.connection import Connections, Header
from perseid.client.credentials import credentials_here
from perseid.client.errors import (
    ConnectFailed,
    ConnectionLost,
    NoController,
    RequestTimeout,
    ServerRefused,
    UsageError,
)
from perseid.client.lifecycle import Client
from perseid.client.surroundings import now_ms
from perseid.client.tls import ClientTls
from perseid.security.credentials import Credentials
from perseid.wire import fastjson
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.controller import BrokerReplicasInfo, ReplicasInfo
from perseid.wire.headers.controller import (
    CleanBrokerDataRequest,
    ElectMasterRequest,
    ElectMasterResponse,
    GetMetaDataResponse,
)

TIMEOUT_MS = 10_000
CALL_TIMEOUT_MS = 5_500
"""Of one request: a little more than a controller waits for its group."""
FIND_TIMEOUT_MS = 1_000
"""Of one question for the active controller: one that is stopped must not hold up the others."""
PAUSE_S = 0.05
_GONE = (ConnectFailed, ConnectionLost, RequestTimeout)


@dataclass(frozen=True, slots=True)
class ControllerStatus:
    """One controller, as it sees itself."""

    address: str
    """Its `host:port`."""
    reachable: bool
    """Whether it answered; if not, nothing else is known."""
    active: bool = False
    """Whether it leads the group, by its own account."""
    group: str = ""
    """The name of its group."""
    leader_id: str = ""
    """The member that leads, as it knows; empty: none."""
    leader_address: str = ""
    """That one's `host:port`."""
    peers: tuple[str, ...] = ()
    """Of all of them, as `id:host:port`."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One broker of a set, as the active controller sees it."""

    id: int
    """What the controller calls it: 1 or more."""
    address: str
    """Its `host:port`."""
    alive: bool
    """Whether the controller receives its heartbeats."""
    in_sync: bool
    """Whether it is in the in-sync set."""


@dataclass(frozen=True, slots=True)
class ReplicaSet:
    """One broker set, as the active controller knows it."""

    broker_name: str
    """The name of the set."""
    master_id: int | None
    """The master's id; None: there is none."""
    master_address: str
    """The master's `host:port`; empty: there is none."""
    master_epoch: int
    """How often a master was elected."""
    sync_epoch: int
    """How often the in-sync set has changed."""
    replicas: tuple[Replica, ...]
    """Sorted by id."""

    @property
    def master_alive(self) -> bool:
        """True when there is a master, and the controller receives its heartbeats."""
        return any(r.alive for r in self.replicas if r.id == self.master_id)


@dataclass(frozen=True, slots=True)
class Elected:
    """The outcome of an election."""

    broker_name: str
    """The name of the set."""
    master_id: int
    """The master's id now."""
    master_address: str
    """Its `host:port`."""
    master_epoch: int
    """How often a master was elected."""
    changed: bool
    """False: it was master before."""


def addresses_of(text: str | Iterable[str]) -> list[str]:
    """The `host:port` of a list like `a:1;b:2`; peers' ids in front of them (`n0-a:1`) may stay. ClientError when
    there is none."""
    texts = text.replace(",", ";").split(";") if isinstance(text, str) else list(text)
    found = []
    for part in filter(None, (text.strip() for text in texts)):
        host, colon, port = part.rpartition(":")
        if not colon or not host or not port.isdecimal():
            raise UsageError(f"controllers {text!r}: host:port;host:port is wanted")
        name, dash, rest = host.partition("-")
        found.append(f"{rest if dash and name[:1] == 'n' and name[1:].isdecimal() else host}:{port}")
    if not found:
        raise UsageError("no controller given: --controllers host:port;host:port")
    return found


class ControllerClient(Client):
    """Talks to the controllers at `addresses`; times are milliseconds. `connections` may be shared."""

    def __init__(
        self,
        addresses: str | Iterable[str],
        *,
        timeout_ms: int = TIMEOUT_MS,
        connections: Connections | None = None,
        credentials: Credentials | None = None,
        tls: ClientTls | None = None,
    ) -> None:
        self.addresses = addresses_of(addresses)
        self._timeout_ms = timeout_ms
        self._shared = connections
        self._credentials = credentials
        self._tls = tls
        self._connections = connections
        self._active: str | None = None

    async def start(self) -> None:
        """Get ready; connections are opened when first needed."""
        if self._connections is None:
            self._connections = Connections(
                lambda connection, command: None, credentials=self._credentials or credentials_here(), tls=self._tls
            )

    async def stop(self) -> None:
        """Close the connections, unless they are shared."""
        if self._shared is None and self._connections is not None:
            await self._connections.close()
            self._connections = None

    # ---- the controllers ----

    @property
    def active(self) -> str | None:
        """The controller that was active when last asked."""
        return self._active

    async def status(self) -> list[ControllerStatus]:
        """Each controller, in the order of `addresses`."""
        return list(await asyncio.gather(*(self._status_of(address) for address in self.addresses)))

    async def find_active(self) -> str | None:
        """The address of the active controller, asked for now; None when no controller names one."""
        asked = [asyncio.ensure_future(self._status_of(address)) for address in self.addresses]
        named: str | None = None
        try:
            for answer in asyncio.as_completed(asked):
                found = await answer
                if found.active:
                    self._active = found.address
                    return found.address
                named = named or found.leader_address or None
        finally:
            for one in asked:
                one.cancel()
        self._active = named if named not in self.addresses else None
        return self._active

    async def config(self, address: str) -> dict[str, str]:
        """All settings of one controller as they are now: key → text."""
        answer = await self._call(address, RequestCode.GET_CONTROLLER_CONFIG)
        if answer.code != ResponseCode.SUCCESS:
            raise ServerRefused(answer.code, answer.remark, address)
        lines = bytes(answer.body).decode("utf-8", "replace").splitlines()
        pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
        return {name.strip(): value.strip() for name, value in pairs}

    async def update_config(self, address: str, settings: Mapping[str, str]) -> None:
        """Change settings of one running controller."""
        body = "".join(f"{name}={value}\n" for name, value in settings.items()).encode()
        answer = await self._call(address, RequestCode.UPDATE_CONTROLLER_CONFIG, None, body)
        if answer.code != ResponseCode.SUCCESS:
            raise ServerRefused(answer.code, answer.remark, address)

    # ---- broker sets ----

    async def replica_sets(self, broker_names: Sequence[str]) -> list[ReplicaSet]:
        """The named broker sets, in that order; those that the controllers don't know are left out."""
        body = bytes(fastjson.dumps(list(broker_names)))
        answer = await self._at_active(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, None, body)
        table = body_of(answer, BrokerReplicasInfo).replicas_info_table
        return [_replica_set(name, table[name]) for name in broker_names if name in table]

    async def elect_master(self, broker_name: str, broker_id: int, *, cluster: str = "") -> Elected:
        """Make a replica that is alive and in sync the master; `ServerRefused` when it can't be."""
        request = ElectMasterRequest(
            cluster_name=cluster, broker_name=broker_name, broker_id=broker_id, designate_elect=True,
            invoke_time=now_ms(),
        )  # fmt: skip
        allowed = frozenset({ResponseCode.CONTROLLER_MASTER_STILL_EXIST})
        answer = await self._at_active(RequestCode.CONTROLLER_ELECT_MASTER, request, allowed=allowed)
        found = header_of(answer, ElectMasterResponse)
        return Elected(
            broker_name,
            -1 if found.master_broker_id is None else found.master_broker_id,
            found.master_address or "",
            found.master_epoch or 0,
            answer.code == ResponseCode.SUCCESS,
        )

    async def clean_brokers(
        self, broker_name: str, ids: Sequence[int] = (), *, cluster: str | None = None, living: bool = False
    ) -> None:
        """Forget replicas of a set, all of them without `ids`; those that are alive only if `living`."""
        request = CleanBrokerDataRequest(
            cluster_name=cluster, broker_name=broker_name, is_clean_living_broker=living,
            broker_controller_ids_to_clean=";".join(map(str, ids)) or None,
            invoke_time=now_ms(),
        )  # fmt: skip
        await self._at_active(RequestCode.CLEAN_BROKER_DATA, request)

    # ---- inside ----

    async def _status_of(self, address: str) -> ControllerStatus:
        try:
            answer = await self._call(address, RequestCode.CONTROLLER_GET_METADATA_INFO, timeout_ms=FIND_TIMEOUT_MS)
        except _GONE:
            return ControllerStatus(address, False)
        if answer.code != ResponseCode.SUCCESS:
            return ControllerStatus(address, True)
        told = header_of(answer, GetMetaDataResponse)
        return ControllerStatus(
            address, True, told.is_leader, told.group or "", told.controller_leader_id or "",
            told.controller_leader_address or "", tuple(filter(None, (told.peers or "").split(";"))),
        )  # fmt: skip

    async def _call(
        self, address: str, code: int, header: Header = None, body: bytes = b"", timeout_ms: int = CALL_TIMEOUT_MS
    ) -> Command:
        assert self._connections is not None, "use it as `async with ControllerClient(…)`"
        return await self._connections.call(address, code, header, body, timeout_ms)

    async def _at_active(
        self, code: int, header: Header = None, body: bytes = b"", *, allowed: frozenset[int] = frozenset()
    ) -> Command:
        """The answer of the active controller: a success, or one with a code that is `allowed`."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._timeout_ms / 1000
        last = "none of them names one"
        while True:
            address = self._active or await self.find_active()
            if address is not None:
                try:
                    answer = await self._call(address, code, header, body)
                except _GONE as error:
                    last = str(error)
                else:
                    if answer.code == ResponseCode.SUCCESS or answer.code in allowed:
                        return answer
                    if answer.code != ResponseCode.CONTROLLER_NOT_LEADER:
                        raise ServerRefused(answer.code, answer.remark, address)
                    last = f"{address} is not active"
                self._active = None
            if clock() > deadline:
                raise NoController(
                    f"no controller is active ({', '.join(self.addresses)}): {last}; are more than half of them up?"
                )
            await asyncio.sleep(PAUSE_S)


def _replica_set(name: str, told: ReplicasInfo) -> ReplicaSet:
    rows = [(row, True) for row in told.in_sync_replicas] + [(row, False) for row in told.not_in_sync_replicas]
    replicas = [Replica(row.broker_id, row.broker_address, row.alive, in_sync) for row, in_sync in rows]
    return ReplicaSet(
        name, told.master_broker_id, told.master_address or "", told.master_epoch, told.sync_state_set_epoch,
        tuple(sorted(replicas, key=lambda replica: replica.id)),
    )  # fmt: skip
