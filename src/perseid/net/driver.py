"""Runs one node in the real world: asyncio (or uvloop) for sockets and timers, one thread for durability.

A turn of the event loop: whatever happened goes into `machine.handle`, one event after the other, all with the
same `now`; what connections brought is gathered and goes in at the end of the turn, or before the next event of
another kind. Effects are carried out in order; at the end of the turn each connection that was written to gets one
write, and the timer is set. No task and no future is made for a request.

A node that *gathers* would rather hear of several things in one turn a moment later than of each in a turn of its own:
nobody waits for it alone. Its loop then pauses as long as it says.

States: new → (start) running → (Stop, a failure) ended. An exception that leaves `handle` ends the node:
its state can't be trusted any more, so nothing that it had not yet written leaves. `stopped` tells the
reason, `""` for a clean end.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from perseid.base.errors import ConfigError, RemoteProtocolError, StoreError
from perseid.base.machine import (
    Buffer,
    Close,
    Closed,
    Connect,
    ConnectFailed,
    ConnId,
    DiskFailed,
    Effect,
    Event,
    Feed,
    Fetch,
    Flush,
    Frames,
    Machine,
    Millis,
    Note,
    Reads,
    Resolve,
    Resolved,
    SaveState,
    Shutdown,
    Start,
    Stop,
    Tick,
    Write,
)
from perseid.core import complete
from perseid.disk.port import Disk
from perseid.net.acceptor import Acceptor, descriptors_left
from perseid.net.connection import Connection
from perseid.net.holder import holder
from perseid.net.iothread import Failed, IOThread
from perseid.net.limits import Limits
from perseid.net.names import Names
from perseid.security.tls import ClientSide, ServerSide, Tls

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), 127)}
"""What a peer sent may stand in a log line, but must not make a second one."""

RESOLUTION_MS = 1
"""The least time between two ticks: a node whose deadline stays in the past can't take the whole loop."""


@dataclass(frozen=True, slots=True)
class Listener:
    """Where to accept connections, how their frames are found, and how TLS is taken (None: nobody looks for it). A
    socket that is bound already will do. `setting`: what another port is chosen with."""

    host: str = "127.0.0.1"
    port: int = 0
    bound: socket.socket | None = None
    complete: Callable[[Buffer], int] = complete
    tls: ServerSide | None = None
    setting: str = ""

    def bind(self) -> socket.socket:
        """ConfigError when the address can't be had."""
        return self.bound if self.bound is not None else bind(self.host, self.port, self.setting)


