"""Broker sets under controllers in `make bench`: their configuration, the retrying client, and the loss check."""

import io
import json
import os
import socket
import socketserver
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import retrying
import sets
from retrying import Acked, RetryingClient, judge, master_of
from servers import CORE, JAVA, BenchError, perseid_command
from sets import DEFAULT, TUNED, BrokerSet, Replicas, Timing, connected, replicas_in
from stock import PRODUCERS, StockProducers

WAIT_S = 120.0
"""Far above what a machine needs that has forty other processes to run: a stall of 30 s has happened."""


def broker_set(tmp_path: Path, timing: Timing = DEFAULT) -> BrokerSet:
    return BrokerSet(CORE, perseid_command, {}, tmp_path, {"flushDiskType": "ASYNC_FLUSH"}, 3, timing)


def test_brokers_and_controllers_differ_in_what_is_their_own_only(tmp_path: Path) -> None:
    one = broker_set(tmp_path, TUNED)
    brokers = [one.node_conf(number) for number in one.members]
    own = {"listenPort", "haListenPort", "storePathRootDir", "storePathCommitLog"}
    shared = [{k: v for k, v in conf.items() if k not in own} for conf in brokers]
    assert shared[0] == shared[1] == shared[2]
    assert all(len({str(conf[key]) for conf in brokers}) == 3 for key in own)
    assert shared[0]["allAckInSyncStateSet"] == "true" and shared[0]["brokerId"] == -1
    assert shared[0]["controllerHeartBeatTimeoutMills"] == 1000 * TUNED.timeout_s
    controllers = [one.controller_conf(number) for number in range(3)]
    peers = str(controllers[0]["controllerDLegerPeers"]).split(";")
    for conf in controllers:
        assert f"{conf['controllerDLegerSelfId']}-127.0.0.1:{conf['listenPort']}" in peers
        assert f"127.0.0.1:{conf['listenPort']}" in str(shared[0]["controllerAddr"])
    assert len({*one.node_ports, *one.controller_ports, one.namesrv_port}) == 7


def test_default_settings_are_those_of_the_programs(tmp_path: Path) -> None:
    one = broker_set(tmp_path)
    assert not TUNED.broker.keys() & one.node_conf(0).keys()
    assert not TUNED.controller.keys() & one.controller_conf(0).keys()


def in_sync(port: int, alive: bool = True) -> dict[str, object]:
    return {"brokerAddress": f"127.0.0.1:{port}", "brokerId": 1, "brokerName": "broker-a", "alive": alive}


def test_who_is_in_sync_and_alive_in_a_controllers_answer() -> None:
    row = {"masterAddress": "127.0.0.1:11000", "masterEpoch": 3, "inSyncReplicas": [in_sync(11000), in_sync(12000)]}
    body = json.dumps({"replicasInfoTable": {"broker-a": row}}).encode()
    assert replicas_in(body) == Replicas(11000, 3, frozenset({11000, 12000}))
    dead = row | {"inSyncReplicas": [in_sync(11000, alive=False), in_sync(12000)]}
    assert replicas_in(json.dumps({"replicasInfoTable": {"broker-a": dead}}).encode()).in_sync == {12000}
    without = {"masterEpoch": 4, "inSyncReplicas": []}
    assert replicas_in(json.dumps({"replicasInfoTable": {"broker-a": without}}).encode()) == Replicas(
        None, 4, frozenset()
    )
    assert replicas_in(b'{"replicasInfoTable":{}}') == Replicas(None, 0, frozenset())


@pytest.mark.parametrize(
    ("addresses", "port"),
    [
        (b'{0:"127.0.0.1:11000",2:"127.0.0.1:12000"}', 11000),
        (b'{"2":"127.0.0.1:12000", "0" : "127.0.0.1:11000"}', 11000),
        (b'{2:"127.0.0.1:12000"}', None),
        (b'{10:"127.0.0.1:12000","20":"127.0.0.1:13000"}', None),
        (b"{}", None),
    ],
)
def test_the_master_in_a_route_of_either_kind(addresses: bytes, port: int | None) -> None:
    assert (
        master_of(b'{"brokerDatas":[{"brokerAddrs":%s,"brokerName":"broker-a"}],"queueDatas":[]}' % addresses) == port
    )


