"""A master and its slave as the servers of a row: how fast an empty slave catches up, and how far it lags under load.

Both processes count: where a row speaks of the broker's CPU, it is that of master and slave together. What a master
knows of its slave is asked of it (code 907), as the same question to both implementations.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from servers import BROKER_CONF, HERE, BenchError, Remote, Server

from perseid.testing.ports import free_port

HA_STATUS = 907
FOLLOW_TIMEOUT_S = 120.0
CATCH_UP_TIMEOUT_S = 300.0
POLL_S = 0.01
HA_POLL_S = 0.05
PLAIN_SEND_TIMEOUT_S = 120.0
GIB = 1 << 30
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Pair(Server):
    """A name server, a master, and a slave that may be taken away."""

    attached = True
    """The slave starts with the master."""

    def start(self) -> None:
        super().start()
        if self.attached:
            self.start_slave()
            self.await_follower()
            self.create_topics(["bench"])

    def accepts(self) -> None:
        """A SYNC_MASTER acknowledges nothing before its slave is there."""
        remote = Remote(self.ports[0])
        self.status(remote)
        remote.close()

    def start_slave(self) -> None:
        """A slave in its own folder, with whatever it holds."""
        store, port = self.slave_folder / "store", free_port((0, -2, 1))
        own = {"brokerId": 1, "brokerRole": "SLAVE", "listenPort": port, "namesrvAddr": self.namesrv_address}
        paths = {"storePathRootDir": store, "storePathCommitLog": store / "commitlog"}
        self.slave_port = port
        self._spawn("slave", {**BROKER_CONF, **self.conf, **own, **paths}, self.slave_folder)

    @property
    def slave_folder(self) -> Path:
        return self.folder / "slave"

    def remove_slave(self) -> None:
        """End the slave and remove what it holds."""
        if "slave" in self.processes:
            self._end("slave")
            del self.processes["slave"]
        shutil.rmtree(self.slave_folder, ignore_errors=True)

    def status(self, remote: Remote) -> dict[str, Any]:
        """What the master says of its slaves."""
        found: dict[str, Any] = json.loads(remote.ask(HA_STATUS, {})[1])
        return found

    def await_follower(self) -> None:
        """Return when a slave has all that the master has."""
        remote, deadline = Remote(self.ports[0]), time.monotonic() + FOLLOW_TIMEOUT_S
        while not any(one["inSync"] and one["diff"] == 0 for one in self.status(remote)["haConnectionInfo"]):
            if time.monotonic() > deadline:
                raise BenchError(f"the {self.name} slave did not follow in {FOLLOW_TIMEOUT_S:.0f} s")
            self._descendants("slave")  # says so when it has ended
            time.sleep(HA_POLL_S)
        remote.close()

    def pids(self) -> list[int]:
        return super().pids() + (self._descendants("slave") if "slave" in self.processes else [])

    def resume(self) -> None:
        """Go on; a connection that was silent for too long is made anew first."""
        super().resume()
        if self.attached and "slave" in self.processes:
            self.await_follower()


# ---- catching up ----


def cpu_s(pids: Iterable[int]) -> float:
    """utime + stime of all threads of processes."""
    found = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        found += int(fields[11]) + int(fields[12])
    return found * TICK_S


def busy_s() -> float:
    """Of all cores."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    return (sum(map(int, fields)) - int(fields[3]) - int(fields[4])) * TICK_S


def catch_up(pair: Pair, topics: Sequence[str]) -> dict[str, float]:
    """An empty slave comes and copies the log that its master has: queues and index included."""
    pair.remove_slave()
    os.sync()
    remote, began = Remote(pair.ports[0]), time.monotonic()
    held = pair.stored(topics)
    pair.start_slave()

    def acknowledged() -> tuple[int, int]:
        """How much the slave has, and how much it lacks."""
        status = pair.status(remote)
        at = [(int(one["slaveAckOffset"]), int(one["diff"])) for one in status["haConnectionInfo"]]
        return max(at, default=(0, 1))

    _until(pair, lambda: acknowledged()[0] > 0)
    first, before = time.monotonic(), _spent(pair)
    _until(pair, lambda: acknowledged()[1] == 0)
    _until(pair, lambda: _slave_stored(pair, topics) == held)
    ended, after = time.monotonic(), _spent(pair)
    size, took_s = acknowledged()[0], ended - first
    master_s, slave_s, own_s, busy_s = (b - a for a, b in zip(before, after, strict=True))
    plain_s = plain_send_s(log_file(pair), size)
    remote.close()
    return {
        "mb_s": size / took_s / 1e6,
        "master_s_gib": master_s / size * GIB,
        "slave_s_gib": slave_s / size * GIB,
        "slave_mb_cpu_s": size / slave_s / 1e6,
        "plain_s_gib": plain_s / size * GIB,
        "sending": master_s / plain_s,
        "first_byte_s": first - began,
        "other_cores": (busy_s - master_s - slave_s - own_s) / took_s,
    }


def _spent(pair: Pair) -> tuple[float, float, float, float]:
    master, slave = (cpu_s(pair._descendants(role)) for role in ("broker", "slave"))
    return master, slave, time.process_time(), busy_s()


def _slave_stored(pair: Pair, topics: Sequence[str]) -> int:
    try:
        return pair.stored(topics, [pair.slave_port])
    except BenchError:  # it has not copied the topic yet
        return -1


def _until(pair: Pair, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + CATCH_UP_TIMEOUT_S
    while not done():
        if time.monotonic() > deadline:
            raise BenchError(f"the {pair.name} slave did not catch up in {CATCH_UP_TIMEOUT_S:.0f} s")
        pair._descendants("slave")
        time.sleep(POLL_S)


def log_file(pair: Pair) -> Path:
    """The one file that the master's log has: a Java slave gets no other."""
    files = [f for f in (pair.folder / "store" / "commitlog").iterdir() if f.name.isdigit() and f.stat().st_blocks]
    if len(files) != 1:
        raise BenchError(
            f"the log of {pair.name} has {len(files)} files that are not empty: a slave gets the last one only"
        )
    return files[0]


def plain_send_s(path: Path, size: int) -> float:
    """CPU seconds that a plain sendall of the same bytes takes."""
    command = [sys.executable, str(HERE / "plain_send.py"), str(path), str(size)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PLAIN_SEND_TIMEOUT_S)
    return float(done.stdout)


# ---- lag ----


class Lag:
    """How far a slave is behind, looked at while there is load. A context."""

    def __init__(self, pair: Pair) -> None:
        self._pair, self._over = pair, threading.Event()
        self._seen: list[tuple[int, int]] = []
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Lag:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        remote = Remote(self._pair.ports[0])
        while not self._over.wait(HA_POLL_S):
            status = self._pair.status(remote)
            lags = [int(one["diff"]) for one in status["haConnectionInfo"]]
            self._seen.append((int(status["masterCommitLogMaxOffset"]), max(lags, default=0)))
        remote.close()

    def figures(self) -> dict[str, float]:
        """Median and highest lag in MB; and in seconds of what the master takes in at the same time."""
        lags = sorted(lag for _, lag in self._seen)
        if len(lags) < 2:
            raise BenchError(f"{self._pair.name}: the lag was seen {len(lags)} times")
        rate = (self._seen[-1][0] - self._seen[0][0]) / (HA_POLL_S * (len(lags) - 1))
        return {"lag_mb": lags[len(lags) // 2] / 1e6, "lag_most_mb": lags[-1] / 1e6, "lag_s": lags[-1] / rate}
