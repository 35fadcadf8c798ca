"""One connection to one server: many requests in flight, matched to their answers by `opaque`.

    request() --> pending[opaque] --> answer | timeout | connection lost   (exactly one of the three)

Writes of one turn of the event loop leave in one piece. No task is made per request: an answer calls a
function, and `call()` only adds a future to that. All deadlines of a connection share one timer, set to
the earliest of them.

A server may send requests of its own (a group's members changed, offsets were reset…): they go to the
function that the connection was given, which answers with `reply()`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias, cast

from perseid.base.errors import RemoteProtocolError
from perseid.client.errors import ConnectFailed, ConnectionLost, RequestTimeout, ServerRefused, TlsFailed
from perseid.client.frames import SendTemplate
from perseid.client.tls import ClientTls, default, why
from perseid.security.credentials import Credentials
from perseid.wire import frame
from perseid.wire.codes import ResponseCode
from perseid.wire.command import Command, decode_all, encode_request, encode_response
from perseid.wire.headers.base import Header as TypedHeader

log = logging.getLogger("perseid.client")

CONNECT_TIMEOUT_MS = 3000
"""As the Java client's."""
REQUEST_TIMEOUT_MS = 3000
MAX_IN_FLIGHT = 65535
"""Requests without an answer on one connection (the Java client's limit for each process)."""
WRITE_HIGH_BYTES = 4 * 1024 * 1024
"""Above this many unsent bytes `call()` waits."""
MAX_OPAQUE = 2**31 - 1

Header: TypeAlias = TypedHeader | Mapping[str, str | None] | None
Buffer: TypeAlias = bytes | bytearray | memoryview
OnReply: TypeAlias = Callable[[Command | None, Exception | None], None]
OnRequest: TypeAlias = Callable[["Connection", Command], None]