def test_a_process_is_connected_from_its_first_connection_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not connected([os.getpid()], [port])
        with socket.create_connection(("127.0.0.1", port)):
            assert connected([os.getpid()], [port]) and not connected([os.getpid()], [])
            assert not connected([1 << 30], [port]), "it is no connection of that process"


# ---- the loss check ----


def acked(*numbers: int) -> list[Acked]:
    return [Acked(number, float(number), 11000, offset) for offset, number in enumerate(numbers)]


def test_what_is_lost_and_what_is_moved() -> None:
    bodies = {offset: f"{number:012}".encode() for offset, number in enumerate((0, 1, 3, 2))}
    found = judge(acked(0, 1, 2, 3), bodies)
    assert (found.acked, found.lost, found.moved) == (4, 0, 2)
    del bodies[1]
    assert judge(acked(0, 1, 3, 2), bodies).lost == 1
    assert judge(acked(0, 1, 3, 2, 4), bodies).lost == 2
    again = bodies | {4: bodies[0]}
    assert judge(acked(0), again).moved == 0, "a message that was sent again may be there twice"


# ---- the client that retries ----


class FakeMaster(socketserver.ThreadingTCPServer):
    """Acknowledges sends with queue offsets, until it is made silent; as a name server, names `port` as master."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, names: "FakeMaster | None" = None) -> None:
        super().__init__(("127.0.0.1", 0), FakePeer)
        self.names, self.code, self.silent, self.offset = names, 0, False, 0
        self.master: FakeMaster | None = None
        self.sockets: list[socket.socket] = []
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def answer(self, head: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        if head["code"] == retrying.TOPIC_ROUTE:
            assert self.master is not None
            return 0, {}, b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:%d"}}]}' % self.master.port
        self.offset += not self.code
        return self.code, {"queueOffset": str(self.offset - 1)}, b""

    def kill(self) -> None:
        self.shutdown()
        self.server_close()
        for one in self.sockets:
            one.shutdown(socket.SHUT_RDWR)


class FakePeer(socketserver.StreamRequestHandler):
    server: FakeMaster

    def handle(self) -> None:
        self.server.sockets.append(self.connection)
        try:
            while prefix := self.rfile.read(8):
                length, header = struct.unpack(">II", prefix)
                head = json.loads(self.rfile.read(header))
                self.rfile.read(length - 4 - header)
                if self.server.silent:
                    continue
                code, ext, body = self.server.answer(head)
                answer = json.dumps({"code": code, "flag": 1, "opaque": head["opaque"], "extFields": ext}).encode()
                self.wfile.write(struct.pack(">II", 4 + len(answer) + len(body), len(answer)) + answer + body)
        except (ConnectionError, ValueError):
            return


@pytest.fixture
def names() -> Iterator[FakeMaster]:
    """A name server that names the first of two masters."""
    server, first, second = FakeMaster(), FakeMaster(), FakeMaster()
    server.master = first
    server.names = second
    yield server
    for one in (server, first, second):
        one.shutdown()
        one.server_close()


def until(condition: Callable[[], object], client: RetryingClient) -> None:
    deadline, pause = time.monotonic() + WAIT_S, threading.Event()
    while not condition():
        assert client._failed is None, f"the client ended: {client._failed!r}"
        assert time.monotonic() < deadline, f"{len(client.acked)} acknowledged, the masters seen: {client.routes}"
        pause.wait(0.002)


@pytest.mark.parametrize("how", ["kill", "silent", "refuse"])
def test_it_goes_on_at_the_new_master_and_sends_nothing_twice_that_was_acknowledged(
    names: FakeMaster, how: str
) -> None:
    first, second = names.master, names.names
    assert first is not None and second is not None
    with RetryingClient(names.port, "topic") as client:
        until(lambda: len(client.acked) >= 5, client)
        if how == "kill":
            first.kill()
        else:
            first.silent, first.code = how == "silent", 1 if how == "refuse" else 0
        before = len(client.acked)
        names.master = second
        found = client.acked_elsewhere(first.port, WAIT_S)
        until(lambda: len(client.acked) >= before + 5, client)
    assert found is not None and found.port == second.port and found.queue_offset == 0
    assert [one.number for one in client.acked] == list(range(len(client.acked)))
    assert [port for _, port in client.routes] == [first.port, second.port]
    last = max(one.at_s for one in client.acked if one.port == first.port)
    assert found.at_s > last


def test_nobody_else_acknowledges_in_time(names: FakeMaster) -> None:
    assert names.master is not None
    with RetryingClient(names.port, "topic") as client:
        until(lambda: len(client.acked) >= 2, client)
        assert client.acked_elsewhere(names.master.port, 0.05) is None


def test_what_breaks_the_client_is_told_to_who_waits(names: FakeMaster, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: RetryingClient) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(RetryingClient, "_turn", broken)
    with RetryingClient(names.port, "topic") as client, pytest.raises(ValueError, match="broken"):
        client.acked_elsewhere(1, WAIT_S)


def test_a_java_replica_that_stays_out_of_sync_is_started_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = broker_set(tmp_path)
    done: list[tuple[str, int]] = []
    ports = one.node_ports
    monkeypatch.setattr(sets, "STUCK_S", 0.05)
    monkeypatch.setattr(one, "name", JAVA)
    monkeypatch.setattr(one, "start_s", 1.0)
    monkeypatch.setattr(one, "steady_s", 0.0)
    monkeypatch.setattr(one, "_leads", lambda: 1 if done else None)
    monkeypatch.setattr(one, "replicas", lambda: Replicas(ports[1], 2, frozenset({ports[0]})))
    monkeypatch.setattr(one, "kill_node", lambda number: done.append(("kill", number)))
    monkeypatch.setattr(one, "start_node", lambda number: done.append(("start", number)))
    one.settle()
    assert done == [("kill", 2), ("start", 2)], "neither the master, nor who is in sync"
    assert one.started_anew == 1 and one.leader == 1


# ---- stock producers ----


def test_an_outage_is_the_longest_pause_of_each_producer() -> None:
    stock = StockProducers("127.0.0.1:1")
    for at_s in (1.0, 1.5, 4.0, 4.25):
        stock.acknowledged(0, at_s, 11)
    assert stock.outages() == {0: 2.5}
    stock.watch()
    stock.acknowledged(0, 4.75, 12)
    for number in range(1, PRODUCERS):
        stock.acknowledged(number, 1.0, 11)
        stock.acknowledged(number, 5.0 + number, 12)
    assert stock.outages() == {0: 0.5} | {number: 4.0 + number for number in range(1, PRODUCERS)}
    stock.await_all(4.5, 0.01, but=11)
    stock.acknowledged(2, 9.0, 11)
    stock.await_all(4.5, 0.01)
    stock._errors = io.BytesIO()  # type: ignore[assignment]
    with pytest.raises(BenchError, match=r"producers \[2\]"):
        stock.await_all(4.5, 0.01, but=11)  # by the old master, late


def test_a_broker_that_does_not_come_back_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = broker_set(tmp_path)
    monkeypatch.setattr(one, "_descendants", lambda role: [])
    monkeypatch.setattr(one, "_log", lambda role: "its log")
    monkeypatch.setattr(one, "replicas", lambda: None)
    with pytest.raises(BenchError, match="n1 of the Perseid set did not come back"):
        one.until(1, "come back", lambda: one.in_sync(1), 0.01)
