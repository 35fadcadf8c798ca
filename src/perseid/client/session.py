"""Sessions: the client id, connections, routes, heartbeats, and the requests of servers, for one or several clients.

A session belongs to one producer, consumer or admin, or is shared: `Producer(..., session=consumer.session)`.
The first client that uses it starts it, the last one ends it. For a cluster that authenticates clients:
`Producer(session=Session("host:9876", credentials=Credentials("user", "key")))`. Without `credentials`, the environment
variables count (`perseid.client.credentials`). With `tls=ClientTls(…)` it uses TLS.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from random import Random
from typing import Any, Protocol, TypeVar

from perseid.base.errors import PerseidError
from perseid.client.connection import Connection, Connections
from perseid.client.credentials import credentials_here
from perseid.client.errors import ClientError, ConnectFailed, NoRoute, NotStarted
from perseid.client.model import MessageQueue
from perseid.client.routes import MISSING_INTERVAL_MS, POLL_INTERVAL_MS, NameServers, Routes
from perseid.client.surroundings import here
from perseid.client.tls import ClientTls
from perseid.security.credentials import Credentials
from perseid.wire.bodies import MASTER_ID, ConsumerData, HeartbeatData, ProducerData
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.clients import UnregisterClientRequest
from perseid.wire.ids import UniqueIds

log = logging.getLogger("perseid.client")

HEARTBEAT_INTERVAL_MS = 30_000
MIN_HEARTBEAT_INTERVAL_MS = 1000
T = TypeVar("T")


class Member(Protocol):
    """A user of a session, for its heartbeats."""

    def producer_group(self) -> str | None: ...

    def consumer_data(self) -> ConsumerData | None: ...


Handler = Callable[[Connection, Command], Awaitable[None] | None]


class Session:
    """The connections and the identity of one client process (or of one part of it)."""

    def __init__(
        self,
        namesrv: str | Sequence[str],
        *,
        client_id: str | None = None,
        credentials: Credentials | None = None,
        tls: ClientTls | None = None,
    ) -> None:
        place = here()
        seed, ip, pid = place.seed(), place.ip(), place.pid()
        self.random = Random(seed)
        self.client_id = client_id or f"{ip}@{pid}#{place.wall_ns()}{seed & 0xFFF}"
        self.unique_ids = UniqueIds(
            socket.inet_aton(ip), pid, salt=self.random.getrandbits(32), counter=self.random.getrandbits(16)
        )
        self.handlers: dict[int, Handler] = {}
        self.members: list[Member] = []
        self.consumers: dict[str, Any] = {}
        """Push consumers by group, for the server's requests."""
        self.checkers: dict[str, Any] = {}
        """Transactional producers by group, likewise."""
        self.readers: dict[str, Any] = {}
        """Consumers of lite topics by client id, likewise."""
        self.replies: object | None = None
        """The replies that requests wait for (`request_reply`), once there are any."""
        self.connections = Connections(self._on_request, credentials=credentials or credentials_here(), tls=tls)
        self.names = NameServers(namesrv, self.connections, self.random)
        self.routes = Routes(self.names)
        self._beat_at = -1e9
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        """The one that it was started in: connections belong to it."""
        self._loops: list[asyncio.Task[None]] = []
        self._tasks: dict[asyncio.Task[Any], None] = {}
        """In the order in which they were made: they are cancelled in it."""

    # ---- lifecycle ----

    @property
    def running(self) -> bool:
        """True between the first `start()` and the last `stop()`."""
        return self._users > 0

    async def start(self) -> None:
        """Count one more client; the first one starts the polling and the heartbeats."""
        self._users += 1
        if self._users == 1:
            self._loop = asyncio.get_running_loop()
            self.connections.open()
            self._loops = [
                self.spawn(self.every(POLL_INTERVAL_MS, self.routes.refresh_all), "route poll"),
                self.spawn(
                    self.every(MISSING_INTERVAL_MS, self.routes.ask_for_missing, due=self.routes.missing),
                    "missing topics",
                ),
                self.spawn(self.every(HEARTBEAT_INTERVAL_MS, self.heartbeat), "heartbeats"),
            ]

    async def stop(self) -> None:
        """Count one client less; the last one closes everything."""
        if self._users == 0:
            return
        self._users -= 1
        if self._users == 0:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self.connections.close()

    def check_running(self, what: str) -> None:
        """Raise `NotStarted` unless the session runs, in this event loop."""
        if self._users == 0:
            raise NotStarted(f"this {what} is not running: use `async with {what}(…)`, or `await start()` first")
        if self._loop is not asyncio.get_running_loop():
            raise NotStarted(
                f"this {what} was started in another event loop: make and start one in the asyncio.run() that uses it"
            )

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """A task that ends with the session; what it raises is logged."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._task_done)
        return task

    async def every(
        self, interval_ms: int, action: Callable[[], Awaitable[None]], *, due: asyncio.Event | None = None
    ) -> None:
        """Run `action` each `interval_ms` until cancelled; an error of one round is logged. While `due` is not set
        there is nothing to do, and no round."""
        while True:
            if due is not None:
                await due.wait()
            await asyncio.sleep(interval_ms / 1000)
            try:
                await action()
            except PerseidError as error:
                log.warning("%s: %s", getattr(action, "__qualname__", action), error)

    # ---- brokers ----

    async def broker(self, broker_name: str, topic: str | None = None) -> str:
        """The address of a broker's master; asks for `topic`'s route when it is unknown."""
        failed = None
        if topic is not None and self.routes.address(broker_name) is None:
            failed = await self.routes.refresh(topic)
        return self._address(broker_name, failed)

    async def leader(self, queue: MessageQueue) -> str:
        """The address of the master that serves a queue; asks for its topic's route when it is unknown."""
        failed = None
        if self.routes.address(self.routes.home(queue)) is None:
            failed = await self.routes.refresh(queue.topic)
        return self._address(self.routes.home(queue), failed)

    def _address(self, broker_name: str, failed: PerseidError | None) -> str:
        """The master's address; `failed`: why name servers could not be asked for it."""
        address = self.routes.address(broker_name)
        if address is not None:
            return address
        if failed is None or isinstance(failed, NoRoute):
            raise ConnectFailed(broker_name, "no master of that name is known to the name servers")
        raise ConnectFailed(broker_name, f"the name servers don't tell its address: {failed}")

    async def reader(self, queue: MessageQueue) -> str:
        """The address of what serves a queue's readers: its master, or a slave while there is none."""
        try:
            return await self.leader(queue)
        except ConnectFailed:
            address = self.routes.address(self.routes.home(queue), only_this=False)
            if address is None:
                raise
            return address

    # ---- heartbeats ----

    async def heartbeat(self) -> None:
        """Send heartbeats to the brokers; consumers also to the replicas."""
        producers = {group for member in self.members if (group := member.producer_group())}
        consumers = [data for member in self.members if (data := member.consumer_data()) is not None]
        if not producers and not consumers:
            return
        body = HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[ProducerData(group_name=group) for group in sorted(producers)],
            consumer_data_set=consumers,
        ).to_json()
        targets = [a for _, i, a in self.routes.addresses(replicas=bool(consumers)) if i == MASTER_ID or consumers]
        await asyncio.gather(*(self._beat(address, body) for address in targets))

    async def heartbeat_soon(self) -> None:
        """A heartbeat outside of the 30 s, for a broker that does not know us; at most one a second."""
        now = asyncio.get_running_loop().time()
        if now - self._beat_at >= MIN_HEARTBEAT_INTERVAL_MS / 1000:
            self._beat_at = now
            await self.heartbeat()

    async def _beat(self, address: str, body: bytes) -> None:
        try:
            await self.connections.ask(address, RequestCode.HEART_BEAT, None, body)
        except ClientError as error:
            log.info("no heartbeat to %s: %s", address, error)

    async def unregister(self, *, producer_group: str | None = None, consumer_group: str | None = None) -> None:
        """Tell the brokers that a group's member leaves, so that they need not wait for its silence."""
        header = UnregisterClientRequest(
            client_id=self.client_id, producer_group=producer_group, consumer_group=consumer_group
        )
        for _, _, address in self.routes.addresses(replicas=True):
            if self.connections.ready(address) is None:
                continue
            try:
                await self.connections.ask(address, RequestCode.UNREGISTER_CLIENT, header)
            except ClientError as error:
                log.info("could not say good-bye to %s: %s", address, error)

    # ---- requests of the server ----

    def _on_request(self, connection: Connection, command: Command) -> None:
        handler = self.handlers.get(command.code)
        if handler is None:
            connection.reply(
                command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=f"this client does not serve {command.code}"
            )
            return
        result = handler(connection, command)
        if result is not None:
            self.spawn(self._finish(result, connection, command), f"request {command.code}")

    async def _finish(self, result: Awaitable[None], connection: Connection, command: Command) -> None:
        try:
            await result
        except PerseidError as error:
            connection.reply(command, ResponseCode.SYSTEM_ERROR, remark=str(error))

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s ended: %r", task.get_name(), error, exc_info=error)
