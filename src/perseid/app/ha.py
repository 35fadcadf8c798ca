"""A cluster that goes on when any one process dies: three controllers, two name servers, and a broker set of two or
three, a process each, on 127.0.0.1. `perseid up --ha`; what the demo kills.

Each has a configuration file of its own below `DATA/conf`, as an operator would write it, and a log in `DATA/log`. What
is killed is not started again: that the rest goes on without it is the point.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perseid.app import process
from perseid.app.children import Child, perseid
from perseid.app.secured import Secured
from perseid.base.errors import ConfigError, PerseidError
from perseid.disk.real import FILE_MODE, make_folders
from perseid.net.driver import bind
from perseid.net.ports import free_port
from perseid.security.credentials import Credentials

if TYPE_CHECKING:
    from perseid.client.controller import ReplicaSet  # imported when it is used: `perseid up` alone has no client
    from perseid.client.tls import ClientTls

HOST = "127.0.0.1"
BROKER_NAME = "broker-a"
CONTROLLERS = 3
NAME_SERVERS = 2
NAME_SERVER_STEP = 10
MIN_REPLICAS, MAX_REPLICAS = 2, 3
PORT_FLAGS = {"namesrv": "--namesrv-port", "controller": "--controller-port", "broker": "--broker-port"}
CONTROLLER_PORT = 9878
CONTROLLER_STEP = -10
"""The original's own examples have its controllers at 9878, 9868 and 9858."""
BROKER_STEP = 10
BROKER_PORTS = (0, -2, 1)
"""That a broker opens, from its own: its second one, and that for its slaves."""
MAX_PORT = 65_535
LOG_FILE_BYTES = 64 << 20
READY_S = 120.0
"""Until there is a master that all replicas follow; the machine may be busy."""
ASK_TIMEOUT_MS = 1000
POLL_S = 0.1
TAIL_CHARS = 2000


@dataclass(frozen=True, slots=True)
class Member:
    """One process of the cluster: its part, its name, where it listens, and what it is told."""

    role: str
    name: str
    address: str
    settings: Mapping[str, object] = field(repr=False)
    args: tuple[str, ...] = ()
    """Of its command, besides the file's name."""

    def write(self, conf: Path) -> Path:
        """Write its configuration file; where that is."""
        path = conf / f"{self.name}.conf"
        path.touch(FILE_MODE)
        path.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
        return path


@dataclass(frozen=True, slots=True)
class Plan:
    """The members, in the order in which they are started."""

    data: Path
    namesrv: str
    """All name servers, as clients and brokers are told."""
    controllers: str
    members: tuple[Member, ...]
    secured: Secured | None = None
    """Where TLS alone is taken, and requests are signed."""

    @property
    def brokers(self) -> list[Member]:
        """The broker set."""
        return [member for member in self.members if member.role == "broker"]


def plan(
    data: Path,
    *,
    namesrv_port: int = 9876,
    broker_port: int = 10911,
    controller_port: int = CONTROLLER_PORT,
    replicas: int = MAX_REPLICAS,
    settings: Mapping[str, object] | None = None,
    secured: Secured | None = None,
) -> Plan:
    """What is to run on `data`, an absolute path; ports of 0 are free ones. `settings` are for the brokers besides."""
    if not MIN_REPLICAS <= replicas <= MAX_REPLICAS:
        raise ConfigError(f"{replicas} replicas: {MIN_REPLICAS} or {MAX_REPLICAS} are wanted")
    lowest = controller_port + CONTROLLER_STEP * (CONTROLLERS - 1)
    if controller_port and lowest < 1:
        raise ConfigError(f"controller port {controller_port}: the last one would be {lowest}; choose a higher one")
    highest = namesrv_port + NAME_SERVER_STEP * (NAME_SERVERS - 1)
    if namesrv_port and highest > MAX_PORT:
        raise ConfigError(f"name server port {namesrv_port}: the last one would be {highest}; choose a lower one")
    steps = [NAME_SERVER_STEP * n for n in range(NAME_SERVERS)]
    name_servers = [f"{HOST}:{namesrv_port + step if namesrv_port else free_port()}" for step in steps]
    namesrv = ";".join(name_servers)
    ports = [controller_port + CONTROLLER_STEP * n if controller_port else free_port() for n in range(CONTROLLERS)]
    controllers = ";".join(f"{HOST}:{port}" for port in ports)
    peers = ";".join(f"n{number}-{HOST}:{port}" for number, port in enumerate(ports))
    all_of_them = {} if secured is None else {**secured.tls, **secured.members}
    more = {**all_of_them, **({} if secured is None else secured.broker), **(settings or {})}
    members = [name_server(data, number, address, all_of_them) for number, address in enumerate(name_servers, 1)]
    members += [_controller(data, number, port, peers, all_of_them) for number, port in enumerate(ports)]
    for number in range(1, replicas + 1):
        port = broker_port + BROKER_STEP * (number - 1) if broker_port else free_port(BROKER_PORTS)
        members.append(_broker(data, number, port, namesrv, controllers, more))
    return Plan(data, namesrv, controllers, tuple(members), secured)


