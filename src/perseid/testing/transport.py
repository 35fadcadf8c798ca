"""A client's end of a simulated connection, as an asyncio transport."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import Any

from perseid.sim.net import End, Network

CLIENT = "client"
"""The machine that all clients of a loop run on."""


class VirtualTransport(asyncio.Transport):
    """One connection of a client. Its bytes are under way at once, so that nothing is buffered and no write pauses."""

    name = CLIENT

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        network: Network,
        protocol: asyncio.BaseProtocol,
        address: str,
        waiter: asyncio.Future[None],
    ) -> None:
        super().__init__()
        self._loop = loop
        self._network = network
        self._protocol = protocol
        self._address = address
        self._waiter = waiter
        self._end: End | None = None
        self._closing = False

    # ---- asyncio's side ----

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if self._end is None or name not in ("sockname", "peername"):
            return default
        ip, _, port = (self._end.address if name == "sockname" else self._address).rpartition(":")
        return ip, int(port)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._end is not None and not self._closing:
            self._network.write(self._end, bytes(data))

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is buffered."""

    def is_reading(self) -> bool:
        return self._end is not None and self._end.reading and not self._closing

    def pause_reading(self) -> None:
        if self._end is not None:
            self._end.reading = False

    def resume_reading(self) -> None:
        if self._end is not None:
            self._network.read_again(self._end)

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._hang_up("closed by the client")

    def abort(self) -> None:
        self._hang_up("aborted by the client")

    def _hang_up(self, reason: str) -> None:
        if self._closing:
            return
        self._closing = True
        if self._end is not None:
            self._network.close(self._end, reason)
            self._loop.call_soon(self._protocol.connection_lost, None)

    # ---- the network's side ----

    def opened(self, end: End, listener: str, dialled: str) -> None:
        """The connection is there; nobody may wait for it any more."""
        if self._closing or self._loop.is_closed():
            self._network.close(end, "the client no longer waits")
            return
        self._end = end
        self._loop.call_soon(self._protocol.connection_made, self)
        self._loop.call_soon(self._tell, None)

    def connect_failed(self, address: str, reason: str) -> None:
        """It could not be dialled."""
        if address.rpartition(":")[0] in self._network.machines:
            number = errno.ETIMEDOUT if reason == "timed out" else errno.ECONNREFUSED
            error = OSError(number, os.strerror(number))
        else:
            error = ConnectionRefusedError("in virtual time only the cluster's nodes can be reached")
        self._loop.call_soon(self._tell, error)

    def received(self, end: End, frames: bytearray) -> None:
        """Bytes, as they come."""
        if not self._closing:
            self._loop.call_soon(self._received, bytes(frames))

    def closed(self, end: End, reason: str) -> None:
        """By the other side."""
        if not self._closing:
            self._closing = True
            error = ConnectionResetError(errno.ECONNRESET, reason) if "reset" in reason else None
            self._loop.call_soon(self._protocol.connection_lost, error)

    def _received(self, data: bytes) -> None:
        if isinstance(self._protocol, asyncio.Protocol):
            self._protocol.data_received(data)

    def _tell(self, error: OSError | None) -> None:
        if self._waiter.done():
            return
        if error is None:
            self._waiter.set_result(None)
        else:
            self._waiter.set_exception(error)
