"""A broker set under three controllers as the servers of a row, and what a client sees when its master dies.

Load goes to the master. Who that is, and who is in sync with it, the leading controller tells (1006); a client learns
the master from the name server.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from members import GROUP, Members, bare_keys
from retrying import RetryingClient, Verdict
from servers import JAVA, START_TIMEOUT_S, BenchError, Command, Remote

CONTROLLER_METADATA, SYNC_STATE_DATA, TOPIC_CONFIGS = 1005, 1006, 21
CONTROLLERS = 3
PROBE_S = 2.0
SEND_TIMEOUT_S = 3.0
LOOK_S = 0.01
"""Between two looks at who is in sync."""
SYNC_TIMEOUT_S = 120.0
"""Java's killed brokers took up to 110 s to be in sync again, or never were."""
STUCK_S = 10.0
"""A Java replica that is out of sync for so long is started anew: the one that was not killed often never comes back,
for when the old master hangs it stays with it."""
NO_MASTER_TIMEOUT_S = 120.0
"""Longer is not waited for an acknowledgement; Java has had none within 90 s."""
TOPIC = "bench-switch"
CONTROLLER_FILE_BYTES = 16 << 20
ESTABLISHED = "01"


@dataclass(frozen=True)
class Timing:
    """Settings of the brokers and of the controllers."""

    broker: Mapping[str, object]
    controller: Mapping[str, object]
    timeout_s: float
    """A broker that says nothing for so long counts as gone."""


DEFAULT = Timing({}, {}, 10.0)
TUNED = Timing(
    {"brokerHeartbeatInterval": 500, "controllerHeartBeatTimeoutMills": 3000},
    {"scanNotActiveBrokerInterval": 1000},
    3.0,
)


@dataclass(frozen=True)
class Replicas:
    """What the leading controller says of the set; brokers by their ports."""

    master: int | None
    epoch: int
    in_sync: frozenset[int]
    """Those of the SyncStateSet that it takes for alive."""


def replicas_in(body: bytes) -> Replicas:
    """The set in an answer to 1006."""
    table = bare_keys(body)
    assert isinstance(table, dict)
    found = table["replicasInfoTable"].get(GROUP, {})
    address = found.get("masterAddress") or ""
    alive = [one["brokerAddress"] for one in found.get("inSyncReplicas", []) if one["alive"]]
    port = address.rpartition(":")[2]
    epoch = int(found.get("masterEpoch") or 0)
    return Replicas(int(port) if port else None, epoch, frozenset(int(one.rpartition(":")[2]) for one in alive))


