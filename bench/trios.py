"""Brokers on DLedger as the servers of a row: who leads, how long nobody does, how fast a wiped one catches up.

All processes of a group count: where a row speaks of the broker's CPU, it is that of its three brokers together. Load
goes to the one that leads. Who that is, members tell by DLedger's METADATA; a client learns it from the name server.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from members import GROUP, Members, bare_keys
from pairs import FOLLOW_TIMEOUT_S, GIB, HA_POLL_S, busy_s, cpu_s
from servers import CORE, TUNED, UNSYNCED, BenchError, Command, Remote

METADATA, CLUSTER_INFO, RUNTIME_INFO = 50_000, 106, 28
PROBE_S = 2.0
"""So long a member may take to say whom it follows."""
ROUTE_POLL_S = 0.03
TRICKLE_S = 0.5
SEND_PAUSE_S = 0.005
SEND_TIMEOUT_S = 3.0
"""That of a Java client."""
TRY_TIMEOUT_S = 0.3
"""The same while nobody leads: the route may name one who is silent."""
NO_LEADER_TIMEOUT_S = 120.0
CATCH_UP_TIMEOUT_S = 900.0
TIMINGS: dict[str, dict[str, object]] = {
    CORE: {"syncBeforeAnswer": "true"},
    UNSYNCED: {"syncBeforeAnswer": "false"},
    TUNED: {
        "syncBeforeAnswer": "true",
        "heartBeatTimeIntervalMs": 50,
        "maxHeartBeatLeak": 3,
        "minVoteIntervalMs": 20,
        "maxVoteIntervalMs": 60,
    },
}


def timing_of(name: str) -> dict[str, object]:
    """What is added to the configuration of a group of one of SERVERS: when it answers, when it misses its leader."""
    return TIMINGS.get(name, {})


def master_in(body: bytes) -> int | None:
    """The port of the group's master in a name server's table of brokers, whose numbers may be bare keys."""
    table = bare_keys(body)
    assert isinstance(table, dict)
    address = table.get("brokerAddrTable", {}).get(GROUP, {}).get("brokerAddrs", {}).get("0")
    return int(address.rpartition(":")[2]) if address else None


class Trio(Members):
    """A name server and the brokers of a DLedger group, any of which may be killed and started again."""

    def __init__(
        self,
        name: str,
        command: Command,
        environment: Mapping[str, str],
        folder: Path,
        conf: Mapping[str, object],
        members: int = 3,
    ) -> None:
        super().__init__(name, command, environment, folder, conf, members, others=members)
        self.peer_ports = self.other_ports

    def node_conf(self, number: int) -> dict[str, object]:
        """A broker's configuration: its id and role are the group's to tell."""
        return self.common_conf(number) | {
            "enableDLegerCommitLog": "true",
            "dLegerGroup": GROUP,
            "dLegerPeers": ";".join(f"n{i}-127.0.0.1:{port}" for i, port in enumerate(self.peer_ports)),
            "dLegerSelfId": f"n{number}",
        }

    # ---- who leads ----

    def follows(self, number: int) -> str:
        """Whom a member follows, itself when it leads; empty when nobody, or when it does not say."""
        body = json.dumps({"code": 200, "group": GROUP, "remoteId": f"n{number}"}).encode()
        try:
            with Remote(self.peer_ports[number], PROBE_S) as remote:
                found = json.loads(remote.exchange(METADATA, {}, body)[1])
        except (OSError, BenchError):
            return ""
        return str(found.get("leaderId") or "")

    def _leads(self) -> int | None:
        """Whom all members follow, if its broker takes a send."""
        named = {self.follows(number) for number in self.members}
        if len(named) > 1 or "" in named:
            return None
        leader = int(named.pop().removeprefix("n"))
        try:
            with Remote(self.node_ports[leader], SEND_TIMEOUT_S) as remote:
                remote.send("bench", 0)
        except (OSError, BenchError):
            return None
        return leader

    # ---- what a member has ----

    def committed(self, number: int) -> tuple[int, int]:
        """To where a member's log is committed, and how much of that its queues lack."""
        with Remote(self.node_ports[number]) as remote:
            table = json.loads(remote.ask(RUNTIME_INFO, {})[1])["table"]
        return int(table["commitLogMaxOffset"]), int(table["dispatchBehindBytes"])

    def reached(self, number: int) -> tuple[int, int]:
        """The same of a member that has just started; -1 as long as it does not say."""
        try:
            return self.committed(number)
        except (OSError, BenchError):
            self._descendants(f"n{number}")  # says so when it has ended
            return -1, 0

    def until(self, number: int, done: Callable[[], bool], timeout_s: float, *, trickle: bool = False) -> None:
        """Return when a member is as it should be; with `trickle`, the leader gets a message twice a second meanwhile.

        Without any, a leader of Java's does not notice that one who is back lacks something.
        """
        began = sent = time.monotonic()
        while not done():
            if (now := time.monotonic()) - began > timeout_s:
                raise BenchError(f"n{number} of the {self.name} group did not follow in {timeout_s:.0f} s")
            if trickle and now - sent > TRICKLE_S:
                sent = now
                first_answer(self)
            time.sleep(HA_POLL_S)


