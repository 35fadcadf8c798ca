"""The processes of a driver: how it is started, heard, and killed; and the Python workers of its Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).parents[3]
UP_S, WORKER_S = 240.0, 120.0
POLL_S = 0.05
TASK_SHARE = 0.7
"""Of the workers that are killed, those that run tasks."""
DAEMON, OF_TASKS = b"pyspark.daemon", b"pyspark.worker"
"""Daemons fork workers: one those that run tasks, others those that plan, commit, and so on."""
TAIL_CHARS = 3000


class Driver:
    """A driver in a process of its own, which is started again when it was killed."""

    def __init__(self, namesrv: str, folder: Path, jobs: list[str]) -> None:
        self._command = [sys.executable, "-m", "tests.spark.kills.driver", namesrv, str(folder), ",".join(jobs)]
        self._log, self._told = folder / "driver.log", folder / "events.jsonl"
        self._changed = threading.Condition()
        self._heard: list[dict[str, Any]] = []
        self._process: subprocess.Popen[str] | None = None
        self._listener: threading.Thread | None = None
        self.events: list[dict[str, Any]] = []
        """What all of them said."""

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT,
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            )  # fmt: skip
        self._heard = []
        self._listener = threading.Thread(target=self._listen, args=(self._process, self._heard), name="driver")
        self._listener.start()

    def await_event(self, name: str, seconds: float = UP_S) -> dict[str, Any]:
        """What the driver that runs now says under this name; AssertionError when it ends, or does not say it."""
        process, heard = self._process, self._heard
        assert process is not None and self._listener is not None
        with self._changed:
            for _ in range(int(seconds / POLL_S)):
                for event in heard:
                    if event["event"] == name:
                        return event
                assert self._listener.is_alive(), f"the driver ended with {process.wait()}: {self._tail()}"
                self._changed.wait(POLL_S)
        raise AssertionError(f"the driver did not say {name!r} within {seconds:.0f} s: {self._tail()}")

    def heard(self, name: str) -> int:
        """How often the driver that runs now has said this."""
        with self._changed:
            return sum(event["event"] == name for event in self._heard)

    def kill(self) -> None:
        """SIGKILL to it and to its JVM, at once; what its workers are doing they may go on with."""
        up = self.await_event("up")
        for pid in (up["jvm"], up["pid"]):
            os.kill(pid, signal.SIGKILL)
        self._wait()

    def kill_worker(self, random: Random) -> str:
        """SIGKILL to one of its Python workers: one of tasks, or, less often, one of the others; which it was."""
        jvm = self.await_event("up")["jvm"]
        never = threading.Event()
        of_tasks = random.random() < TASK_SHARE
        for _ in range(int(WORKER_S / POLL_S)):
            found = [one for one in workers(jvm) if one.of_tasks == of_tasks]
            if found:
                victim = random.choice(found)
                try:
                    os.kill(victim.pid, signal.SIGKILL)
                except ProcessLookupError:  # it ended just now
                    continue
                return f"{victim.pid}, {'of tasks' if of_tasks else 'that plans'}"
            never.wait(POLL_S)
        raise AssertionError(f"the driver had no worker for {WORKER_S:.0f} s: {self._tail()}")

    def end(self) -> None:
        """Kill what still runs of it."""
        if self._process is not None and self._process.poll() is None:
            for event in self._heard:
                if event["event"] == "up":
                    os.kill(event["jvm"], signal.SIGKILL)
            self._process.kill()
        self._wait()

    def _wait(self) -> None:
        if self._process is not None and self._listener is not None:
            self._process.wait()
            self._listener.join()

    def _listen(self, process: subprocess.Popen[str], heard: list[dict[str, Any]]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                with self._changed, self._told.open("a") as told:
                    told.write(line)
                    heard.append(json.loads(line))
                    self.events.append(heard[-1])
                    self._changed.notify_all()

    def _tail(self) -> str:
        said = [event for event in self._heard if event["event"] == "failed"][-3:]
        return f"{said}; {self._log} ends with:\n{self._log.read_text(errors='replace')[-TAIL_CHARS:]}"


@dataclass(frozen=True, slots=True)
class Worker:
    """A Python worker of Spark."""

    pid: int
    of_tasks: bool


def workers(jvm: int) -> list[Worker]:
    """The Python workers of a Spark JVM: the children of its daemons."""
    commands: dict[int, bytes] = {}
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            commands[int(entry.name)] = (entry / "cmdline").read_bytes()
        except OSError:  # it ended meanwhile
            continue
        children.setdefault(parent, []).append(int(entry.name))
    found = []
    for daemon in children.get(jvm, []):
        if DAEMON in commands[daemon]:
            of_tasks = OF_TASKS in commands[daemon]
            found += [Worker(pid, of_tasks) for pid in sorted(children.get(daemon, [])) if commands[pid]]
    return found
