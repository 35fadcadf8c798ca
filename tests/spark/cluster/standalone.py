"""A standalone cluster on this machine: a master, and two workers that share as little with the driver as on machines
of their own. Their Python has no perseid, and each has a mount namespace, in which a folder can be another one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark
import pytest

from perseid.net.ports import free_port
from perseid.spark.java import java_home

HOST = "127.0.0.1"
WORKERS = (1, 2)
UP_S, GONE_S, OPEN_S = 120.0, 30.0, 120.0
POLL_S, OFTEN_S, LOOK_S = 0.05, 0.0005, 0.2
TAIL_CHARS = 3000
SHARED_BY_ALL = (
    "numpy", "numpy.libs", "pandas", "pyarrow", "py4j", "pyspark", "dateutil", "pytz", "tzdata", "six.py",
)  # fmt: skip
"""What executors of any cluster for Python have."""


def bare_python(folder: Path) -> Path:
    """A Python of its own with what Spark needs, and without perseid and what that depends on."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=UP_S)
    (here,) = (Path(path) for path in sys.path if (Path(path) / "pyspark").is_dir())
    (there,) = folder.glob("lib/python*/site-packages")
    for name in SHARED_BY_ALL:
        if (here / name).exists():
            (there / name).symlink_to(here / name)
    return folder / "bin" / "python"


class Standalone:
    """A master and its workers; all of it ends with the block, and nothing is left of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.python = bare_python(folder / "bare")
        self.master = f"spark://{HOST}:{free_port()}"
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.own_mounts = os.geteuid() == 0 and _may_unshare()
        self.environment = {
            "PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "JAVA_HOME": str(java_home()),
            "SPARK_HOME": pyspark.__path__[0], "SPARK_LOCAL_IP": HOST, "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(folder / "local"), "JDK_JAVA_OPTIONS": os.environ["JDK_JAVA_OPTIONS"],
        }  # fmt: skip
        """Of master and workers: nothing in it leads to perseid."""

    def __enter__(self) -> Self:
        try:
            port = self.master.rpartition(":")[2]
            self._start("master", "master.Master", "--host", HOST, "--port", port)
            self._await_said("master", "New state: ALIVE")
            for number in WORKERS:
                self._start_worker(number)
            for number in WORKERS:
                self._await_said(_name(number), "Successfully registered with master")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        for name in list(self._running):
            self._kill(name)

    # ---- workers ----

    @contextmanager
    def killed(self, number: int) -> Iterator[None]:
        """SIGKILL to a worker, to its executors and to their Python processes, of which none is left; it is started
        again afterwards."""
        self._kill(_name(number))
        try:
            yield
        finally:
            self._start_worker(number)
            self._await_said(_name(number), "Successfully registered with master")

    def processes(self, number: int, of: str = "") -> list[int]:
        """A worker's, its executors' and their Python's processes; `of`: those whose commands have this in them."""
        return [pid for pid in _session(self._running[_name(number)].pid) if of in _command(pid)]

    def signal(self, number: int, sent: signal.Signals, of: str = "") -> None:
        """A signal to all of these."""
        for pid in self.processes(number, of):
            with _if_it_lives():
                os.kill(pid, sent)

    @contextmanager
    def another_folder(self, path: Path, *numbers: int) -> Iterator[None]:
        """For a while these workers see another folder under `path`; the test is skipped where that can't be."""
        if not self.own_mounts:
            pytest.skip("another folder under a path needs root, and mount namespaces")
        for number in numbers:
            self._in_its_mounts(number, "mount", "-t", "tmpfs", "tmpfs", str(path))
        try:
            yield
        finally:
            for number in numbers:
                self._in_its_mounts(number, "umount", str(path))

    def stop_one_that_writes(self, suffix: str) -> tuple[int, int, Path]:
        """Wait until a process of a worker has a file open whose name ends so, and stop it (SIGSTOP) while it has it:
        worker, process and file."""
        look_s, known = 0.0, list[tuple[int, int]]()
        for _ in within(OPEN_S, OFTEN_S):
            if time.monotonic() > look_s:  # to look through all of /proc takes longer than a file is open
                look_s = time.monotonic() + LOOK_S
                known = [(number, pid) for number in WORKERS for pid in self.processes(number, "pyspark")]
            for number, pid in known:
                for path in opened(pid, suffix):
                    with _if_it_lives():
                        os.kill(pid, signal.SIGSTOP)
                        if path in opened(pid, suffix):
                            return number, pid, path
                        os.kill(pid, signal.SIGCONT)
        raise AssertionError(f"no worker had a file *{suffix} open for {OPEN_S:.0f} s")

    def _start_worker(self, number: int) -> None:
        """Each on a host of its own: Spark speculates on another one than the task's."""
        host = f"127.0.0.{number + 1}"
        before = ("unshare", "--mount", "--propagation", "private") if self.own_mounts else ()
        self._start(
            _name(number), "worker.Worker", "--host", host, "--cores", "1", "--memory", "1g",
            "--work-dir", str(self._folder / _name(number)), self.master, before=before, SPARK_LOCAL_IP=host,
        )  # fmt: skip

    def _in_its_mounts(self, number: int, *command: str) -> None:
        pid = self._running[_name(number)].pid
        subprocess.run(["nsenter", "--mount", "--target", str(pid), *command], check=True, timeout=GONE_S)

    # ---- processes ----

    def _start(self, name: str, what: str, *words: str, before: tuple[str, ...] = (), **more: str) -> None:
        spark_class = str(Path(pyspark.__path__[0]) / "bin" / "spark-class")
        command = [*before, spark_class, f"org.apache.spark.deploy.{what}", *words, "--webui-port", "0"]
        with self._log(name).open("wb") as log:
            self._running[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder, start_new_session=True,
                env={**self.environment, **more},
            )  # fmt: skip

    def _kill(self, name: str) -> None:
        process = self._running.pop(name)
        for _ in within(GONE_S, POLL_S):
            left = _session(process.pid)
            for pid in left:
                with _if_it_lives():
                    os.kill(pid, signal.SIGKILL)
            if process.poll() is not None and not left:
                return
        raise AssertionError(f"{name}: {[_command(pid) for pid in left]} did not end within {GONE_S:.0f} s")

    def _await_said(self, name: str, text: str) -> None:
        for _ in within(UP_S, POLL_S):
            said = self._log(name).read_text(errors="replace")
            if text in said:
                return
            assert self._running[name].poll() is None, f"{name} ended: {said[-TAIL_CHARS:]}"
        raise AssertionError(f"{name} did not say {text!r} within {UP_S:.0f} s: {said[-TAIL_CHARS:]}")

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"