def name_server(data: Path, number: int, address: str, more: Mapping[str, object]) -> Member:
    """A name server on `data`; `more` are settings of TLS and of members."""
    name = f"namesrv-{number}"
    own = data / name
    told = {
        "listenPort": address.rpartition(":")[2], "bindAddress": HOST, "kvConfigPath": own / "kvConfig.json",
        "configStorePath": own / "namesrv.properties",
    }  # fmt: skip
    return Member("namesrv", name, address, {**told, **more})


def _controller(data: Path, number: int, port: int, peers: str, more: Mapping[str, object]) -> Member:
    own = data / f"controller-n{number}"
    told = {
        "controllerDLegerGroup": "controllers", "controllerDLegerPeers": peers, "controllerDLegerSelfId": f"n{number}",
        "bindAddress": HOST, "controllerStorePath": own / "store", "configStorePath": own / "controller.properties",
        "mappedFileSize": LOG_FILE_BYTES,
    }  # fmt: skip
    return Member("controller", f"controller-n{number}", f"{HOST}:{port}", {**told, **more})


def _broker(
    data: Path, number: int, port: int, namesrv: str, controllers: str, settings: Mapping[str, object]
) -> Member:
    """Nothing acknowledged is lost as long as one replica that was in sync lives: all of them have to have it."""
    told: dict[str, object] = {
        "brokerName": BROKER_NAME, "brokerIP1": HOST, "listenPort": port, "bindAddress": HOST, "namesrvAddr": namesrv,
        "enableControllerMode": "true", "controllerAddr": controllers, "allAckInSyncStateSet": "true",
        "haListenPort": port + 1, "storePathRootDir": data / f"broker-{number}",
    }  # fmt: skip
    return Member("broker", f"broker-{number}", f"{HOST}:{port}", {**told, **settings})


class Cluster:
    """The processes of a plan."""

    def __init__(self, planned: Plan) -> None:
        self.plan = planned
        self.children: dict[str, Child] = {}
        self._logs = planned.data / "log"

    def log_of(self, name: str) -> Path:
        """Where a member's output goes."""
        return self._logs / f"{name}.log"

    async def start(self) -> None:
        """Start all of them; ConfigError when the folder or a port can't be used."""
        conf = self.plan.data / "conf"
        try:
            for folder in (conf, self._logs):
                make_folders(folder)
            for member in self.plan.members:
                host, _, port = member.address.rpartition(":")
                bind(host, int(port), PORT_FLAGS[member.role]).close()
            for member in self.plan.members:
                command = perseid(member.role, "-c", str(member.write(conf)), *member.args)
                child = self.children[member.name] = Child(member.name, command)
                await child.start(self.log_of(member.name))
        except OSError as error:
            raise ConfigError(f"{self.plan.data}: can't be used: {error.strerror or error}; choose another") from None

    async def ready(self) -> ReplicaSet:
        """The broker set, once it has a master that all name servers know, and all replicas are in sync.

        PerseidError, with the end of its log, when a member ends instead; or when it takes too long.
        """
        from perseid.client.admin import Admin
        from perseid.client.controller import ControllerClient
        from perseid.client.errors import ClientError
        from perseid.client.session import Session

        deadline = asyncio.get_running_loop().time() + READY_S
        last = "nobody was asked yet"
        async with AsyncExitStack() as clients:
            reached, user = self.keys()
            told = ControllerClient(self.plan.controllers, timeout_ms=ASK_TIMEOUT_MS, credentials=user, tls=reached)
            controllers = await clients.enter_async_context(told)
            sessions = [Session(address, credentials=user, tls=reached) for address in self.plan.namesrv.split(";")]
            name_servers = [
                await clients.enter_async_context(Admin(session=session, timeout_ms=ASK_TIMEOUT_MS))
                for session in sessions
            ]
            while asyncio.get_running_loop().time() < deadline:
                self.check()
                try:
                    found = await controllers.replica_sets([BROKER_NAME])
                    known = [(await one.cluster_info()).brokers.get(BROKER_NAME, {}) for one in name_servers]
                    last = f"the controllers know {found}, the name servers {known}"
                    for one in found:
                        in_sync = [replica for replica in one.replicas if replica.in_sync]
                        everywhere = all(each.get(0) == one.master_address != "" for each in known)
                        if len(in_sync) == len(self.plan.brokers) and everywhere:
                            return one
                except ClientError as error:
                    last = str(error)
                await asyncio.sleep(POLL_S)
        raise PerseidError(f"the cluster was not ready within {READY_S:.0f} s: {last}; its logs are in {self._logs}")

    def keys(self) -> tuple[ClientTls | None, Credentials | None]:
        """What this process asks them with."""
        secured = self.plan.secured
        return (None, None) if secured is None else (secured.client, secured.user)

    def check(self) -> None:
        """PerseidError, with the end of its log, when a member has ended."""
        for name, child in self.children.items():
            if child.running is not None and child.running.returncode is not None:
                tail = self.log_of(name).read_text(errors="replace")[-TAIL_CHARS:]
                code = child.running.returncode
                raise PerseidError(f"{name} ended with {code}; {self.log_of(name)} ends with:\n{tail}")

    async def end(self) -> dict[str, int]:
        """End them, the brokers first; their exit codes."""
        codes: dict[str, int] = {}
        for role in ("broker", "controller", "namesrv"):
            names = [m.name for m in self.plan.members if m.role == role and m.name in self.children]
            ended = await asyncio.gather(*(self.children[name].end() for name in names))
            codes |= dict(zip(names, ended, strict=True))
        return codes


