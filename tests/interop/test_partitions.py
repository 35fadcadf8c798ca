"""The master of a broker set under controllers, cut off on real sockets: from the controllers, its slaves, the clients;
both ways, and each way by itself. Network namespaces around a router that loses what it is told to lose.

`perseid verify run` sends all the while. Nothing that it had acknowledged is lost, has moved or was reordered, and no
two brokers acknowledged in one epoch. Who is cut off from controllers or slaves is gone around within the test's
deadlines; who is cut off from clients alone stays master, and nothing is acknowledged meanwhile.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from netns import PERSEID, Processes, Star, processes_in
from perseid.verify import Ledger
from perseid.wire.ids import parse_offset_message_id

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1800, func_only=True)]

BROKERS = ("b1", "b2", "b3")
DEADLINE_S = 180.0
"""Of each step: the machine may be busy with other things."""
HOLD_S = 4.0
"""How long clients stay cut off: nobody else can tell when it has been long enough."""
MORE = 40
"""Acknowledgements that show that it goes on."""
POLL_S = 0.1
ASKED = 20
"""Times, each of which waits for an active controller for as long as the client does."""
QUICK = {
    "brokerHeartbeatInterval": 300, "controllerHeartBeatTimeoutMills": 2000, "syncControllerMetadataPeriod": 1000,
    "syncBrokerMetadataPeriod": 500, "checkSyncStateSetPeriod": 500, "haMaxTimeSlaveNotCatchup": 2000,
    "haHousekeepingInterval": 2000, "haSendHeartbeatInterval": 300, "slaveTimeout": 1000,
    "sendHeartbeatTimeoutMillis": 500, "registerNameServerPeriod": 10000, "allAckInSyncStateSet": "true",
}  # fmt: skip
ASK = """
import asyncio, json, sys
from dataclasses import asdict
from perseid.client import ClientError
from perseid.client.controller import ControllerClient

async def main() -> None:
    async with ControllerClient(sys.argv[1]) as client:
        while await asyncio.to_thread(sys.stdin.readline):
            try:
                told = [asdict(one) for one in await client.replica_sets(["a"])]
            except ClientError as error:
                told = [{"error": str(error)}]
            print(json.dumps(told), flush=True)

