"""The crowd of brokers of `make bench` against a controller of a few lines."""

import contextlib
import json
import socket
import socketserver
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import growth
from growth import CLUSTER, Crowd, LoneController, address_of, set_at, set_name
from servers import CORE, BenchError, frame_of, perseid_command

SETS = 20


@pytest.mark.parametrize("number", [0, 1, 249, 250, 1999])
def test_brokers_have_addresses_of_their_own(number: int) -> None:
    addresses = {address_of(number, broker_id, 5000) for broker_id in (1, 2, 3)}
    assert len(addresses) == 3 and {set_at(one) for one in addresses} == {(number, 1), (number, 2), (number, 3)}
    assert all(socket.inet_aton(one.partition(":")[0])[0] == 127 for one in addresses)


class FakeController(socketserver.ThreadingTCPServer):
    """Says yes to everything, and elects broker 2 of a set whose broker 1 has hung up."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), FakePeer)
        self.seen: Counter[tuple[int, str]] = Counter()
        self.masters: dict[str, int] = {}
        self.elected = 2
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def table(self, names: list[str]) -> bytes:
        rows = {name: {"masterBrokerId": self.masters.get(name, 1)} for name in names}
        return json.dumps({"replicasInfoTable": rows}).encode()

    def dead(self, address: str, name: str) -> None:
        number, broker_id = set_at(address)
        if broker_id != 1:
            return
        self.masters[name] = 2
        master = address_of(number, self.elected, int(address.rpartition(":")[2]))
        notice = frame_of(growth.ROLE_CHANGED, {"masterAddress": master, "masterEpoch": 2}, flag=growth.ONE_WAY)
        host, _, port = address_of(number, 3, int(address.rpartition(":")[2])).partition(":")
        with contextlib.suppress(ConnectionError), socket.create_connection((host, int(port))) as connection:
            connection.sendall(notice)  # at the end of a test, all brokers hang up, and nobody listens


class FakePeer(socketserver.StreamRequestHandler):
    server: FakeController

    def handle(self) -> None:
        address = name = ""
        try:
            while prefix := self.rfile.read(8):
                length, header = struct.unpack(">II", prefix)
                head = json.loads(self.rfile.read(header))
                body = self.rfile.read(length - 4 - header)
                ext: dict[str, Any] = head["extFields"]
                with self.server.lock:
                    self.server.seen[head["code"], ext.get("brokerName", "")] += 1
                if head["code"] == growth.HEARTBEAT:
                    address, name = ext["brokerAddr"], ext["brokerName"]
                    assert head["flag"] == growth.ONE_WAY
                    continue
                found = self.server.table(json.loads(body)) if head["code"] == growth.SYNC_STATE_DATA else b""
                answer = json.dumps({"code": 0, "flag": 1, "opaque": head["opaque"]}).encode()
                self.wfile.write(struct.pack(">II", 4 + len(answer) + len(found), len(answer)) + answer + found)
        except ConnectionError:
            pass
        if address:
            self.server.dead(address, name)


@pytest.fixture
def controller() -> Iterator[FakeController]:
    server = FakeController()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def crowd(controller: FakeController, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crowd]:
    monkeypatch.setattr(growth, "BEAT_S", 0.05)
    with Crowd(controller.server_address[1], SETS) as found:
        found.connect()
        found.register()
        yield found


@pytest.fixture
def lone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoneController:
    one = LoneController(CORE, perseid_command, {}, tmp_path, {})
    monkeypatch.setattr(one, "pids", lambda: [])
    return one


def test_each_broker_registers_and_beats(controller: FakeController, crowd: Crowd) -> None:
    for number in range(SETS):
        seen = {code: controller.seen[code, set_name(number)] for code in (growth.APPLY_ID, growth.REGISTER)}
        assert seen == {growth.APPLY_ID: 3, growth.REGISTER: 3}
        assert controller.seen[growth.ELECT, set_name(number)] == controller.seen[growth.ALTER, set_name(number)] == 1
        assert controller.seen[growth.HEARTBEAT, set_name(number)] >= 3


def test_elections_are_awaited_and_checked(controller: FakeController, crowd: Crowd, lone: LoneController) -> None:
    assert crowd.electing(lone, range(5, 15))["elect_s"] >= 0
    assert {number: crowd.masters.get(number) for number in range(4, 16)} == {
        4: None,
        **dict.fromkeys(range(5, 15), 2),
        15: None,
    }
    assert len(crowd.brokers) == 3 * SETS - 10
    assert crowd.beating(lone, 0.1)["beats_per_s"] > 0


def test_a_notice_that_the_state_does_not_bear_out_ends_the_run(
    controller: FakeController, crowd: Crowd, lone: LoneController
) -> None:
    controller.elected = 3
    with pytest.raises(BenchError, match="set-0000: 2 is master, 3 was told of"):
        crowd.electing(lone, [0])


def test_requests_that_are_refused_end_the_run(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = ({"code": 2014, "remark": "no"}, b"")
    monkeypatch.setattr(crowd, "turn", lambda: crowd._answers.update({0: refused}))
    one = crowd.brokers[0, 1]
    with pytest.raises(BenchError, match="1 of 1 requests 1013 were refused"):
        crowd.exchange(growth.APPLY_ID, [one], lambda one: ({"clusterName": CLUSTER}, b""))


def until_dialled_again(crowd: Crowd, count: int) -> None:
    deadline = time.monotonic() + 30.0
    while crowd.redialled < count:
        crowd.turn()
        assert time.monotonic() < deadline


def test_a_broker_whose_connection_is_closed_comes_back_and_is_counted(
    controller: FakeController, crowd: Crowd
) -> None:
    one = crowd.brokers[3, 3]
    one.socket.shutdown(socket.SHUT_RDWR)
    until_dialled_again(crowd, 1)
    beats = controller.seen[growth.HEARTBEAT, set_name(3)]
    while controller.seen[growth.HEARTBEAT, set_name(3)] < beats + 2 * growth.REPLICAS:
        crowd.turn()
    assert crowd.redialled == 1


def test_many_lost_connections_end_the_run(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "MOST_REDIALLED", 0.01)
    crowd.brokers[3, 3].socket.shutdown(socket.SHUT_RDWR)
    with pytest.raises(BenchError, match="hung up on 1 of 60 brokers"):
        until_dialled_again(crowd, 2)
