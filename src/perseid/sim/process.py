"""A simulated process: calls over simulated connections, with timeouts; clients build on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Protocol

from perseid.base.machine import Buffer
from perseid.security.credentials import Credentials
from perseid.sim.net import End, Network
from perseid.sim.scheduler import US_PER_MS, Scheduler, Timer
from perseid.wire.codes import RequestCode, ResponseCode, Serializer
from perseid.wire.command import Command, decode_all, encode_request
from perseid.wire.headers.base import Header
from perseid.wire.rpc import Fields

TIMEOUT_MS = 3_000

OnReply = Callable[[Command | None], None]
"""Takes the response; None: there is none, and whether the request took effect is unknown."""


@cache
def _request_line(code: int) -> str:
    """What a request is counted as."""
    return f"request {RequestCode(code).name}"


@cache
def _answer(code: int) -> tuple[str, str]:
    """What an answer is called, and what it is counted as."""
    try:
        name = ResponseCode(code).name
    except ValueError:
        name = str(code)
    return name, f"answer {name}"


class Surroundings(Protocol):
    """Where a client lives."""

    scheduler: Scheduler
    network: Network
    operations: int
    signs: Credentials | None
    """What its clients sign with; None: nobody asks for it."""

    def count(self, what: str, times: int = 1) -> None: ...

    def client_ip(self, name: str) -> str: ...

    def answered(self, client: str, request: RequestCode, name: str, command: Command) -> None: ...


class Call:
    """A request that waits for its response."""

    __slots__ = ("address", "code", "on_reply", "timer")

    def __init__(self, code: int, address: str, on_reply: OnReply, timer: Timer) -> None:
        self.code = code
        self.address = address
        self.on_reply = on_reply
        self.timer = timer


class Process:
    """A process that calls others, and is called over the connections that it opened."""

    def __init__(self, cluster: Surroundings, name: str) -> None:
        self._world = cluster
        self.scheduler = cluster.scheduler
        self.name = name
        self.ip = cluster.client_ip(name)
        self.random = self.scheduler.stream(name)
        self.serializer = Serializer.ROCKETMQ if self.random.random() < 0.25 else Serializer.JSON
        self.signs = cluster.signs
        self.running = True
        self._pause_ms: float = 0
        self.ends: dict[str, End] = {}
        self._waiting: dict[str, list[bytes]] = {}
        """Frames for connections that are being opened."""
        self._joined: dict[str, list[bytes]] | None = None
        """Frames that are going to leave in one write."""
        self._calls: dict[int, Call] = {}
        self._opaque = 0

    # ---- for those that build on it ----

    def ask(
        self,
        address: str,
        code: int,
        header: Header | Mapping[str, str] | None,
        on_reply: OnReply,
        body: Buffer = b"",
        *,
        timeout_ms: int = TIMEOUT_MS,
    ) -> int:
        """Send a request; `on_reply` is called once. The request's number."""
        self._opaque += 1
        self._world.operations += 1
        self._world.count(_request_line(code))
        frame = encode_request(code, self._opaque, self.signed(header, body), body, serializer=self._serializer(code))
        timer = self.scheduler.after(timeout_ms * US_PER_MS, self._late, self._opaque)
        self._calls[self._opaque] = Call(code, address, on_reply, timer)
        self._transmit(address, frame)
        return self._opaque

    def signed(self, header: Header | Mapping[str, str] | None, body: Buffer) -> Fields:
        """The header, signed where that is asked for."""
        return header if self.signs is None else self.signs.sign(header, body)

    @property
    def pause_ms(self) -> float:
        """About so long it waits between two things that it does, at the run's pace by now."""
        return self.scheduler.slowed(self._pause_ms)

    @pause_ms.setter
    def pause_ms(self, pause_ms: float) -> None:
        self._pause_ms = pause_ms

    def later(self, low_ms: float, high_ms: float, function: Callable[[], None]) -> None:
        """Go on after a while, if the client still runs then."""
        delay = int(self.random.uniform(low_ms, high_ms) * US_PER_MS)
        self.scheduler.after(delay, self._if_running, function)

    def stop(self) -> None:
        """Close everything; nothing is called any more."""
        self.running = False
        for call in self._calls.values():
            Scheduler.cancel(call.timer)
        self._calls.clear()
        for end in self.ends.values():
            self._world.network.close(end, "client stops")
        self.ends.clear()
        self._waiting.clear()

    def asked(self, command: Command) -> None:
        """The other side sent a request of its own."""
        self._world.count(f"pushed {command.code}")

    # ---- the network's side ----

    def opened(self, end: End, listener: str, dialled: str) -> None:
        if not self.running:
            self._world.network.close(end, "client has stopped")
            return
        self.ends[dialled] = end
        self._world.network.write(end, b"".join(self._waiting.pop(dialled, [])))

    def connect_failed(self, address: str, reason: str) -> None:
        self._waiting.pop(address, None)
        self._fail(address)

    def received(self, end: End, frames: bytearray) -> None:
        for command in decode_all(bytes(frames)):
            if not command.is_response:
                self.asked(command)
                continue
            call = self._calls.pop(command.opaque, None)
            if call is not None:
                Scheduler.cancel(call.timer)
                self._answered(call, command)

    def closed(self, end: End, reason: str) -> None:
        for address in [address for address, known in self.ends.items() if known is end]:
            del self.ends[address]
            self._fail(address)

    # ---- inside ----

    def _serializer(self, code: int) -> Serializer:
        return self.serializer if code < 1 << 15 else Serializer.JSON

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is sent meanwhile leaves in one write."""
        joined = self._joined = {}
        try:
            yield
        finally:
            self._joined = None
        for address, frames in joined.items():
            self._transmit(address, b"".join(frames))

    def _transmit(self, address: str, frame: bytes) -> None:
        end = self.ends.get(address)
        if self._joined is not None:
            self._joined.setdefault(address, []).append(frame)
        elif end is not None:
            self._world.network.write(end, frame)
        elif address in self._waiting:
            self._waiting[address].append(frame)
        else:
            self._waiting[address] = [frame]
            self._world.network.dial(self, self.ip, address)

    def _answered(self, call: Call, command: Command) -> None:
        name, line = _answer(command.code)
        self._world.count(line)
        self._world.answered(self.name, RequestCode(call.code), name, command)
        call.on_reply(command)

    def _late(self, opaque: int) -> None:
        call = self._calls.pop(opaque, None)
        if call is None:
            return
        self._world.count("client timeout")
        end = self.ends.get(call.address)
        if end is not None and self.random.random() < 0.5:
            del self.ends[call.address]
            self._world.network.close(end, "client gave up")
            self._fail(call.address)
        call.on_reply(None)

    def _fail(self, address: str) -> None:
        """All calls over a connection that is gone end without an answer."""
        for opaque in [opaque for opaque, call in self._calls.items() if call.address == address]:
            call = self._calls.pop(opaque, None)
            if call is not None:
                Scheduler.cancel(call.timer)
                call.on_reply(None)

    def _if_running(self, function: Callable[[], None]) -> None:
        if self.running:
            function()
