"""An asyncio event loop in virtual time: the real clients run on it unchanged, over the simulated network.

Its clock is the simulator's. When nothing is ready to run, the simulator plays its next action: an `asyncio.sleep`
of a day takes as long as what happens in that day. Everything happens in one thread and in an order that the seed
decides, so that the same seed gives the same run.

Only the nodes of the simulation can be reached. Functions for `run_in_executor` (plain handlers, `to_thread`) run in
this thread. What would wait for the real world (sockets, subprocesses, other threads, TLS) is refused.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextvars import Context
from pathlib import Path
from typing import Any, NoReturn, TypeVar, TypeVarTuple, Unpack

from perseid.base.errors import PerseidError
from perseid.client.surroundings import SIMULATED_LOOPS
from perseid.sim.driver import EPOCH_MS
from perseid.sim.net import Network
from perseid.sim.scheduler import US_PER_S, Scheduler, Timer
from perseid.testing.transport import CLIENT, VirtualTransport

log = logging.getLogger("perseid.testing")

PID = 4242
LIMIT_S = 3600.0
"""A call that takes more virtual time than this, and is not told to, is taken for one that waits in vain."""
CLEAN_UP_S = 120.0
"""The virtual time that a call has to end after it was given up."""
MAX_STEPS_OF_AN_INSTANT = 100_000
"""More steps while no time passes are an endless loop."""
MAX_ACTIONS_OF_A_CALL = 50_000_000
SLOW_CALL_S = 1.0
"""A function that blocks for longer than this, of real time, is worth a warning."""
SHOWN_PLACES = 20
MAIN_TASK = "the test"
CLOSED = "this virtual cluster was closed: make a new one"
US_ROUNDING = 0.001
"""A time in seconds is a float: this much of a microsecond is an error of rounding."""

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class WaitedInVain(PerseidError):
    """What a test waits for does not happen: not within the limit of virtual time, or never."""


class VirtualTimeError(PerseidError, RuntimeError):
    """Something was asked of the virtual event loop that it can't do."""


def _refused(what: str) -> Callable[..., NoReturn]:
    """A method that only says that it can't be."""

    def refuse(self: object, *args: object, **more: object) -> NoReturn:
        raise VirtualTimeError(f"{what}: there is none in virtual time, where only the cluster's nodes can be reached")

    return refuse


class Simulated:
    """The surroundings of clients in virtual time (`perseid.client.surroundings`)."""

    simulated = True

    def __init__(self, scheduler: Scheduler, ip: str, home: Callable[[], Path]) -> None:
        self._scheduler = scheduler
        self._random = scheduler.stream("sessions")
        self._ip = ip
        self._home = home
        self._sessions = 0

    def wall_ns(self) -> int:
        """The time at the true clock, as the nodes have it."""
        return EPOCH_MS * 1_000_000 + self._scheduler.now_us * 1000

    def ip(self) -> str:
        """The address of the clients' machine."""
        return self._ip

    def pid(self) -> int:
        """Always the same."""
        return PID

    def seed(self) -> int:
        """Drawn from the seed; the last twelve bits count."""
        self._sessions += 1
        return self._random.getrandbits(20) << 12 | self._sessions & 0xFFF

    def home(self) -> Path:
        """A temporary folder of this test's own."""
        return self._home()


class _Timer(asyncio.TimerHandle):
    """A handle that knows its action in the simulator."""

    __slots__ = ("action",)
    action: Timer