async def serve(planned: Plan, *, as_json: bool = False) -> int:
    """Run the cluster until told to end; 0, or 1 when a member that was not killed ended badly."""
    told = process.told_to_end()
    if planned.secured is None:
        from perseid.client import tls

        tls.use(None)  # what the environment says is about another cluster
    cluster = Cluster(planned)
    killed: set[str] = set()
    watchers: list[asyncio.Task[None]] = []
    try:
        await cluster.start()
        getting_ready = asyncio.ensure_future(cluster.ready())
        ends: set[asyncio.Future[Any]] = {told, getting_ready}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if getting_ready.done():
            _say_ready(cluster, getting_ready.result(), as_json=as_json)
            watchers = [
                asyncio.create_task(_watch(cluster, name, killed, as_json=as_json)) for name in cluster.children
            ]
            await told
        getting_ready.cancel()
    finally:
        for watcher in watchers:
            watcher.cancel()
        codes = await cluster.end()
    return process.FAILED if any(code for name, code in codes.items() if name not in killed) else process.OK


async def _watch(cluster: Cluster, name: str, killed: set[str], *, as_json: bool) -> None:
    """Say so when a member ends by itself, and how to have it back."""
    child = cluster.children[name]
    code = await child.wait()
    killed.add(name)
    member = next(member for member in cluster.plan.members if member.name == name)
    conf = cluster.plan.data / "conf" / f"{name}.conf"
    if as_json:
        process.say(json.dumps({"event": "ended", "name": name, "code": code}))
    else:
        process.say(f"{name} (pid {child.pid}) ended with {code}; have it back: perseid {member.role} -c {conf}")


def _say_ready(cluster: Cluster, found: ReplicaSet, *, as_json: bool) -> None:
    planned = cluster.plan
    rows = [
        {"name": m.name, "role": m.role, "address": m.address, "pid": cluster.children[m.name].pid}
        for m in planned.members
    ]  # fmt: skip
    if as_json:
        told = {
            "event": "ready", "namesrv": planned.namesrv, "controllers": planned.controllers,
            "data": str(planned.data), "master": found.master_address, "members": rows, "set": asdict(found),
        }  # fmt: skip
        security = {} if planned.secured is None else {"security": planned.secured.told()}
        process.say(json.dumps({**told, **security}))
        return
    process.say(f"ready namesrv={planned.namesrv} controllers={planned.controllers} data={planned.data}")
    for row in rows:
        master = "  master" if row["address"] == found.master_address else ""
        process.say(f"  {row['name']:<14} {row['address']:<16} pid {row['pid']}{master}")
    if planned.secured is not None:
        process.say("\n".join(planned.secured.how_to_connect(planned.namesrv)))
