"""One TCP connection, accepted or dialled: whole frames up, coalesced writes down, bounds held.

A read that is nothing but whole frames (the usual one) goes up as it came. Only an unfinished frame is
kept. Writes are collected and leave together at the end of the event loop's turn.

Where TLS may be spoken, a `Tls` stands between these bytes and the transport's, until the first byte says that it is
not. The node hears of a connection when it is ready: nothing is written before.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from perseid.base.errors import RemoteProtocolError
from perseid.base.machine import Buffer, ConnId, Frames, Millis, Opened
from perseid.net.limits import GATHER_BYTES
from perseid.security.tls import CLEAR, ENDED, FIRST, HANDSHAKE, OPEN, SHAKING, Tls

if TYPE_CHECKING:
    from perseid.net.driver import Driver


class Connection(asyncio.Protocol):
    """States: new, made (in `driver.connections`), ready (the node knows it), closing (nothing goes up any more),
    lost."""

    __slots__ = (
        "_complete",
        "_driver",
        "_listener",
        "_out",
        "_partial",
        "_paused",
        "_queued",
        "_tls",
        "_transport",
        "closing",
        "closing_since",
        "dialled",
        "handshake_since",
        "id",
        "last_used",
        "partial_since",
        "ready",
    )

    _transport: asyncio.Transport

    def __init__(
        self,
        driver: Driver,
        conn: ConnId,
        complete: Callable[[Buffer], int],
        listener: str,
        dialled: str,
        tls: Tls | None = None,
    ) -> None:
        self.id = conn
        self.dialled = dialled
        self.ready = False
        """The node has heard of it."""
        self.closing: str | None = None
        self.closing_since: Millis = 0
        self.last_used: Millis = 0
        self.partial_since: Millis | None = None
        self.handshake_since: Millis | None = None
        self._driver = driver
        self._complete = complete
        self._listener = listener
        self._tls = tls
        """None: the bytes are plain."""
        self._queued: bytearray | None = None
        """What waits until the driver has time for its handshake."""
        self._partial: bytearray | None = None
        self._paused = False
        self._out: list[Buffer] = []

    # ---- called by the event loop ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self._driver.admit(self):
            self.closing = "refused"
            self._transport.abort()
            return
        raw = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport.set_write_buffer_limits(high=self._driver.limits.pause_reading_above)
        self.last_used = self._driver.now()
        if self._tls is None:
            self._is_ready()
        elif self.dialled:
            self.handshake_since = self.last_used
            self._transport.write(self._tls.outgoing())

    def data_received(self, data: bytes) -> None:
        if self.closing is not None:
            return
        driver = self._driver
        self.last_used = driver.turn_now or driver.now()
        if self._tls is None:
            self._take_in(data)
        elif self._queued is not None:
            self._queued += data
        elif self._tls.state is FIRST and data[0] == HANDSHAKE:
            self._begin_handshake(data)
        else:
            self._take_sealed(data)

    def _take_in(self, data: bytes) -> None:
        """Hand up what are whole frames by now."""
        driver = self._driver
        try:
            whole = self._partial is None and self._complete(data) == len(data)
            frames = data if whole else self._whole(data)
        except RemoteProtocolError as error:
            driver.refuse(self, f"{error}; it was closed")
            return
        if frames:
            driver.read(Frames(self.id, frames))

    def pause_writing(self) -> None:
        self._paused = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._paused = False
        if self.closing is None:
            if self.partial_since is not None:
                self.partial_since = self._driver.now()
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        why = "closed by the peer" if exc is None else f"lost: {exc}"
        if self._tls is not None and (cut := self._tls.cut()):
            why = cut
        self._keep(None)
        self._out.clear()
        self._queued = None
        self._handshake_over()
        self._driver.gone(self, self.closing or why)

    # ---- called by the driver ----

    def write(self, data: Buffer | Sequence[Buffer]) -> bool:
        """Put data behind what waits for the end of the turn; True when it is the first to wait."""
        out = self._out
        first = not out
        if isinstance(data, (bytes, bytearray, memoryview)):
            out.append(data)
        else:
            out.extend(data)
        return first

    def flush(self) -> None:
        """Hand all that waits to the transport, in one write."""
        out = self._out
        if not out:
            return
        driver = self._driver
        self.last_used = driver.turn_now or driver.now()
        if self._tls is not None:
            self._send_sealed(out[0] if len(out) == 1 else b"".join(out))
        elif len(out) == 1:
            self._transport.write(out[0])
        elif sum(map(len, out)) <= GATHER_BYTES:
            self._transport.write(b"".join(out))
        else:
            self._transport.writelines(out)
        self._out = []
        if self._paused and self._transport.get_write_buffer_size() > driver.limits.write_buffer:
            driver.refuse(self, "too much waits for a peer that doesn't read")

    def close(self, reason: str) -> None:
        """Close after all that was written has left."""
        if self.closing is None:
            self.flush()
            self.closing = reason
            self.closing_since = self._driver.now()
            if self._tls is not None and (last := self._tls.end()):
                self._transport.write(last)
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Close now; what waits is dropped."""
        self.closing = self.closing or reason
        self._out.clear()
        self._transport.abort()

    def overdue(self, now: Millis) -> str | None:
        """Why this connection has to end now, if it has to."""
        limits = self._driver.limits
        if self.closing is not None:
            return self.closing if now - self.closing_since > limits.linger_ms else None
        if now - self.last_used > limits.idle_ms:
            return f"idle for {limits.idle_ms} ms"
        since = self.handshake_since
        if since is not None and now - since > limits.handshake_ms:
            return f"TLS: no end of the handshake after {limits.handshake_ms} ms"
        since = self.partial_since
        if since is not None and not self._paused and now - since > limits.partial_frame_ms:
            return f"a frame was not whole after {limits.partial_frame_ms} ms"
        return None

    # ---- TLS ----

    def _is_ready(self) -> None:
        """Tell the node."""
        self.ready = True
        peer = _address(self._transport.get_extra_info("peername"))
        local = _address(self._transport.get_extra_info("sockname"))
        certificate = "" if self._tls is None else self._tls.certificate
        self._driver.take(Opened(self.id, peer, local, self._listener, self.dialled, certificate))

    def _begin_handshake(self, data: bytes) -> None:
        """The first bytes of a client's; the driver goes on with them when it has time."""
        why = self._driver.shake_soon(self)
        if why:
            self._driver.refuse(self, f"{why}; it was closed")
            return
        self.handshake_since = self.last_used
        self._queued = bytearray(data)
        self._transport.pause_reading()

    def shake(self) -> None:
        """The driver has time."""
        queued, self._queued = self._queued, None
        if queued is not None and self.closing is None:
            self._take_sealed(bytes(queued))
            if self.closing is None:
                self._transport.resume_reading()

    def _take_sealed(self, data: bytes) -> None:
        tls = self._tls
        assert tls is not None
        try:
            plain = tls.received(data)
        except RemoteProtocolError as error:
            self._send(tls.outgoing())
            self._driver.refuse(self, f"{error}; it was closed", gently=True)
            return
        self._send(tls.outgoing())
        if tls.state is OPEN and self.ready:
            if plain:
                self._take_in(plain)
            return
        if tls.state is SHAKING:
            return
        if tls.state is CLEAR:
            self._tls = None
        if not self.ready:
            self._handshake_over()
            self._is_ready()
        if plain and self.closing is None:
            self._take_in(plain)
        if tls.state is ENDED and self.closing is None:
            self.close("closed by the peer")

    def _handshake_over(self) -> None:
        if self.handshake_since is not None:
            self.handshake_since = None
            if not self.dialled:
                self._driver.handshakes -= 1

    def _send_sealed(self, data: Buffer) -> None:
        assert self._tls is not None
        try:
            self._send(self._tls.seal(data))
        except RemoteProtocolError as error:
            self._driver.refuse(self, f"{error}; it was closed")

    def _send(self, data: bytes) -> None:
        if data:
            self._transport.write(data)

    # ---- frames ----

    def _whole(self, data: bytes) -> Buffer:
        """The whole frames that this read brought or completed; the rest is kept."""
        partial = self._partial
        if partial is None:
            end = self._complete(data)
            if end == len(data):
                return data
            self._keep(bytearray(memoryview(data)[end:]))
            return data[:end]
        partial += data
        self._driver.partial_bytes += len(data)
        end = self._complete(partial)
        if end == 0:
            self._check_partial()
            return b""
        if end == len(partial):
            self._keep(None)
            return partial
        whole = bytes(memoryview(partial)[:end])
        self._keep(partial[end:])
        return whole

    def _keep(self, rest: bytearray | None) -> None:
        """`rest` takes the place of the unfinished frame, and its time begins now."""
        driver = self._driver
        if self._partial is not None:
            driver.partial_bytes -= len(self._partial)
        self._partial = rest
        self.partial_since = None
        if rest is not None:
            driver.partial_bytes += len(rest)
            self.partial_since = driver.now()
            self._check_partial()

    def _check_partial(self) -> None:
        if self._driver.partial_bytes > self._driver.limits.partial_bytes:
            raise RemoteProtocolError("unfinished frames take too much memory on this node")


def _address(name: tuple[str, int] | tuple[str, int, int, int] | None) -> str:
    if not name:
        return ""
    host, port = name[0], name[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