class _Watched(Coroutine[Any, Any, T]):
    """A coroutine that says when it goes on."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], goes_on: Callable[[], None]) -> None:
        self._coroutine = coroutine
        self._goes_on = goes_on

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        self._goes_on()
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        self._goes_on()
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __getattr__(self, name: str) -> Any:
        """`cr_frame` and others, by which asyncio shows where a task waits."""
        return getattr(self._coroutine, name)


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop. `run` and `play` are for `VirtualCluster`; the rest is asyncio's."""

    def __init__(self, scheduler: Scheduler, network: Network, ip: str, home: Callable[[], Path]) -> None:
        super().__init__()
        self.scheduler = scheduler
        self.network = network
        self.surroundings = Simulated(scheduler, ip, home)
        self.ip = ip
        self.signals: dict[int, Callable[[], object]] = {}
        network.machines[ip] = CLIENT
        self._ready: deque[asyncio.Handle] = deque()
        self._until_us: int | None = None
        """Up to here `play` lets time pass."""
        self._limit_us = 0
        """From here on `run` waits in vain."""
        self._allowed_us = 0
        self._over: Callable[[], bool] | None = None
        self._instant = (-1, 0)
        """A time, and how many steps there were at it."""
        self._own_thread = threading.get_ident()

    # ---- what the cluster uses ----

    def run(self, coroutine: Coroutine[Any, Any, T], limit_s: float = LIMIT_S) -> T:
        """The result of a coroutine; time passes as it waits. WaitedInVain when it has not gone on for more than
        `limit_s` of virtual time; a timer that is longer than that (`asyncio.sleep(100_000)`) is waited for."""
        try:
            self._check_free()
        except BaseException:
            coroutine.close()
            raise
        self._begin(limit_s)
        task = self.create_task(_Watched(coroutine, self._goes_on), name=MAIN_TASK)
        try:
            return self.run_until_complete(task)
        except WaitedInVain:
            self._clean_up({task})
            raise

    def play(self, until_us: int, over: Callable[[], bool] | None = None) -> bool:
        """Let time pass until then, or until `over`; whether it was over."""
        self._check_free()
        self._begin(math.inf)
        self._until_us, self._over = until_us, over
        try:
            if over is None or not over():
                self.run_forever()
            return over is not None and over()
        finally:
            self._until_us = self._over = None

    def end(self) -> None:
        """Cancel what still runs, and close."""
        if not self.is_closed():
            self._clean_up(asyncio.all_tasks(self))
            self.run_until_complete(self.shutdown_asyncgens())
            self.close()

    def _begin(self, limit_s: float) -> None:
        self.scheduler.actions, self.scheduler.max_actions = 0, MAX_ACTIONS_OF_A_CALL
        self._allowed_us = -1 if math.isinf(limit_s) else int(limit_s * US_PER_S)
        self._instant = (-1, 0)
        self._goes_on()

    def _goes_on(self) -> None:
        self._limit_us = self.scheduler.now_us + self._allowed_us

    def _check_free(self) -> None:
        if self.is_closed():
            raise VirtualTimeError(CLOSED)
        if self.is_running():
            raise VirtualTimeError(
                "this is a call for a plain test, and a coroutine is running: in a coroutine write "
                "`await asyncio.sleep(seconds)` to let time pass (it takes none), and use the asyncio clients"
            )

    def _clean_up(self, tasks: set[asyncio.Task[Any]]) -> None:
        """Cancel tasks and let them end."""
        tasks = {task for task in tasks if not task.done()}
        if not tasks:
            return
        for task in sorted(tasks, key=_in_order):
            task.cancel()
        self.play(
            self.scheduler.now_us + int(CLEAN_UP_S * US_PER_S), lambda: all(task.done() for task in tasks)
        )
        for task in sorted(tasks, key=_in_order):
            if not task.done():
                log.error("%s goes on %s s after it was cancelled, at %s", task.get_name(), CLEAN_UP_S, _where(task))
            elif not task.cancelled() and (error := task.exception()) is not None:
                log.error("%s ended with an error when it was cancelled", task.get_name(), exc_info=error)

    # ---- time and order ----

    def time(self) -> float:
        """Seconds since the simulation began."""
        return self.scheduler.now_us / US_PER_S

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As asyncio's: the timer is an action of the simulator."""
        if self.is_closed():
            raise VirtualTimeError(CLOSED)
        at_us = math.ceil(when * US_PER_S - US_ROUNDING)
        if 0 <= self._allowed_us <= at_us - self.scheduler.now_us:
            self._limit_us = max(self._limit_us, at_us + 1)
        timer = _Timer(when, callback, args, self, context)
        timer.action = self.scheduler.at(at_us, self._ready.append, timer)
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        assert isinstance(handle, _Timer)
        Scheduler.cancel(handle.action)

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """As `call_soon`, for the one thread that there is."""
        if threading.get_ident() != self._own_thread:
            raise VirtualTimeError(
                f"thread {threading.current_thread().name} calls the event loop: virtual time has one thread; "
                "use asyncio, or `asyncio.to_thread`, which runs the function in it"
            )
        return self.call_soon(callback, *args, context=context)

    def _run_once(self) -> None:
        """One round: what is ready runs; when nothing is, the simulator goes on until something is."""
        ready = self._ready
        if not ready:
            self._wait()
        now_us, steps = self._instant
        steps = steps + len(ready) if now_us == self.scheduler.now_us else 0
        self._instant = (self.scheduler.now_us, steps)
        if steps > MAX_STEPS_OF_AN_INSTANT:
            raise WaitedInVain(f"{steps} steps, and no time has passed: an endless loop?\n{self._waiting()}")
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()  # noqa: SLF001 - as all event loops do
        if self._over is not None and self._over():
            self.stop()

    def _wait(self) -> None:
        ready, over = self._ready, self._over
        if self._until_us is None:
            while not ready:
                limit_us = self._limit_us
                if not self.scheduler.run(limit_us, ready.__len__) and limit_us == self._limit_us:  # type: ignore[arg-type]
                    waited = f"the coroutine has not gone on for {self._allowed_us / US_PER_S:g} s of virtual time"
                    raise WaitedInVain(f"{waited}; give it longer (`limit_s`) if that is right\n{self._waiting()}")
        else:
            happens = ready.__len__ if over is None else lambda: bool(ready) or over()
            if not self.scheduler.run(self._until_us, happens):  # type: ignore[arg-type]
                self.stop()

    def _waiting(self) -> str:
        places: dict[str, list[str]] = {}
        for task in sorted(asyncio.all_tasks(self), key=_in_order):
            places.setdefault(_where(task), []).append(task.get_name())
        lines = [
            f"  {names[0]}{f' and {len(names) - 1} like it' if names[1:] else ''}: {place}"
            for place, names in list(places.items())[:SHOWN_PLACES]
        ]
        if len(places) > SHOWN_PLACES:
            lines.append(f"  and at {len(places) - SHOWN_PLACES} more places")
        return "\n".join(["What waits:", *lines])

    # ---- the world ----

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **more: Any) -> Any:
        """As asyncio's, to a node of the simulation; ConnectionRefusedError for any other address."""
        if more.get("ssl"):
            raise VirtualTimeError("TLS: there is none in virtual time; test it with `perseid_broker`")
        if host is None or port is None:
            raise VirtualTimeError("a connection of an existing socket: virtual time has no sockets")
        waiter: asyncio.Future[None] = self.create_future()
        address = f"{host}:{port}"
        connection = VirtualTransport(self, self.network, protocol_factory(), address, waiter)
        self.network.dial(connection, self.ip, address, frames=len)
        try:
            await waiter
        except BaseException:
            connection.abort()
            raise
        return connection, connection.get_protocol()

    async def getaddrinfo(self, host: Any, port: Any, **more: Any) -> Any:
        """The addresses of the simulation's own names; what is no such name is an address already."""
        ip = self.network.names.get(str(host), str(host))
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (ip, int(port or 0)))]

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """The function's result; it runs in this thread, when it is its turn."""
        future: asyncio.Future[T] = self.create_future()
        self.call_soon(self._run_in_turn, future, func, args)
        return future

    def _run_in_turn(self, future: asyncio.Future[Any], function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if future.cancelled():
            return
        began = time.perf_counter()
        try:
            future.set_result(function(*args))
        except (SystemExit, KeyboardInterrupt):
            raise
        except StopIteration as error:
            future.set_exception(RuntimeError(f"{function!r} raised {error!r}"))
        except BaseException as error:  # as a thread would hand it over
            future.set_exception(error)
        took_s = time.perf_counter() - began
        if took_s > SLOW_CALL_S:
            log.warning("%r blocked for %.1f s of real time: virtual time stands still meanwhile", function, took_s)

    def add_signal_handler(self, sig: int, callback: Callable[[Unpack[Ts]], Any], *args: *Ts) -> None:
        """Kept for `send_signal`: the process's own signals are left alone."""
        self.signals[sig] = lambda: callback(*args)

    def remove_signal_handler(self, sig: int) -> bool:
        """Whether there was one."""
        return self.signals.pop(sig, None) is not None

    def send_signal(self, sig: int) -> None:
        """Do what the application does at a signal. VirtualTimeError when it handles none such."""
        if sig not in self.signals:
            raise VirtualTimeError(f"signal {sig}: nothing on this event loop handles it")
        self.call_soon(self.signals[sig])

    # ---- what is refused ----

    create_server: Any = _refused("a server of your own")
    create_unix_server: Any = _refused("a server of your own")
    create_unix_connection: Any = _refused("a Unix socket")
    create_datagram_endpoint: Any = _refused("a datagram socket")
    connect_accepted_socket: Any = _refused("a socket")
    start_tls: Any = _refused("TLS")
    sendfile: Any = _refused("a socket")
    add_reader: Any = _refused("a socket to read from")
    add_writer: Any = _refused("a socket to write to")
    sock_connect: Any = _refused("a socket")
    sock_recv: Any = _refused("a socket")
    sock_sendall: Any = _refused("a socket")
    sock_accept: Any = _refused("a socket")
    subprocess_exec: Any = _refused("a subprocess")
    subprocess_shell: Any = _refused("a subprocess")
    connect_read_pipe: Any = _refused("a pipe")
    connect_write_pipe: Any = _refused("a pipe")


SIMULATED_LOOPS.add(VirtualLoop)


def _in_order(task: asyncio.Task[Any]) -> tuple[bool, str]:
    return task.get_name() != MAIN_TASK, task.get_name()


def _where(task: asyncio.Task[Any]) -> str:
    """The place at which a task waits."""
    frames = task.get_stack(limit=1)
    return f"{frames[-1].f_code.co_filename}:{frames[-1].f_lineno}" if frames else "not begun"
