"""A tiny node: it echoes frames after it has made them durable, and counts its starts in a state file."""

from random import Random

from perseid.base.machine import (
    Closed,
    ConnectFailed,
    DiskFailed,
    Effect,
    Event,
    Flush,
    Frames,
    Opened,
    SaveState,
    Shutdown,
    Start,
    Stop,
    Tick,
    Write,
)
from perseid.sim.disk import SimDisk
from perseid.sim.net import End, Network


class Toy:
    """Answers each read by the same bytes, behind a flush. `every_ms`: how often it wants a tick."""

    def __init__(self, disk: SimDisk, random: Random, every_ms: int = 100) -> None:
        self.disk = disk
        self.every_ms = every_ms
        self.events: list[Event] = []
        self.times: list[int] = []
        self.at = 0
        self.deadline: int | None = None

    def handle(self, event: Event, now: int) -> list[Effect]:
        self.events.append(event)
        self.times.append(now)
        if isinstance(event, Start):
            if self.disk.size("log") == 0:
                self.disk.remove("log")
            self.file = self.disk.open("log", 1 << 16)
            self.file.sync()
            self.disk.sync_dir("")
            starts = int(self.disk.read("starts") or b"0") + 1
            self.deadline = now + self.every_ms
            return [SaveState("starts", b"%d" % starts)]
        if isinstance(event, Frames):
            data = bytes(event.data)
            self.file.write(self.at, data)
            self.at += len(data)
            return [Flush([self.file], [Write(event.conn, data)])]
        if isinstance(event, Tick):
            self.deadline = now + self.every_ms
        if isinstance(event, Shutdown):
            return [Stop()]
        if isinstance(event, DiskFailed):
            return [Stop(event.reason)]
        assert isinstance(event, Opened | Closed | ConnectFailed | Tick)
        return []

    def next_deadline(self) -> int | None:
        return self.deadline

    def validate(self) -> None:
        assert self.at <= 1 << 16


class Person:
    """A client that remembers what it heard."""

    def __init__(self, network: Network, name: str = "person") -> None:
        self.network = network
        self.name = name
        self.end: End | None = None
        self.heard = b""
        self.reads = 0
        self.said: list[str] = []

    def opened(self, end: End, listener: str, dialled: str) -> None:
        self.end = end
        self.said.append("opened")

    def connect_failed(self, address: str, reason: str) -> None:
        self.said.append(reason)

    def received(self, end: End, frames: bytearray) -> None:
        self.heard += frames
        self.reads += 1

    def closed(self, end: End, reason: str) -> None:
        self.end = None
        self.said.append(f"closed: {reason}")

    def write(self, data: bytes) -> None:
        assert self.end is not None
        self.network.write(self.end, data)
