"""A real broker in your own process: real sockets on free ports, an event loop in a thread of its own.

    with EmbeddedBroker() as perseid:
        with BlockingProducer(perseid.namesrv) as producer:
            producer.send(Message("orders", b"one"))
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self

from perseid.base.errors import PerseidError
from perseid.broker.config import BrokerConfig
from perseid.broker.node import Broker
from perseid.client.blocking import BlockingAdmin
from perseid.disk.port import Disk
from perseid.disk.real import RealDisk
from perseid.nameserver.config import NameServerConfig
from perseid.nameserver.node import NameServer
from perseid.net.driver import Driver, Listener, bind
from perseid.net.limits import Limits
from perseid.store.config import StoreConfig
from perseid.testing.ports import free_port

HOST = "127.0.0.1"
START_DEADLINE_S = 30.0
STOP_DEADLINE_S = 60.0

SMALL_STORE = StoreConfig(
    commit_log_file_bytes=16 << 20,
    consume_queue_file_bytes=20 * 10_000,
    max_hash_slot_num=10_000,
    max_index_num=40_000,
)
"""Small files: a test's folder takes megabytes, not a gigabyte."""


class EmbeddedBroker:
    """A name server and a broker on free ports of 127.0.0.1, in this process; `namesrv` and `address` are their
    addresses.

    `data` is the folder of the store; without it, a temporary one is used and removed at the end. You can stop and
    start it again as often as you like: messages stay, and so does the address. `disk` makes the broker's disk from a
    folder's name, so that a test can use a failing disk. `limits` limits connections.
    """

    def __init__(
        self,
        data: Path | str | None = None,
        *,
        broker: BrokerConfig | None = None,
        store: StoreConfig = SMALL_STORE,
        seed: int = 0,
        disk: Callable[[str], Disk] = RealDisk,
        limits: Limits | None = None,
    ) -> None:
        self._own_folder = Path(tempfile.mkdtemp(prefix="perseid-")) if data is None else None
        self.data = Path(data) if data is not None else self._own_folder or Path()
        self._broker_config = broker or BrokerConfig(broker_name="embedded")
        self._store_config = store
        self._random = Random(seed)
        self._make_disk = disk
        self._limits = limits
        self._ports = [0, 0]
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._drivers: list[Driver] = []

    @property
    def namesrv(self) -> str:
        """`host:port` of the name server: the argument of clients."""
        return f"{HOST}:{self._ports[0]}"

    @property
    def address(self) -> str:
        """`host:port` of the broker."""
        return f"{HOST}:{self._ports[1]}"

    def start(self) -> Self:
        """Start both nodes and wait until the broker is registered. `PerseidError` if a node can't start."""
        if self._loop is not None:
            raise PerseidError("this broker is running already")
        loop = asyncio.new_event_loop()
        self._loop = loop
        self._thread = threading.Thread(target=self._run, args=(loop,), name="perseid-embedded", daemon=True)
        self._thread.start()
        try:
            self._call(self._start_nodes(), START_DEADLINE_S)
        except BaseException:
            self._end_thread()
            raise
        return self

    def stop(self) -> None:
        """Stop cleanly: all acknowledged messages are on the disk."""
        if self._loop is None:
            return
        try:
            self._call(self._stop_nodes(), STOP_DEADLINE_S)
        finally:
            self._end_thread()

    def create_topic(self, topic: str, queues: int = 4) -> None:
        """Create a topic before the first message is sent."""
        with BlockingAdmin(self.namesrv) as admin:
            admin.create_topic(topic, queues)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self._remove_own_folder()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop, and remove the folder if it is temporary."""
        try:
            self.stop()
        finally:
            self._remove_own_folder()

    def _remove_own_folder(self) -> None:
        if self._own_folder is not None:
            shutil.rmtree(self._own_folder, ignore_errors=True)

    # ---- on the loop's thread ----

    async def _start_nodes(self) -> None:
        sockets: list[socket.socket] = []
        try:
            for kept in self._ports:
                sockets.append(bind(HOST, kept or free_port()))
            self._ports = [sock.getsockname()[1] for sock in sockets]
            node, drivers = self._build(*sockets)
            for driver in drivers:
                await driver.start()
                self._drivers.append(driver)
                if driver.stopped.done():
                    raise PerseidError(driver.stopped.result())
            await self._registered(node, drivers[-1])
        except BaseException:
            await self._end_drivers()
            for sock in sockets:
                sock.close()
            raise

    def _build(self, names: socket.socket, held: socket.socket) -> tuple[Broker, list[Driver]]:
        names_disk = RealDisk(str(self.data / "namesrv"))
        name_server = NameServer(NameServerConfig(listen_port=self._ports[0]), names_disk)
        config = replace(self._broker_config, listen_port=self._ports[1], broker_ip1=HOST, namesrv_addr=self.namesrv)
        disk = self._make_disk(str(self.data / "store"))
        node = Broker(config, self._store_config, disk, self._random)
        return node, [
            Driver(name_server, names_disk, {"main": Listener(bound=names)}, name="namesrv", limits=self._limits),
            Driver(node, disk, {"main": Listener(bound=held)}, name="broker", limits=self._limits),
        ]

    async def _registered(self, node: Broker, driver: Driver) -> None:
        there = asyncio.ensure_future(driver.until(lambda: node.parts.registration.registered(self.namesrv)))
        try:
            ends: set[asyncio.Future[Any]] = {there, driver.stopped}
            await asyncio.wait(ends, timeout=START_DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
            if driver.stopped.done():
                raise PerseidError(driver.stopped.result())
            if not there.done():
                raise PerseidError(f"the broker was not registered within {START_DEADLINE_S} s")
        finally:
            there.cancel()

    async def _stop_nodes(self) -> None:
        reasons = await self._end_drivers()
        if reasons:
            raise PerseidError("; ".join(reasons))

    async def _end_drivers(self) -> list[str]:
        """End all drivers that were started, the broker first; why those ended that did not end well."""
        drivers, self._drivers = self._drivers, []
        reasons = [await driver.stop() for driver in reversed(drivers)]
        return [reason for reason in reasons if reason]

    def _call(self, coroutine: Coroutine[Any, Any, None], deadline_s: float) -> None:
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(deadline_s)

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()

    def _end_thread(self) -> None:
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(STOP_DEADLINE_S)
            loop.close()
