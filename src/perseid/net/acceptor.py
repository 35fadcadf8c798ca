"""Accepts the connections of one listening socket, as long as there is room for them.

States: new → (start) accepting ⇄ paused → (close) closed. Without room it pauses: whoever dials waits in the kernel's
queue, those who are connected go on being served. It goes on when connections have closed; the driver tells it. A
pause is said once, and so is its end, when nobody waits any more.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import select
import socket
from collections.abc import Callable

from perseid.net.limits import Limits

ACCEPTS_A_TURN = 64
"""Connections of one listener that one turn of the event loop takes."""
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def descriptors_left(limits: Limits, probe: int) -> str:
    """Why no more descriptors may be taken for peers, or nothing. The kernel gives the lowest number that is free, so a
    copy of `probe` has a number that is at most how many are in use."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if most == resource.RLIM_INFINITY:
        return ""
    try:
        number = os.dup(probe)
    except OSError as error:
        return f"no file descriptor is free ({error.strerror})"
    os.close(number)
    reserve = min(limits.reserved_files, most // limits.reserved_share)
    if number < most - reserve:
        return ""
    return f"{number} of {most} file descriptors are in use, and {reserve} are kept for files; raise `ulimit -n`"


class Acceptor:
    """One listening socket. `full` says why there is no room for another connection, or nothing."""

    def __init__(
        self,
        sock: socket.socket,
        limits: Limits,
        full: Callable[[], str],
        make: Callable[[], asyncio.Protocol],
        log: logging.Logger,
    ) -> None:
        self._sock = sock
        self._limits = limits
        self._full = full
        self._make = make
        self._log = log
        host, port = sock.getsockname()[:2]
        self._name = f"{host}:{port}"
        self._accepting: set[asyncio.Task[object]] = set()
        self._started = False
        self._reading = False
        self._said = False

    @property
    def pending(self) -> int:
        """Connections that were accepted, and of which the driver has not heard yet."""
        return len(self._accepting)

    def start(self) -> None:
        """Listen and accept."""
        self._loop = asyncio.get_running_loop()
        self._sock.setblocking(False)
        self._sock.listen(self._limits.backlog)
        self._started = True
        self._read()

    def resume(self) -> None:
        """There may be room again: after a pause, look."""
        if self._said and self._started and not self._full():
            if not self._somebody_waits():
                self._said = False
                self._log.info("%s: connections are accepted again", self._name)
            if not self._reading:
                self._read()

    def close(self) -> None:
        """Accept no more; those that wait in the kernel's queue are reset."""
        self._pause()
        self._started = False
        self._sock.close()
        for task in self._accepting:
            task.cancel()

    def _read(self) -> None:
        self._reading = True
        self._loop.add_reader(self._sock, self._ready)

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._sock)

    def _ready(self) -> None:
        """Somebody waits."""
        for _ in range(ACCEPTS_A_TURN):
            why = self._full()
            if why:
                if self._somebody_waits():
                    self._wait(why)
                return
            try:
                sock, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                self._wait(str(error))
                return
            sock.setblocking(False)
            task: asyncio.Task[object] = self._loop.create_task(self._open(sock))
            self._accepting.add(task)
            task.add_done_callback(self._accepting.discard)

    def _somebody_waits(self) -> bool:
        waiting = select.poll()
        waiting.register(self._sock, select.POLLIN)
        return bool(waiting.poll(0))

    def _wait(self, why: str) -> None:
        self._pause()
        if not self._said:
            self._said = True
            self._log.warning("%s: no more connections are accepted until some close: %s", self._name, why)

    async def _open(self, sock: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make, sock)
        except OSError as error:
            self._log.info("%s: a connection ended before it began: %s", self._name, error)
            sock.close()
        except asyncio.CancelledError:
            sock.close()
            raise
