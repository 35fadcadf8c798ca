"""A node that remembers, a disk in memory, and a driver around them on a free port."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from perseid.base.machine import (
    Effect,
    Event,
    Frames,
    Shutdown,
    Stop,
    Write,
)
from perseid.net.driver import Driver, Listener
from perseid.net.limits import Limits
from perseid.wire.command import encode_request

DEADLINE = 10.0
FRAME = encode_request(105, 7, {"topic": "T"}, b"body")


class Node:
    """Remembers its events; `on` maps an event's type to a function that answers effects."""

    def __init__(self, **on: Callable[[Any], list[Effect]]) -> None:
        self.on = on
        self.events: list[Event] = []
        self.times: list[int] = []
        self.deadline: int | None = None
        self._waiting: list[tuple[Callable[[], bool], asyncio.Event]] = []

    def handle(self, event: Event, now: int) -> list[Effect]:
        if isinstance(event, Frames):
            event = Frames(event.conn, bytes(event.data))
        self.events.append(event)
        self.times.append(now)
        for ready, seen in self._waiting:
            if ready():
                seen.set()
        if isinstance(event, Shutdown) and "Shutdown" not in self.on:
            return [Stop("")]
        answer = self.on.get(type(event).__name__)
        return answer(event) if answer else []

    def next_deadline(self) -> int | None:
        return self.deadline

    def validate(self) -> None: ...

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    async def until(self, ready: Callable[[], bool]) -> None:
        seen = asyncio.Event()
        self._waiting.append((ready, seen))
        if not ready():
            await asyncio.wait_for(seen.wait(), DEADLINE)


class MemoryFile:
    """Counts its syncs; `gate` holds them back, `broken` makes them fail."""

    size = 0

    def __init__(self, path: str = "log") -> None:
        self.path = path
        self.syncs = 0
        self.broken = False
        self.gate: threading.Event | None = None
        self.entered = threading.Event()
        self.fetched: list[tuple[int, int, bool]] = []
        """Offset, length, and whether the loop's thread was asked."""

    def fetch(self, offset: int, length: int) -> None:
        self.fetched.append((offset, length, threading.current_thread() is threading.main_thread()))
        if self.broken:
            raise OSError(5, "no more")

    def sync(self) -> None:
        self.entered.set()
        if self.gate is not None:
            assert self.gate.wait(DEADLINE)
        self.syncs += 1
        if self.broken:
            raise OSError(5, "no more")


class MemoryDisk:
    """The calls that the driver makes, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.full = False

    def write(self, path: str, data: bytes) -> None:
        if self.full:
            raise OSError(28, "full")
        self.calls.append(("write", path, data.decode()))

    def rename(self, old: str, new: str) -> None:
        self.calls.append(("rename", old, new))

    def sync_file(self, path: str) -> None:
        self.calls.append(("sync_file", path))

    def sync_dir(self, folder: str) -> None:
        self.calls.append(("sync_dir", folder))


class Running:
    """A driver on a free port, with streams to it."""

    def __init__(
        self,
        node: Node,
        limits: Limits | None = None,
        disk: MemoryDisk | None = None,
        gathers: Callable[[], int] | None = None,
    ) -> None:
        self.disk = disk or MemoryDisk()
        self.driver = Driver(node, self.disk, {"main": Listener()}, limits=limits, gathers=gathers)
        self.writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> "Running":
        await self.driver.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.wait_for(self.driver.stop(), DEADLINE)
        for writer in self.writers:
            writer.close()

    async def dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.driver.ports["main"])
        self.writers.append(writer)
        return reader, writer


def echo(event: Frames) -> list[Effect]:
    return [Write(event.conn, bytes(event.data))]


async def ended(reader: asyncio.StreamReader) -> bytes:
    """All that still comes, until the other end closes or resets."""
    try:
        return await asyncio.wait_for(reader.read(-1), DEADLINE)
    except ConnectionError:
        return b""
