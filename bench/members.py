"""A name server and several brokers of one name, any of which may be killed: what the rows of groups and sets share.

Who leads them is each kind's own to tell: the members of a DLedger group (trios.py), or controllers (sets.py).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from servers import BROKER_CONF, BenchError, Command, Remote, Server

from perseid.testing.ports import free_port

GROUP = str(BROKER_CONF["brokerName"])
SPAN = (0, -2, 1)
"""Beside a broker's port: its VIP port and that of its HA service."""
SETTLE_TIMEOUT_S = 90.0
SETTLE_POLL_S = 0.1


def distinct_ports(spans: Sequence[Sequence[int]], draw: Callable[[Sequence[int]], int] = free_port) -> list[int]:
    """A free port for each span, none of which is near another's."""
    ports: list[int] = []
    taken: set[int] = set()
    for span in spans:
        port = draw(span)
        while taken & {port + near for near in span}:
            port = draw(span)
        ports.append(port)
        taken |= {port + near for near in span}
    return ports


def bare_keys(body: bytes) -> object:
    """JSON as Java writes it, whose keys may be bare numbers."""
    return json.loads(re.sub(rb"([{,])\s*(-?\d+)\s*:", rb'\1"\2":', body))


class Members(Server, ABC):
    """A name server and brokers, each in its own folder, that may be killed and started again."""

    settle_timeout_s = SETTLE_TIMEOUT_S
    steady_s = 1.5
    """So long nobody else may have led before it is said who does: those who were stopped look for a leader at once."""

    def __init__(
        self,
        name: str,
        command: Command,
        environment: Mapping[str, str],
        folder: Path,
        conf: Mapping[str, object],
        members: int,
        others: int,
    ) -> None:
        """`others`: how many more ports are needed, `other_ports`."""
        super().__init__(name, command, environment, folder, conf)
        self.members = range(members)
        ports = distinct_ports([SPAN] * members + [(0,)] * (others + 1))
        self.node_ports, self.other_ports, self.namesrv_port = ports[:members], ports[members:-1], ports[-1]
        self.leader = 0

    @abstractmethod
    def node_conf(self, number: int) -> dict[str, object]:
        """A broker's configuration."""

    @abstractmethod
    def _leads(self) -> int | None:
        """Who leads, if all members agree and its broker takes a send."""

    def start_others(self) -> None:
        """What has to run before the brokers; return when it does."""

    def start(self) -> None:
        """Return when all run and one of them leads."""
        began = time.monotonic()
        self._spawn("namesrv", {"listenPort": self.namesrv_port}, self.folder)
        self._until("namesrv", lambda: Remote(self.namesrv_port).close())
        self.start_others()
        for number in self.members:
            self.start_node(number)
        for number, port in enumerate(self.node_ports):
            self._until(f"n{number}", lambda port=port: Remote(port).close())  # type: ignore[misc]
        self.settle()
        self.start_s = time.monotonic() - began

    def node_folder(self, number: int) -> Path:
        return self.folder / f"n{number}"

    def common_conf(self, number: int) -> dict[str, object]:
        """That of all rows but for id and role, which are not the broker's own to tell."""
        store = self.node_folder(number) / "store"
        common = {k: v for k, v in {**BROKER_CONF, **self.conf}.items() if k not in ("brokerId", "brokerRole")}
        return common | {
            "listenPort": self.node_ports[number],
            "namesrvAddr": self.namesrv_address,
            "storePathRootDir": store,
            "storePathCommitLog": store / "commitlog",
        }

    def start_node(self, number: int) -> None:
        """A broker with whatever its folder holds."""
        self._spawn(f"n{number}", self.node_conf(number), self.node_folder(number))

    def kill_node(self, number: int) -> None:
        """SIGKILL; return when it is gone."""
        for pid in self._descendants(f"n{number}"):
            os.kill(pid, signal.SIGKILL)
        self.processes.pop(f"n{number}").wait()

    def stop_node(self, number: int) -> None:
        """SIGSTOP: it says nothing, but its connections stay."""
        for pid in self._descendants(f"n{number}"):
            os.kill(pid, signal.SIGSTOP)

    def wipe_node(self, number: int) -> None:
        shutil.rmtree(self.node_folder(number))

    def pids(self) -> list[int]:
        """The leader's first."""
        order = sorted(self.members, key=lambda number: number != self.leader)
        return [pid for number in order for pid in self._descendants(f"n{number}")]

    def resume(self) -> None:
        """Go on; who leads may be another one than before."""
        super().resume()
        self.settle()

    def stop(self) -> None:
        """By force, and all at once: one that is asked would wait for others, and nobody needs its store."""
        for role, process in self.processes.items():
            if process.poll() is None:
                for pid in self._descendants(role):
                    os.kill(pid, signal.SIGKILL)
        for process in self.processes.values():
            process.wait()

    def settle(self) -> None:
        """Return when one leads, all follow it and it takes sends, and that has stayed so for a while."""
        deadline = time.monotonic() + self.settle_timeout_s
        seen, since = None, time.monotonic()
        while seen is None or time.monotonic() - since < self.steady_s:
            if (leader := self._leads()) != seen or leader is None:
                seen, since = leader, time.monotonic()
            if time.monotonic() > deadline:
                logs = "\n".join(f"{role}: {self._log(role)}" for role in self.processes)
                raise BenchError(f"the {self.name} brokers had no leader for {self.settle_timeout_s:.0f} s:\n{logs}")
            time.sleep(SETTLE_POLL_S)
        self.leader, self.ports = seen, [self.node_ports[seen]]
