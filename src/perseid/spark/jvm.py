"""Spark's JVM as a child of this process: what it says is kept, its death is noticed, and its end is waited for.

pyspark alone lets the JVM and its Python workers write to this process's stdout and stderr, waits for the JVM's answers
without a deadline, and ends without looking whether they are gone. `session(jvm=Jvm())` does otherwise. Where the JVM
is not ours (spark-submit started it, a Connect server has it, this process has a session already) nothing is done.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any

SIGNALS: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a job."""
HEAD_BYTES = 1 << 20
TAIL_BYTES = 4 << 20
"""How much of the output is kept: so much of its beginning, and so much of its end."""
READ_BYTES = 1 << 16
GRACE_S = 3
"""So long after the JVM's death the job may find out by itself, from a connection that breaks."""
END_DEADLINE_S = 15
"""Its shutdown hooks stop Spark and remove its temporary folders; then it is killed."""
WORKERS_DEADLINE_S = 3
"""So long after it its Python workers may live; then they are killed."""


class Said:
    """The output of Spark's processes: in memory, its beginning and its end; or all of it in a file."""

    def __init__(self, to: IO[bytes] | None = None) -> None:
        self._to = to
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = self._dropped = 0
        self._lock = threading.Lock()

    def add(self, data: bytes) -> None:
        """It said this. A file that can't be written loses it: the job is more than its log."""
        with self._lock:
            if self._to is not None:
                with suppress(OSError):
                    self._to.write(data)
                return
            room = HEAD_BYTES - len(self._head)
            self._head += data[:room]
            if data[room:]:
                self._tail.append(data[room:])
                self._tail_bytes += len(data[room:])
            while self._tail_bytes > TAIL_BYTES:
                gone = len(self._tail.popleft())
                self._tail_bytes -= gone
                self._dropped += gone

    def write(self, text: str) -> int:
        """The same, as `sys.stderr` has it."""
        self.add(text.encode("utf-8", "backslashreplace"))
        return len(text)

    def flush(self) -> None:
        """Nothing waits to be written."""

    def text(self) -> str:
        """The output that was kept."""
        with self._lock:
            gap = f"\n… {self._dropped} bytes are left out …\n".encode() if self._dropped else b""
            return (bytes(self._head) + gap + b"".join(self._tail)).decode("utf-8", "replace")


class Jvm:
    """A JVM of our own. `on_death` is called, in a thread, GRACE_S after it died before its `end`."""

    def __init__(self, said: Said, on_death: Callable[[], None]) -> None:
        self.said = said
        self._on_death = on_death
        self._process: subprocess.Popen[bytes] | None = None
        self._pump: threading.Thread | None = None
        self._pipe = 0
        self._ending = threading.Event()

    def start(self, settings: Mapping[str, str]) -> None:
        """Start it, for the session with these settings that is made next."""
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway

        if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
            return
        conf = SparkConf().setAll(list(settings.items()))
        end, begin = os.pipe()
        self._pipe = os.fstat(end).st_ino
        self._pump = threading.Thread(target=self._read, args=(end,), name="spark's log", daemon=True)
        self._pump.start()
        try:
            with signals_held():  # else nobody knows of a JVM that is just being started
                gateway = launch_gateway(conf, {"stdout": begin, "stderr": begin})
                self._process = gateway.proc
        finally:
            os.close(begin)
        threading.Thread(target=self._watch, name="spark's jvm", daemon=True).start()
        SparkContext._ensure_initialized(gateway=gateway, conf=conf)

    @property
    def is_ours(self) -> bool:
        """Whether it was started here."""
        return self._process is not None

    def death(self, wait_s: float = 0) -> str | None:
        """How it died before its end, if it did, or does within `wait_s`."""
        if self._process is None or self._ending.is_set():
            return None
        try:
            code = self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            return None
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"status {code}"

    def kill(self) -> None:
        """End it at once: its temporary folders stay."""
        if self._process is not None:
            self._process.kill()

    def end(self) -> None:
        """End it; it and its workers are gone when this returns."""
        if self._process is None or self._pump is None:
            return
        from pyspark import SparkContext

        self._ending.set()
        with suppress(OSError):  # it is dead
            if self._process.stdin is not None:
                self._process.stdin.close()  # which it takes for its end
        try:
            self._process.wait(END_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._pump.join(WORKERS_DEADLINE_S)
        if self._pump.is_alive():
            for pid in _holders(self._pipe):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._pump.join(WORKERS_DEADLINE_S)
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        self._process = None

    # ---- inside ----

    def _read(self, end: int) -> None:
        """Keep what it says, until it and all of its workers are gone. It never waits for us, whatever happens."""
        with os.fdopen(end, "rb", buffering=0) as pipe:
            while data := pipe.read(READ_BYTES):
                self.said.add(data)

    def _watch(self) -> None:
        process = self._process
        assert process is not None
        process.wait()
        if not self._ending.wait(GRACE_S):
            self._on_death()


@contextmanager
def signals_held() -> Iterator[None]:
    """A first one of SIGNALS is handled afterwards; a second one at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before: dict[int, Any] = {}

    def hold(number: int, frame: FrameType | None) -> None:
        if came:
            signal.default_int_handler(number, frame)
        came.append(number)

    for number in SIGNALS:
        if callable(signal.getsignal(number)):
            before[number] = signal.signal(number, hold)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


def _holders(pipe: int) -> list[int]:
    """Other processes that can still write to a pipe of ours, where the system tells (Linux)."""
    found = []
    for links in Path("/proc").glob("[0-9]*/fd"):
        pid = int(links.parent.name)
        if pid == os.getpid():
            continue
        with suppress(OSError):  # it is gone, or another user's
            if any(os.stat(links / name).st_ino == pipe for name in ("1", "2") if (links / name).exists()):
                found.append(pid)
    return found