def within(seconds: float, pause_s: float) -> Iterator[None]:
    """Again and again, until so long is over by the clock: what is done each time may take longer than the pause."""
    never, until_s = threading.Event(), time.monotonic() + seconds
    while time.monotonic() < until_s:
        yield
        never.wait(pause_s)


def opened(pid: int, suffix: str) -> list[Path]:
    """The files that a process has open whose names end so; none when it is gone."""
    found = []
    with _if_it_lives():
        for entry in (Path("/proc") / str(pid) / "fd").iterdir():
            with _if_it_lives():
                target = os.readlink(entry)
                if target.endswith(suffix):
                    found.append(Path(target))
    return found


def connected(pid: int, port: int) -> bool:
    """Does a process have a connection to a port of this machine?"""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inodes = {row[9] for row in rows if row[2].endswith(f":{port:04X}") and row[3] == "01"}
    return any(path.name[len("socket:[") : -1] in inodes for path in opened(pid, "]"))


def _session(leader: int) -> list[int]:
    """The processes of a session."""
    numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    return [pid for pid in numbers if _stat(pid) == leader]


def _stat(pid: int) -> int | None:
    """The session of a process; None for what is gone, or a zombie."""
    try:
        state, _, _, session, *_ = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state == "Z" else int(session)


def _command(pid: int) -> str:
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _may_unshare() -> bool:
    try:
        return subprocess.run(["unshare", "--mount", "true"], capture_output=True, timeout=GONE_S).returncode == 0
    except OSError:
        return False


@contextmanager
def _if_it_lives() -> Iterator[None]:
    """What is asked of a process that ends meanwhile."""
    try:
        yield
    except (ProcessLookupError, FileNotFoundError):
        return


def _name(number: int) -> str:
    return f"worker-{number}"