def bind(host: str, port: int, setting: str = "") -> socket.socket:
    """A socket that holds an address (a free port for 0) and doesn't listen yet, or ConfigError. `setting`: what
    another port is chosen with."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except (OSError, OverflowError) as error:
        sock.close()
        raise ConfigError(f"can't listen on {host}:{port}: {_why_not(error, port, setting)}") from None
    return sock


def _why_not(error: OSError | OverflowError, port: int, setting: str) -> str:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        choose = f"choose another port with {setting}" if setting else "choose another port"
        return f"it is taken by {holder(port)}; end that, or {choose}"
    return str(error)


class Driver:
    """Runs `machine` with `disk` behind listeners by name."""

    def __init__(
        self,
        machine: Machine,
        disk: Disk,
        listeners: Mapping[str, Listener],
        *,
        name: str = "node",
        limits: Limits | None = None,
        logger: logging.Logger | None = None,
        gathers: Callable[[], int] | None = None,
        dials: Mapping[str, ClientSide] | None = None,
    ) -> None:
        """`gathers`: for how many microseconds the node had better hear nothing; asked after each turn. `dials`: the
        TLS of connections that are dialled, by the kind that `Connect` names."""
        self.limits = limits or Limits()
        self._secured = dials or {}
        self.handshakes = 0
        """TLS handshakes of accepted connections that are under way."""
        self._shakes: deque[Connection] = deque()
        self._gathers = gathers
        self.took: Callable[[int], None] | None = None
        """Told after each turn how many nanoseconds it took."""
        self.connections: dict[ConnId, Connection] = {}
        self.partial_bytes = 0
        self.ports: dict[str, int] = {}
        self.machine = machine
        self._listeners = listeners
        self._log = logger or logging.getLogger(f"perseid.{name}")
        self._io = IOThread(disk, self._on_thread, name)
        self._reader = IOThread(disk, self._on_thread, f"read-{name}")
        self._acceptors: list[Acceptor] = []
        self._dials: set[asyncio.Task[None]] = set()
        self._names = Names(self._look_up_ended)
        self._next_conn: ConnId = 1
        self._fed: deque[Event] = deque()
        self._reads: list[Frames] = []
        self._read_bytes = 0
        self._busy = False
        self._ended = False
        self._dirty: list[Connection] = []
        self._turn_scheduled = False
        self._turn_began_ns = 0
        self.turn_now: Millis = 0
        """`now` of the turn under way; 0: nobody has asked for it yet."""
        self._anchor_ns = 0
        """What the monotonic clock lacks to the time of day at the start."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: Millis = 0
        self._sweeper: asyncio.TimerHandle | None = None
        self._watchers: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    # ---- the life of a node ----

    async def start(self) -> None:
        """Bind, hand `Start` to the node, then accept. The node may have refused: then `stopped` is done.

        ConfigError when an address can't be had.
        """
        self._loop = asyncio.get_running_loop()
        self.stopped: asyncio.Future[str] = self._loop.create_future()
        self._closed_all = asyncio.Event()
        self._io_ended = asyncio.Event()
        self._anchor_ns = time.time_ns() - time.monotonic_ns()
        try:
            for name, listener in self._listeners.items():
                self._listen(name, listener)
        except ConfigError:
            for acceptor in self._acceptors:
                acceptor.close()
            raise
        self._io.start()
        self._reader.start()
        self.take(Start())
        if not self._ended:
            for acceptor in self._acceptors:
                acceptor.start()
            self._sweep()

    def _listen(self, name: str, listener: Listener) -> None:
        sock = listener.bind()
        self.ports[name] = sock.getsockname()[1]
        full = partial(self._full, sock)
        self._acceptors.append(Acceptor(sock, self.limits, full, self._acceptor(name, listener), self._log))

    def _full(self, listening: socket.socket) -> str:
        """Why no more connections may be accepted, or nothing."""
        pending = sum(acceptor.pending for acceptor in self._acceptors)
        if len(self.connections) + pending >= self.limits.connections:
            return f"there are {self.limits.connections} of them"
        return descriptors_left(self.limits, listening.fileno())

    def _accept_again(self) -> None:
        for acceptor in self._acceptors:
            acceptor.resume()

    async def stop(self) -> str:
        """End the node cleanly, when all is durable and written; why it ended, `""` if cleanly."""
        for acceptor in self._acceptors:
            acceptor.close()
        if not self._ended:
            self.take(Shutdown())
            try:
                await asyncio.wait_for(asyncio.shield(self.stopped), self.limits.shutdown_ms / 1000)
            except TimeoutError:
                self._fail(f"no end of the shutdown after {self.limits.shutdown_ms} ms")
        await self._wind_up()
        return self.stopped.result()

    def post(self, event: Event) -> None:
        """Give the node an event from any thread."""
        self._loop.call_soon_threadsafe(self.take, event)

    async def until(self, ready: Callable[[], bool]) -> None:
        """Wait until `ready` says so; it is asked after each turn in which something happened to the node."""
        if not ready():
            seen: asyncio.Future[None] = self._loop.create_future()
            self._watchers.append((ready, seen))
            await seen

    def _look(self) -> None:
        waiting = []
        for ready, seen in self._watchers:
            if seen.done():
                continue
            if ready():
                seen.set_result(None)
            else:
                waiting.append((ready, seen))
        self._watchers = waiting

    async def _wind_up(self) -> None:
        clean = not self.stopped.result()
        for dial in self._dials:
            dial.cancel()
        for connection in list(self.connections.values()):
            if clean:
                connection.close("the node ended")
            else:
                connection.abort("the node failed")
        if self.connections:
            try:
                await asyncio.wait_for(self._closed_all.wait(), self.limits.linger_ms / 1000)
            except TimeoutError:
                for connection in list(self.connections.values()):
                    connection.abort("the node ended")
        for thread, abandon in ((self._reader, True), (self._io, not clean)):
            self._io_ended.clear()
            thread.close(self._on_thread_ended, abandon=abandon)
            await self._io_ended.wait()
            thread.join()
        for handle in (self._timer, self._sweeper):
            if handle is not None:
                handle.cancel()

    def _on_thread_ended(self) -> None:
        self._loop.call_soon_threadsafe(self._io_ended.set)

    def _end(self, reason: str) -> None:
        """The node is over: nothing goes in or out any more, apart from what was written before."""
        if self._ended:
            return
        self._ended = True
        self._fed.clear()
        self._reads.clear()
        if reason:
            self._log.error("stopped: %s", reason)
            for connection in list(self.connections.values()):
                connection.abort("the node failed")
        else:
            for connection in self._dirty:
                connection.flush()
        self._dirty.clear()
        if not self.stopped.done():
            self.stopped.set_result(reason)

    def _fail(self, reason: str) -> None:
        self._end(reason or "failed")

    # ---- events in ----

    def now(self) -> Millis:
        """The node's time, the same for all of one turn of the event loop."""
        now = self.turn_now
        if not now:
            now_ns = time.monotonic_ns()
            now = self.turn_now = (self._anchor_ns + now_ns) // 1_000_000
            if not self._turn_scheduled:
                self._turn_scheduled, self._turn_began_ns = True, now_ns
                self._loop.call_soon(self._end_of_turn)
        return now

    def read(self, frames: Frames) -> None:
        """What one read brought: it goes to the node together with that of others, before the turn ends."""
        assert self._turn_scheduled, "who reads has asked for the time"
        self._reads.append(frames)
        self._read_bytes += len(frames.data)
        if self._read_bytes >= self.limits.turn_bytes:
            self._hand_in()

    def _hand_in(self) -> None:
        """Give the node what was read."""
        reads, self._reads, self._read_bytes = self._reads, [], 0
        self._take(reads[0] if len(reads) == 1 else Reads(reads))

    def take(self, event: Event) -> None:
        """Hand an event to the node and carry out what it answers, and what that feeds back."""
        if self._reads:
            self._hand_in()
        self._take(event)

    def _take(self, event: Event) -> None:
        if self._busy:
            self._fed.append(event)
            return
        if self._ended:
            return
        self._busy = True
        try:
            self._handle(event)
            while self._fed and not self._ended:
                self._handle(self._fed.popleft())
        finally:
            self._busy = False

    def _handle(self, event: Event) -> None:
        try:
            effects = self.machine.handle(event, self.now())
            if effects:
                self._carry_out(effects)
        except RemoteProtocolError as error:
            if not isinstance(event, Frames):
                self._crash(event, error)
            elif event.conn in self.connections:
                self.refuse(self.connections[event.conn], f"{error}; it was closed")
        except (ConfigError, StoreError, OSError) as error:
            if isinstance(event, Start):
                self._fail(str(error))
            else:
                self._crash(event, error)
        except Exception as error:
            self._crash(event, error)

    def _crash(self, what: Event, error: Exception) -> None:
        """An invariant of our own broke: no more of this state may leave the process."""
        self._log.critical("broke while handling %s", type(what).__name__, exc_info=error)
        self._fail(f"{type(error).__name__}: {error}")

    # ---- effects out ----

    def _carry_out(self, effects: list[Effect]) -> None:
        connections = self.connections
        for effect in effects:
            if type(effect) is Write:
                connection = connections.get(effect.conn)
                if connection is not None and connection.closing is None and connection.write(effect.data):
                    self._dirty.append(connection)
            elif isinstance(effect, Flush | SaveState):
                self._io.submit(effect)
            elif isinstance(effect, Fetch):
                self._reader.submit(effect)
            elif isinstance(effect, Feed):
                self._fed.append(effect.event)
            elif isinstance(effect, Close):
                connection = connections.get(effect.conn)
                if connection is not None:
                    connection.close(effect.reason)
            elif isinstance(effect, Connect):
                self._dial(effect)
            elif isinstance(effect, Resolve):
                self._resolve(effect)
            elif isinstance(effect, Note):
                self._log.log(LEVELS[effect.level], effect.text.translate(_CONTROLS))
            elif isinstance(effect, Stop):
                self._end(effect.reason)
                return
            else:
                raise AssertionError(f"not an effect: {effect!r}")

    def _end_of_turn(self) -> None:
        if self._reads:
            self._hand_in()
        dirty = self._dirty
        if dirty:
            self._dirty = []
            for connection in dirty:
                connection.flush()
        self._set_timer()
        if self._watchers:
            self._look()
        self._turn_scheduled = False
        self.turn_now = 0
        if self.took is not None:
            self.took(time.monotonic_ns() - self._turn_began_ns)
        if self._gathers is not None and not self._ended and (pause_us := self._gathers()):
            time.sleep(min(pause_us, self.limits.gather_us) / 1e6)

    def _on_thread(self, then: list[Effect], failed: list[Failed]) -> None:
        self._loop.call_soon_threadsafe(self._durable, then, failed)

    def _durable(self, then: list[Effect], failed: list[Failed]) -> None:
        """What an fsync allowed is carried out, and what it feeds back is handled."""
        if self._ended:
            return
        self.now()
        try:
            self._carry_out(then)
        except Exception as error:
            self._crash(then, error)
        for one in failed:
            self.take(DiskFailed(one.path, one.reason))
        while self._fed and not self._ended:
            self.take(self._fed.popleft())

    # ---- time ----

    def _deadline(self) -> Millis | None:
        if self._ended:
            return None
        try:
            return self.machine.next_deadline()
        except Exception as error:
            self._crash(Tick(), error)
            return None

    def _set_timer(self) -> None:
        """A timer that is set for an earlier time stays: it will look again."""
        deadline = self._deadline()
        if deadline is None or (self._timer is not None and self._timer_at <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        delay = max(RESOLUTION_MS, deadline - self.now())
        self._timer_at = deadline
        self._timer = self._loop.call_later(delay / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        deadline = self._deadline()
        if deadline is not None and deadline <= self.now():
            self.take(Tick())
        elif deadline is not None:
            self._set_timer()

    def _sweep(self) -> None:
        if not self._ended:
            self._sweeper = self._loop.call_later(self.limits.sweep_ms / 1000, self._sweep)
            now = self.now()
            overdue = [(c, why) for c in self.connections.values() if (why := c.overdue(now)) is not None]
            for connection, why in overdue:
                self._log.info("connection %d: %s", connection.id, why)
                connection.abort(why)
            self._accept_again()  # descriptors become free elsewhere, too

    # ---- connections ----

    def _acceptor(self, name: str, listener: Listener) -> Callable[[], Connection]:
        side = listener.tls
        return lambda: self._connection(listener.complete, name, "", None if side is None else Tls.accepted(side))

    def _connection(
        self, complete: Callable[[Buffer], int], listener: str, dialled: str, tls: Tls | None
    ) -> Connection:
        conn = self._next_conn
        self._next_conn += 1
        return Connection(self, conn, complete, listener, dialled, tls)

    def admit(self, connection: Connection) -> bool:
        """Whether a new connection may live; it is known from now on if so."""
        if self._ended:
            return False
        self.connections[connection.id] = connection
        self._closed_all.clear()
        return True

    def shake_soon(self, connection: Connection) -> str:
        """`connection.shake` is called when it is its turn; or why there is no place for its handshake."""
        if self.handshakes >= self.limits.handshakes:
            return f"TLS: {self.handshakes} handshakes are under way already"
        self.handshakes += 1
        if not self._shakes:
            self._loop.call_soon(self._shake_some)
        self._shakes.append(connection)
        return ""

    def _shake_some(self) -> None:
        until_ns = time.monotonic_ns() + self.limits.handshakes_us * 1_000
        while self._shakes:
            self.now()
            self._shakes.popleft().shake()
            if time.monotonic_ns() >= until_ns:
                break
        if self._shakes:
            self._loop.call_soon(self._shake_some)

    def refuse(self, connection: Connection, why: str, *, gently: bool = False) -> None:
        """A peer broke the protocol or a bound: its connection ends, nothing else suffers. `gently`: after what was
        sent to it has left."""
        self._log.warning("connection %d: %s", connection.id, why)
        if gently:
            connection.close(why)
        else:
            connection.abort(why)

    def gone(self, connection: Connection, reason: str) -> None:
        """The transport is closed: the node hears it, once."""
        if self.connections.pop(connection.id, None) is not None:
            if not self.connections:
                self._closed_all.set()
            if connection.ready:
                self.take(Closed(connection.id, reason))
            elif connection.dialled:
                self.take(ConnectFailed(connection.dialled, reason))
            else:
                self._log.info("connection %d: %s", connection.id, reason)
            if not self._ended:
                self._loop.call_soon(self._accept_again)  # its descriptor is closed by then

    def _resolve(self, effect: Resolve) -> None:
        refused = self._names.look_up(effect.names)
        if refused is not None:
            self._fed.append(refused)

    def _look_up_ended(self, event: Resolved) -> None:
        """In the lookup's thread."""
        with suppress(RuntimeError):  # the loop has ended, and the node with it
            self._loop.call_soon_threadsafe(self._looked_up, event)

    def _looked_up(self, event: Resolved) -> None:
        self._names.ended()
        self.take(event)

    def _dial(self, effect: Connect) -> None:
        task = self._loop.create_task(self._connect(effect))
        self._dials.add(task)
        task.add_done_callback(self._dials.discard)

    async def _connect(self, effect: Connect) -> None:
        address = effect.address
        host, _, port = address.rpartition(":")
        side = self._secured.get(effect.listener)
        try:
            tls = None if side is None else Tls.dialled(side, address)
        except RemoteProtocolError as error:
            self.take(ConnectFailed(address, str(error)))
            return
        connection = self._connection(effect.complete or complete, effect.listener, address, tls)
        try:
            dial = self._loop.create_connection(lambda: connection, host.strip("[]"), int(port))
            await asyncio.wait_for(dial, self.limits.dial_ms / 1000)
        except TimeoutError:
            why = f"no connection after {self.limits.dial_ms} ms"
        except (OSError, ValueError, OverflowError) as error:
            why = str(error)
        else:
            return
        if connection.id not in self.connections:
            self.take(ConnectFailed(address, why))