asyncio.run(main())
"""


class Cluster:
    """Controllers in one namespace, each broker in its own, name server and clients in a last one."""

    def __init__(self, star: Star, processes: Processes, home: Path) -> None:
        self.star, self.processes, self.home = star, processes, home
        self.namesrv = f"{star.address['x']}:9876"
        ports = (9878, 9868, 9858)
        self.controllers = ";".join(f"{star.address['c']}:{port}" for port in ports)
        self._names = star.names
        processes.server(star.names["x"], "namesrv", "namesrv", listenPort=9876, kvConfigPath=home / "kv.json",
                         configStorePath=home / "ns.properties")  # fmt: skip
        peers = ";".join(f"n{number}-{star.address['c']}:{port}" for number, port in enumerate(ports))
        for number in range(len(ports)):
            processes.server(
                star.names["c"], "controller", f"n{number}", controllerDLegerGroup="g", controllerDLegerPeers=peers,
                controllerDLegerSelfId=f"n{number}", controllerStorePath=home / f"n{number}", mappedFileSize=1 << 20,
                configStorePath=home / f"n{number}.properties",
            )  # fmt: skip
        for name in BROKERS:
            processes.server(
                star.names[name], "broker", name, brokerName="a", brokerIP1=star.address[name], listenPort=10911,
                namesrvAddr=self.namesrv, storePathRootDir=home / name, enableControllerMode="true",
                controllerAddr=self.controllers, **QUICK,
            )  # fmt: skip
        self._asking = processes.start(
            star.names["x"], sys.executable, "-c", ASK, self.controllers, stdin=subprocess.PIPE
        )

    def seen(self) -> dict[str, Any]:
        """The broker set as the controllers see it; asked until one of them is active, and knows it."""
        for _ in range(ASKED):
            if told := self._ask():
                return told
        raise AssertionError(f"no controller knows the broker set: {self.processes.logs()}")

    def _ask(self) -> dict[str, Any]:
        assert self._asking.stdin is not None and self._asking.stdout is not None
        self._asking.stdin.write("\n")
        self._asking.stdin.flush()
        told = json.loads(self._asking.stdout.readline())
        return told[0] if told and "error" not in told[0] else {}

    def master(self) -> str:
        """The name of the namespace of the master."""
        host = self.seen()["master_address"].partition(":")[0]
        return next(name for name in BROKERS if self.star.address[name] == host)

    def all_in_sync(self) -> bool:
        told = self.seen()
        return sum(r["in_sync"] and r["alive"] for r in told["replicas"]) == len(BROKERS)

    def perseid(self, *args: str) -> Any:
        """What a command prints as JSON, run where the clients are."""
        process = self.processes.start(self._names["x"], *PERSEID, *args, "--json", "-n", self.namesrv)
        out, _ = process.communicate(timeout=DEADLINE_S)
        return json.loads(out)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as undo:
        star = Star(("c", "x", *BROKERS), undo)
        processes = undo.enter_context(processes_in(tmp_path))
        yield Cluster(star, processes, tmp_path)


def until(what: str, condition: Callable[[], bool], cluster: Cluster) -> None:
    """Wait for a condition; the test fails when it does not come."""
    pause = threading.Event()
    for _ in range(int(DEADLINE_S / POLL_S)):
        if condition():
            return
        pause.wait(POLL_S)
    raise AssertionError(f"{what}: not within {DEADLINE_S} s; {cluster.processes.logs()}")


def cut(star: Star, master: str, others: tuple[str, ...], way: str) -> None:
    """`out`: what the master sends them is lost; `in`: what they send it; `both`."""
    for other in others:
        if way in ("out", "both"):
            star.lose(master, other)
        if way in ("in", "both"):
            star.lose(other, master)


@pytest.mark.long
def test_no_partition_of_the_master_loses_what_was_acknowledged(cluster: Cluster, tmp_path: Path) -> None:
    until("all replicas in sync", cluster.all_in_sync, cluster)
    path = tmp_path / "ledger"
    sender = cluster.processes.start(
        cluster.star.names["x"], *PERSEID, "verify", "run", "orders", "--rate", "100", "--seconds", "0", "--json",
        "--ledger", str(path), "--queues", "4", "--settle", "120", "-n", cluster.namesrv,
    )  # fmt: skip

    def lines() -> int:
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def more() -> None:
        wanted = lines() + MORE
        until("acknowledgements", lambda: lines() >= wanted, cluster)

    more()
    for whom in ("controllers", "slaves", "clients"):
        for way in ("both", "out", "in"):
            before, master = cluster.seen(), cluster.master()
            slaves = tuple(name for name in BROKERS if name != master)
            cut(cluster.star, master, {"controllers": ("c",), "slaves": slaves, "clients": ("x",)}[whom], way)
            if whom == "controllers":
                until("another master", lambda: cluster.seen()["master_epoch"] > before["master_epoch"], cluster)  # noqa: B023
                more()
            elif whom == "slaves":
                until("slaves are not in sync", lambda: not cluster.all_in_sync(), cluster)
                more()
            else:
                threading.Event().wait(HOLD_S)
                assert cluster.seen()["master_epoch"] == before["master_epoch"], "clients elect nobody"
            cluster.star.heal()
            until(f"all in sync again, {whom} {way}", cluster.all_in_sync, cluster)
            more()
    sender.send_signal(signal.SIGINT)
    out, _ = sender.communicate(timeout=DEADLINE_S)
    told = json.loads(out)
    assert told["kept"], (told["named"], cluster.processes.logs())
    assert told["acknowledged"] == len(Ledger.load(path).entries) > 9 * MORE
    masters = one_master_an_epoch(cluster, Ledger.load(path))
    print(f"{told['acknowledged']} acknowledged, {told['doubled']} doubled, masters by epoch: {masters}")
    for outage in told["outages"]:
        print(f"{outage['lengthMs']:9.1f} ms, epoch {outage['oldEpoch']} to {outage['newEpoch']}")


def one_master_an_epoch(cluster: Cluster, ledger: Ledger) -> dict[int, set[str]]:
    """Who acknowledged stands in the message's id with its place in the log, which says in which epoch."""
    logs = cluster.perseid("admin", "broker-epoch")
    (epochs,) = [log["epochs"] for log in logs if log["broker_id"] == 0]
    assert len(epochs) > 3, "each cut from the controllers has begun an epoch"
    masters: dict[int, set[str]] = defaultdict(set)
    for entry in ledger.entries:
        host, position = parse_offset_message_id(entry.message_id)
        epoch = max(number for number, begin in epochs if begin <= position)
        masters[epoch].add(str(host))
    assert {len(hosts) for hosts in masters.values()} == {1}, masters
    return dict(masters)