class BrokerSet(Members):
    """A name server, three controllers, and the brokers of a set, any of which may be killed and started again."""

    settle_timeout_s = SYNC_TIMEOUT_S
    steady_s = 0.3  # who leads the controllers say, not the brokers

    def __init__(
        self,
        name: str,
        command: Command,
        environment: Mapping[str, str],
        folder: Path,
        conf: Mapping[str, object],
        brokers: int,
        timing: Timing = DEFAULT,
    ) -> None:
        super().__init__(name, command, environment, folder, conf, brokers, others=CONTROLLERS)
        self.timing, self.controller_ports = timing, self.other_ports
        self._controller: int | None = None
        self.started_anew = 0
        """Java replicas that did not come back in sync by themselves."""

    def controller_conf(self, number: int) -> dict[str, object]:
        """A controller's configuration: it answers where its peers reach it."""
        peers = enumerate(self.controller_ports)
        return {
            "listenPort": self.controller_ports[number],
            "controllerType": "DLedger",
            "controllerDLegerGroup": "bench-controllers",
            "controllerDLegerPeers": ";".join(f"n{i}-127.0.0.1:{port}" for i, port in peers),
            "controllerDLegerSelfId": f"n{number}",
            "controllerStorePath": self.folder / f"c{number}" / "store",
            "mappedFileSize": CONTROLLER_FILE_BYTES,
            **self.timing.controller,
        }

    def node_conf(self, number: int) -> dict[str, object]:
        """A broker's configuration: its id and role are the controllers' to tell."""
        return self.common_conf(number) | {
            "brokerId": -1,
            "brokerRole": "SLAVE",
            "brokerIP2": "127.0.0.1",
            "haListenPort": self.node_ports[number] + 1,
            "enableControllerMode": "true",
            "controllerAddr": ";".join(f"127.0.0.1:{port}" for port in self.controller_ports),
            "totalReplicas": len(self.members),
            "inSyncReplicas": len(self.members),
            "allAckInSyncStateSet": "true",
            **self.timing.broker,
        }

    def start_others(self) -> None:
        """Return when one of the controllers leads."""
        for number in range(CONTROLLERS):
            self._spawn(f"c{number}", self.controller_conf(number), self.folder / f"c{number}", "controller")
        deadline = time.monotonic() + START_TIMEOUT_S
        while self.leading() is None:
            for number in range(CONTROLLERS):
                self._descendants(f"c{number}")  # says so when it has ended
            if time.monotonic() > deadline:
                logs = "\n".join(self._log(f"c{number}") for number in range(CONTROLLERS))
                raise BenchError(f"none of the {self.name} controllers led within {START_TIMEOUT_S:.0f} s:\n{logs}")
            time.sleep(LOOK_S)

    def leading(self) -> int | None:
        """The port of the controller that says it leads."""
        for port in self.controller_ports:
            try:
                with Remote(port, PROBE_S) as remote:
                    if remote.call(CONTROLLER_METADATA, {}).get("isLeader") == "true":
                        return port
            except (OSError, BenchError):
                continue
        return None

    def replicas(self) -> Replicas | None:
        """None when no controller leads."""
        for port in (self._controller, self.leading()):
            if port is None:
                continue
            try:
                with Remote(port, PROBE_S) as remote:
                    found = replicas_in(remote.ask(SYNC_STATE_DATA, {}, json.dumps([GROUP]).encode())[1])
            except (OSError, BenchError):
                continue
            self._controller = port
            return found
        return None

    def _leads(self) -> int | None:
        """The master with whom all are in sync, if it takes a send and all have the topic."""
        found = self.replicas()
        if found is None or found.master not in self.node_ports or found.in_sync != {*self.node_ports}:
            return None
        try:
            with Remote(found.master, SEND_TIMEOUT_S) as remote:
                remote.send(TOPIC, 0)
            for port in self.node_ports:
                with Remote(port, PROBE_S) as remote:
                    if f'"{TOPIC}"'.encode() not in remote.ask(TOPIC_CONFIGS, {})[1]:
                        return None
        except (OSError, BenchError):
            return None
        return self.node_ports.index(found.master)

    def settle(self) -> None:
        """As of all members; with Java's help, see STUCK_S."""
        deadline = time.monotonic() + STUCK_S
        while self.name == JAVA and self.start_s and self._leads() is None:
            if time.monotonic() > deadline:
                self._start_stuck_ones()
                break
            time.sleep(LOOK_S)
        super().settle()

    def _start_stuck_ones(self) -> None:
        found = self.replicas()
        for number, port in enumerate(self.node_ports):
            if found is not None and port != found.master and port not in found.in_sync:
                self.kill_node(number)
                self.start_node(number)
                self.started_anew += 1

    def until(self, number: int, what: str, done: Callable[[], bool], timeout_s: float) -> float:
        """When (monotonic) it was so; BenchError after `timeout_s`, or when that broker has ended."""
        deadline = time.monotonic() + timeout_s
        while not done():
            self._descendants(f"n{number}")
            if time.monotonic() > deadline:
                raise BenchError(
                    f"n{number} of the {self.name} set did not {what} in {timeout_s:.0f} s: {self.replicas()}\n"
                    f"{self._log(f'n{number}')}"
                )
            time.sleep(LOOK_S)
        return time.monotonic()

    def in_sync(self, number: int) -> bool:
        found = self.replicas()
        return found is not None and self.node_ports[number] in found.in_sync


def connected(pids: Iterable[int], ports: Iterable[int]) -> bool:
    """Whether one of these processes has a connection to one of these ports of this machine."""
    own = set()
    for pid in pids:
        with contextlib.suppress(FileNotFoundError):  # the process has ended
            for fd in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(FileNotFoundError):  # it was closed
                    own.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    wanted = {f"{port:04X}" for port in ports}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == ESTABLISHED and fields[2].rpartition(":")[2] in wanted and f"socket:[{fields[9]}]" in own:
                return True
    return False


def without_master(one: BrokerSet, client: RetryingClient, phase_s: float, *, silent: bool) -> dict[str, float]:
    """Kill the master after `phase_s` of sends: how long none is acknowledged, and until it is in sync once it is back.

    `silent`: it is stopped instead, so that its connections stay, and killed later.
    """
    one.settle()
    victim, port = one.leader, one.ports[0]
    time.sleep(phase_s)
    began = time.monotonic()
    one.stop_node(victim) if silent else one.kill_node(victim)
    acked = client.acked_elsewhere(port, NO_MASTER_TIMEOUT_S)
    if silent:
        one.kill_node(victim)
    named = next((at for at, other in client.routes if at > began and other != port), began + NO_MASTER_TIMEOUT_S)
    back = time.monotonic()
    one.start_node(victim)
    ports = one.controller_ports
    first = one.until(victim, "connect", lambda: connected(one._descendants(f"n{victim}"), ports), SYNC_TIMEOUT_S)
    synced = one.until(victim, "come back in sync", lambda: one.in_sync(victim), SYNC_TIMEOUT_S)
    gap_s = acked.at_s - began if acked else NO_MASTER_TIMEOUT_S
    return {
        "gap_s": gap_s,
        "named_s": named - began,
        "beyond_s": gap_s - one.timing.timeout_s,
        "back_s": synced - back,
        "joined_s": synced - first,
    }


def loss(one: BrokerSet, client: RetryingClient) -> Verdict:
    """What became of all that was acknowledged, as the set's last master has it."""
    one.settle()
    return client.verdict(one.ports[0])