# ---- without a leader ----


def without_leader(trio: Trio, phase_s: float, *, silent: bool) -> dict[str, float]:
    """Kill the leader after `phase_s` of sends: how long none is acknowledged, and until it follows once it is back.

    `silent`: it is stopped instead, so that its connections stay, and killed later.
    """
    trio.settle()
    victim = trio.leader
    with Remote(trio.ports[0]) as remote:
        stop = time.monotonic() + phase_s
        while time.monotonic() < stop:
            remote.send("bench", 0)
            time.sleep(SEND_PAUSE_S)
    began = time.monotonic()
    trio.stop_node(victim) if silent else trio.kill_node(victim)
    answered, master = first_answer(trio)
    if silent:
        trio.kill_node(victim)
    mark = trio.committed(trio.node_ports.index(master))[0]
    back = time.monotonic()
    trio.start_node(victim)
    trio.until(victim, lambda: trio.reached(victim)[0] >= mark, FOLLOW_TIMEOUT_S, trickle=True)
    return {"gap_s": answered - began, "follows_s": time.monotonic() - back}


def first_answer(trio: Trio) -> tuple[float, int]:
    """When a message is acknowledged, and at which port: each is sent to whoever the route names as master by then."""
    deadline = time.monotonic() + NO_LEADER_TIMEOUT_S
    with Remote(trio.namesrv_port) as route:
        while (now := time.monotonic()) < deadline:
            try:
                if (port := master_in(route.ask(CLUSTER_INFO, {})[1])) is not None:
                    with Remote(port, TRY_TIMEOUT_S) as remote:
                        remote.send("bench", 0)
                        return time.monotonic(), port
            except (OSError, BenchError):
                pass
            time.sleep(max(0.0, ROUTE_POLL_S - (time.monotonic() - now)))
    raise BenchError(f"nobody of the {trio.name} group led within {NO_LEADER_TIMEOUT_S:.0f} s")


# ---- catching up ----


def refill(trio: Trio, topics: Sequence[str]) -> dict[str, float]:
    """A follower whose folder was wiped gets all that the leader has, queues and index included."""
    leader, follower = trio.leader, (trio.leader + 1) % len(trio.members)
    held = trio.stored(topics)
    trio.kill_node(follower)
    trio.wipe_node(follower)
    os.sync()
    began = time.monotonic()
    trio.start_node(follower)
    trio.until(follower, lambda: trio.reached(follower)[0] > 0, CATCH_UP_TIMEOUT_S, trickle=True)
    first, before = time.monotonic(), _spent(trio, leader, follower)
    size = trio.committed(leader)[0]
    trio.until(follower, lambda: trio.reached(follower) == (size, 0), CATCH_UP_TIMEOUT_S)
    ended, after = time.monotonic(), _spent(trio, leader, follower)
    trio.until(follower, lambda: _stored(trio, topics, follower) == held, FOLLOW_TIMEOUT_S)  # a topic may come later
    leader_s, follower_s, rest_s, others_s = (b - a for a, b in zip(before, after, strict=True))
    took_s = ended - first
    return {
        "took_s": ended - began,
        "first_byte_s": first - began,
        "mb_s": size / took_s / 1e6,
        "master_s_gib": leader_s / size * GIB,
        "slave_s_gib": follower_s / size * GIB,
        "slave_mb_cpu_s": size / follower_s / 1e6,
        "other_cores": (others_s - leader_s - follower_s - rest_s) / took_s,
    }


def _spent(trio: Trio, leader: int, follower: int) -> tuple[float, float, float, float]:
    """CPU of the two, of the others of the group and of this process, and of all cores."""
    cpu = {number: cpu_s(trio._descendants(f"n{number}")) for number in trio.members}
    rest_s = sum(cpu.values()) - cpu[leader] - cpu[follower] + time.process_time()
    return cpu[leader], cpu[follower], rest_s, busy_s()


def _stored(trio: Trio, topics: Sequence[str], number: int) -> int:
    try:
        return trio.stored(topics, [trio.node_ports[number]])
    except BenchError:
        return -1