class Connection(asyncio.Protocol):
    """An open connection; made by `Connections`."""

    def __init__(
        self,
        address: str,
        on_request: OnRequest,
        on_lost: Callable[[Connection], None],
        credentials: Credentials | None = None,
    ) -> None:
        self.address = address
        self._credentials = credentials
        self.local_ip = "127.0.0.1"
        self.closed = False
        self.going_away = False
        self._on_request = on_request
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._partial = bytearray()
        self._out: list[Buffer] = []
        self._flush_planned = False
        self._opaque = 0
        self._pending: dict[int, tuple[OnReply, float, int]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    # ---- what callers use ----

    @property
    def in_flight(self) -> int:
        """Requests that wait for their answer."""
        return len(self._pending)

    @property
    def writable(self) -> bool:
        """False while the other side reads too slowly or too many requests are in flight."""
        return self._writable.is_set() and len(self._pending) < MAX_IN_FLIGHT

    def request(
        self, code: int, header: Header, body: Buffer, timeout_ms: int, on_reply: OnReply
    ) -> None:
        """Send a request; `on_reply` gets the answer or the error, exactly once, never from inside this call."""
        opaque = self._opaque = self._opaque % MAX_OPAQUE + 1
        if self.closed:
            error = ConnectionLost(self.address, "it was closed")
            self._loop.call_soon(on_reply, None, error)
            return
        if self._credentials is not None:
            header = self._credentials.sign(header, body)
        self._expect(opaque, encode_request(code, opaque, header, body), timeout_ms, on_reply)

    @property
    def signs(self) -> bool:
        """Whether requests are signed: their headers are then known only when they are sent."""
        return self._credentials is not None

    def begin(
        self, template: SendTemplate, born_timestamp: int, properties: str, body: bytes, timeout_ms: int
    ) -> asyncio.Future[Command]:
        """Send a message by a template, while this is `writable` and does not sign; the answer, whatever its code."""
        opaque = self._opaque = self._opaque % MAX_OPAQUE + 1
        future: asyncio.Future[Command] = self._loop.create_future()
        data = template.frame(opaque, born_timestamp, properties, body)
        self._expect(opaque, data, timeout_ms, partial(self._settle, future))
        return future

    def _expect(self, opaque: int, data: Buffer, timeout_ms: int, on_reply: OnReply) -> None:
        """Send a request, and have its answer given to `on_reply`."""
        deadline = self._loop.time() + timeout_ms / 1000
        self._pending[opaque] = (on_reply, deadline, timeout_ms)
        timer = self._timer
        if timer is None or deadline < timer.when():
            if timer is not None:
                timer.cancel()
            self._timer = self._loop.call_at(deadline, self._expire)
        self._write(data)

    def _settle(self, future: asyncio.Future[Command], command: Command | None, error: Exception | None) -> None:
        """Give whoever waits for an answer the answer, or the error."""
        if future.done():
            return
        if command is not None:
            future.set_result(command)
        else:
            future.set_exception(error or ConnectionLost(self.address, "no reason given"))

    async def call(
        self, code: int, header: Header = None, body: Buffer = b"", timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> Command:
        """Send a request and wait for its answer, whatever its code."""
        if not self._writable.is_set():
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._writable.wait()
            except TimeoutError:
                raise RequestTimeout(self.address, timeout_ms) from None
        future: asyncio.Future[Command] = self._loop.create_future()
        self.request(code, header, body, timeout_ms, partial(self._settle, future))
        return await future

    def oneway(self, code: int, header: Header = None, body: Buffer = b"") -> None:
        """Send a request that gets no answer."""
        self._opaque = self._opaque % MAX_OPAQUE + 1
        if self._credentials is not None:
            header = self._credentials.sign(header, body)
        if not self.closed:
            self._write(encode_request(code, self._opaque, header, body, oneway=True))

    def reply(
        self, request: Command, code: int = 0, header: Header = None, body: Buffer = b"", remark: str | None = None
    ) -> None:
        """Answer a request of the server; nothing is sent for a one-way one."""
        if not request.is_oneway and not self.closed:
            self._write(encode_response(request.opaque, code, header, body, remark=remark))

    def close(self, reason: str = "closed by us") -> None:
        """End the connection; what waits for an answer fails with `ConnectionLost`."""
        if self._transport is not None and not self.closed:
            self._flush()
            self._transport.close()
        self._lost(reason)

    # ---- asyncio.Protocol ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        sockname = transport.get_extra_info("sockname")
        if sockname:
            self.local_ip = str(sockname[0])

    def data_received(self, data: bytes) -> None:
        whole: bytes | bytearray = data
        if self._partial:
            self._partial += data
            whole = self._partial
        try:
            end = frame.complete(whole)
            if end == 0:
                if whole is data:
                    self._partial += data
                return
            self._partial = bytearray(memoryview(whole)[end:])
            commands = decode_all(memoryview(whole)[:end])
        except RemoteProtocolError as error:
            self.abort(f"it sent bytes that break the protocol: {error}")
            return
        for command in commands:
            if command.is_response:
                entry = self._pending.pop(command.opaque, None)
                if entry is not None:
                    entry[0](command, None)
            else:
                self._on_request(self, command)
        if self.going_away and not self._pending:
            self.close("the server is going away")

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        said = why(exc, self.address) if isinstance(exc, ssl.SSLError) else str(exc)
        self._lost(said if exc else "the server closed it")

    def abort(self, reason: str) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()
        self._lost(reason)

    # ---- inside ----

    def _write(self, data: Buffer) -> None:
        self._out.append(data)
        if not self._flush_planned:
            self._flush_planned = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_planned = False
        out, self._out = self._out, []
        if self._transport is None or self.closed or not out:
            return
        self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def _expire(self) -> None:
        """Fail what is over its deadline, and set the timer to the earliest that remains."""
        self._timer = None
        now = self._loop.time() + 0.0005
        expired = sorted((entry[1], opaque) for opaque, entry in self._pending.items() if entry[1] <= now)
        for _, opaque in expired:
            on_reply, _, timeout_ms = self._pending.pop(opaque)
            on_reply(None, RequestTimeout(self.address, timeout_ms))
        if self._pending and not self.closed:
            self._timer = self._loop.call_at(min(e[1] for e in self._pending.values()), self._expire)

    def _lost(self, reason: str) -> None:
        if self.closed:
            return
        self.closed = True
        self._writable.set()
        if self._timer is not None:
            self._timer.cancel()
        pending, self._pending = self._pending, {}
        self._on_lost(self)
        for on_reply, _, _ in pending.values():
            self._loop.call_soon(on_reply, None, ConnectionLost(self.address, reason))


class Connections:
    """The connections of a client: at most one to each address, opened when first needed."""

    def __init__(
        self,
        on_request: OnRequest,
        *,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        credentials: Credentials | None = None,
        tls: ClientTls | None = None,
    ) -> None:
        self._on_request = on_request
        self._credentials = credentials
        self._tls = tls or default()
        self._context: ssl.SSLContext | None = None
        self._connect_timeout_ms = connect_timeout_ms
        self._open: dict[str, Connection] = {}
        self._dialling: dict[str, asyncio.Task[Connection]] = {}
        self._closed = False

    @property
    def count(self) -> int:
        """Connections that are open."""
        return len(self._open)

    def ready(self, address: str) -> Connection | None:
        """The open connection to an address, if there is one."""
        return self._open.get(address)

    async def get(self, address: str) -> Connection:
        """The connection to `host:port`, dialled if need be; `ConnectFailed` when that fails."""
        connection = self._open.get(address)
        if connection is not None:
            return connection
        task = self._dialling.get(address)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._dial(address), name=f"dial {address}")
            self._dialling[address] = task
            task.add_done_callback(lambda done: self._dialled(address, done))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            waiter = asyncio.current_task()
            if task.cancelled() and (waiter is None or not waiter.cancelling()):  # `close()` did, and not our caller
                raise ConnectFailed(address, "this client was stopped") from None
            raise

    async def call(
        self,
        address: str,
        code: int,
        header: Header = None,
        body: Buffer = b"",
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> Command:
        """The answer of `address`, whatever its code; dials, and once again when the server is going away."""
        connection = self._open.get(address) or await self._get_within(address, timeout_ms)
        answer = await connection.call(code, header, body, timeout_ms)
        if answer.code == ResponseCode.GO_AWAY:
            self.retire(address)
            answer = await (await self._get_within(address, timeout_ms)).call(code, header, body, timeout_ms)
        return answer

    async def ask(
        self,
        address: str,
        code: int,
        header: Header = None,
        body: Buffer = b"",
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> Command:
        """As `call()`, but any code other than success is raised as `ServerRefused`."""
        answer = await self.call(address, code, header, body, timeout_ms)
        if answer.code != ResponseCode.SUCCESS:
            raise ServerRefused(answer.code, answer.remark, address)
        return answer

    def retire(self, address: str) -> None:
        """Use a new connection from now on; the old one ends when its last answer has come."""
        connection = self._open.pop(address, None)
        if connection is not None:
            connection.going_away = True
            if not connection.in_flight:
                connection.close("the server is going away")

    def open(self) -> None:
        """Allow dialling again after `close()`."""
        self._closed = False

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        for task in list(self._dialling.values()):
            task.cancel()
        for connection in list(self._open.values()):
            connection.close()
        self._open.clear()

    async def _get_within(self, address: str, timeout_ms: int) -> Connection:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self.get(address)
        except TimeoutError:
            raise RequestTimeout(address, timeout_ms) from None

    async def _dial(self, address: str) -> Connection:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise ConnectFailed(address, "an address looks like host:port")
        loop, tls = asyncio.get_running_loop(), self._tls
        if tls is not None and self._context is None:
            self._context = tls.context()
        try:
            async with asyncio.timeout(self._connect_timeout_ms / 1000):
                _, connection = await loop.create_connection(
                    lambda: Connection(address, self._on_request, self._lost, self._credentials),
                    host.strip("[]"),
                    int(port),
                    ssl=self._context,
                    server_hostname=None if tls is None else tls.host(address),
                )
        except TimeoutError:
            raise ConnectFailed(address, f"no answer within {self._connect_timeout_ms} ms") from None
        except OSError as error:
            handshake = isinstance(error, ssl.SSLError | ConnectionError)
            if tls is not None and handshake and not isinstance(error, ConnectionRefusedError):
                raise TlsFailed(address, why(error, address)) from error
            said = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
            raise ConnectFailed(address, said) from error
        if self._closed:
            connection.close()
            raise ConnectFailed(address, "this client was stopped")
        self._open[address] = connection
        return connection

    def _dialled(self, address: str, done: asyncio.Task[Connection]) -> None:
        self._dialling.pop(address, None)
        if not done.cancelled():
            done.exception()  # seen here too: every waiter may have been cancelled meanwhile

    def _lost(self, connection: Connection) -> None:
        if self._open.get(connection.address) is connection:
            del self._open[connection.address]
