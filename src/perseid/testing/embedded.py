"""A real broker in your own process: real sockets on free ports, an event loop in a thread of its own.

    with EmbeddedBroker() as perseid:
        with BlockingProducer(perseid.namesrv) as producer:
            producer.send(Message("orders", b"one"))
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

from perseid.base.errors import PerseidError
from perseid.broker.config import BrokerConfig
from perseid.broker.node import Broker
from perseid.client.blocking import BlockingAdmin
from perseid.disk.real import RealDisk
from perseid.nameserver.config import NameServerConfig
from perseid.nameserver.node import NameServer
from perseid.net.driver import Driver, Listener, bind
from perseid.store.config import StoreConfig

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
    """A name server and a broker on free ports of 127.0.0.1; `namesrv` and `address` say where.

    `data` is the folder of the store; without it a temporary one is used and removed at the end. Stop and start
    again as often as you like: what was stored is still there, under the same address.
    """

    def __init__(
        self,
        data: Path | str | None = None,
        *,
        broker: BrokerConfig | None = None,
        store: StoreConfig = SMALL_STORE,
        seed: int = 0,
    ) -> None:
        self._own_folder = Path(tempfile.mkdtemp(prefix="perseid-")) if data is None else None
        self.data = Path(data) if data is not None else self._own_folder or Path()
        self._broker_config = broker or BrokerConfig(broker_name="embedded")
        self._store_config = store
        self._random = Random(seed)
        self._ports = [0, 0]
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._drivers: list[Driver] = []

    @property
    def namesrv(self) -> str:
        """`host:port` of the name server: what clients are given."""
        return f"{HOST}:{self._ports[0]}"

    @property
    def address(self) -> str:
        """`host:port` of the broker."""
        return f"{HOST}:{self._ports[1]}"

    def start(self) -> Self:
        """Start both nodes and wait until the broker is registered."""
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
        """Stop cleanly: what was acknowledged is on disk."""
        if self._loop is None:
            return
        try:
            self._call(self._stop_nodes(), STOP_DEADLINE_S)
        finally:
            self._end_thread()

    def create_topic(self, topic: str, queues: int = 4) -> None:
        """A topic that is there before the first message is sent."""
        with BlockingAdmin(self.namesrv) as admin:
            admin.create_topic(topic, queues)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop, and remove the folder if it is a temporary one."""
        self.stop()
        if self._own_folder is not None:
            shutil.rmtree(self._own_folder, ignore_errors=True)

    # ---- on the loop's thread ----

    async def _start_nodes(self) -> None:
        sockets = [bind(HOST, port) for port in self._ports]
        self._ports = [sock.getsockname()[1] for sock in sockets]
        namesrv = Driver(
            NameServer(NameServerConfig(listen_port=self._ports[0]), RealDisk(str(self.data / "namesrv"))),
            RealDisk(str(self.data / "namesrv")),
            {"main": Listener(bound=sockets[0])},
            name="namesrv",
        )
        config = replace(self._broker_config, listen_port=self._ports[1], broker_ip1=HOST, namesrv_addr=self.namesrv)
        disk = RealDisk(str(self.data / "store"))
        node = Broker(config, self._store_config, disk, self._random)
        broker = Driver(node, disk, {"main": Listener(bound=sockets[1])}, name="broker")
        self._drivers = []
        for driver in (namesrv, broker):
            await driver.start()
            self._drivers.append(driver)
            if driver.stopped.done():
                raise PerseidError(driver.stopped.result())
        await self._registered(node)

    async def _registered(self, node: Broker) -> None:
        deadline = asyncio.get_running_loop().time() + START_DEADLINE_S
        while not node.registration.registered(self.namesrv):
            if asyncio.get_running_loop().time() > deadline:
                raise PerseidError(f"the broker was not registered within {START_DEADLINE_S} s")
            await asyncio.sleep(0.002)

    async def _stop_nodes(self) -> None:
        drivers, self._drivers = self._drivers, []
        for driver in reversed(drivers):
            reason = await driver.stop()
            if reason:
                raise PerseidError(reason)

    def _call(self, coroutine: object, deadline_s: float) -> None:
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(deadline_s)  # type: ignore[arg-type]

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
