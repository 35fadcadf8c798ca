"""One controller and thousands of brokers that are nothing but connections: what their heartbeats cost, and elections.

`Crowd` holds a connection for each broker, as a broker does, and takes the controller's notices of role changes at one
port: the brokers' addresses differ in the host, which are all of this machine (127/8).
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pairs import busy_s, cpu_s
from servers import START_TIMEOUT_S, BenchError, Remote, Server, frame_of, parts_of_frame
from sets import CONTROLLER_FILE_BYTES, CONTROLLER_METADATA, SYNC_STATE_DATA

from perseid.testing.ports import free_port

REPLICAS = 3
SETS_A_HOST = 250
BEAT_S = 1.0
"""brokerHeartbeatInterval, by default."""
TICK_S = 0.005
WINDOW = 200
"""Requests under way while the brokers are registered: the controller answers each within 5 s."""
EXCHANGE_TIMEOUT_S = 300.0
ELECTION_TIMEOUT_S = 120.0
MOST_REDIALLED = 0.05
"""Of all brokers; a controller that hangs up on more of them is overloaded, and its figures are of no use."""
READ_BYTES = 65536
BACKLOG = 4096
ONE_WAY = 2
HEARTBEAT, ALTER, ELECT, REGISTER, ROLE_CHANGED, APPLY_ID = 904, 1001, 1002, 1003, 1008, 1013
CLUSTER = "bench-cluster"


class LoneController(Server):
    """One controller, of one implementation."""

    def start(self) -> None:
        """Return when it leads."""
        began = time.monotonic()
        self._spawn("controller", self.controller_conf(), self.folder, "controller")
        self._until("controller", self.leads)
        self.start_s = time.monotonic() - began

    def controller_conf(self) -> dict[str, object]:
        return {
            "listenPort": self.ports[0],
            "controllerType": "DLedger",
            "controllerDLegerGroup": "bench-controllers",
            "controllerDLegerPeers": f"n0-127.0.0.1:{self.ports[0]}",
            "controllerDLegerSelfId": "n0",
            "controllerStorePath": self.folder / "store",
            "mappedFileSize": CONTROLLER_FILE_BYTES,
        }

    def leads(self) -> None:
        """BenchError or OSError as long as it does not."""
        with Remote(self.ports[0]) as remote:
            if remote.call(CONTROLLER_METADATA, {}).get("isLeader") != "true":
                raise BenchError("the controller does not lead yet")

    def pids(self) -> list[int]:
        return self._descendants("controller")

    def stop(self) -> None:
        """By force: nobody needs its store."""
        if self.processes["controller"].poll() is None:
            self.processes["controller"].kill()
        self.processes["controller"].wait()


@dataclass(eq=False)
class Peer:
    """A connection: a broker's own, or one that the controller made to it."""

    socket: socket.socket
    unread: bytearray = field(default_factory=bytearray)

    def frames(self) -> Iterable[tuple[dict[str, Any], bytes]]:
        """Those that have come whole; BenchError when the other side is gone."""
        try:
            data = self.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            raise BenchError("the controller closed a broker's connection")
        self.unread += data
        while len(self.unread) >= 4 and len(self.unread) >= 4 + (size := struct.unpack_from(">I", self.unread)[0]):
            yield parts_of_frame(bytes(self.unread[4 : 4 + size]))
            del self.unread[: 4 + size]


@dataclass(eq=False)
class Broker(Peer):
    """One that only says that it is there."""

    number: int = 0
    """Of its set."""
    id: int = 0
    address: str = ""
    beat: bytes = b""


def set_name(number: int) -> str:
    return f"set-{number:04}"


def address_of(number: int, broker_id: int, port: int) -> str:
    """A broker's own address, of this machine."""
    return f"127.{broker_id}.{1 + number // SETS_A_HOST}.{1 + number % SETS_A_HOST}:{port}"


def set_at(address: str) -> tuple[int, int]:
    """The number of the set and the id of the broker that has this address."""
    broker_id, high, low = (int(part) for part in address.rpartition(":")[0].split(".")[1:])
    return (high - 1) * SETS_A_HOST + low - 1, broker_id


class Crowd:
    """The brokers of `sets` sets of three. A context."""

    def __init__(self, controller_port: int, sets: int) -> None:
        self.controller_port, self.sets = controller_port, sets
        self.brokers: dict[tuple[int, int], Broker] = {}
        """By set and id."""
        self.masters: dict[int, int] = {}
        """What notices said last: the master's id of each set."""
        self.beats = self.redialled = 0
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("0.0.0.0", free_port()))
        self._listener.listen(BACKLOG)
        self._listener.setblocking(False)
        self._port = self._listener.getsockname()[1]
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._answers: dict[int, tuple[dict[str, Any], bytes]] = {}
        self._beating: list[Broker] = []
        self._next_beat, self._beat_from_s = 0, 0.0

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()

    # ---- the brokers ----

    def _dial(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.controller_port), START_TIMEOUT_S)
        connection.setblocking(False)
        return connection

    def _dial_again(self, one: Broker) -> None:
        """The controller hung up on a broker, as it does on those that it takes for dead: come back, as brokers do."""
        self.redialled += 1
        if self.redialled > MOST_REDIALLED * REPLICAS * self.sets:
            raise BenchError(f"the controller hung up on {self.redialled} of {REPLICAS * self.sets} brokers")
        self._selector.unregister(one.socket)
        one.socket.close()
        one.socket, one.unread = self._dial(), bytearray()
        self._selector.register(one.socket, selectors.EVENT_READ, one)

    def connect(self) -> None:
        for number in range(self.sets):
            for broker_id in range(1, REPLICAS + 1):
                connection = self._dial()
                address = address_of(number, broker_id, self._port)
                names = {"clusterName": CLUSTER, "brokerName": set_name(number), "brokerAddr": address}
                state = {"brokerId": broker_id, "epoch": 1, "maxOffset": 1000, "confirmOffset": 1000}
                more = {"heartbeatTimeoutMills": 10_000, "electionPriority": 2**31 - 1}
                beat = frame_of(HEARTBEAT, names | state | more, flag=ONE_WAY)
                broker = Broker(connection, number=number, id=broker_id, address=address, beat=beat)
                self.brokers[number, broker_id] = broker
                self._selector.register(connection, selectors.EVENT_READ, broker)

    def register(self) -> None:
        """Ids, heartbeats, masters, and all three in the SyncStateSet of each."""
        for broker_id in range(1, REPLICAS + 1):  # one after the other, as ids are given out
            some = [one for (_, given), one in self.brokers.items() if given == broker_id]
            self.exchange(APPLY_ID, some, lambda one: (self._id_header(one), b""))
        everyone = list(self.brokers.values())
        self.exchange(REGISTER, everyone, lambda one: (self._register_header(one), b""))
        self.beat(everyone)
        self.turn_for(2 * BEAT_S)
        first = [one for one in everyone if one.id == 1]
        self.exchange(
            ELECT, first, lambda one: (self._set_header(one) | {"brokerId": 1, "designateElect": "false"}, b"")
        )
        agreed = json.dumps({"syncStateSet": [*range(1, REPLICAS + 1)], "syncStateSetEpoch": 1}).encode()
        master = {"masterBrokerId": 1, "masterEpoch": 1}
        self.exchange(ALTER, first, lambda one: (self._set_header(one) | master, agreed))

    def _set_header(self, one: Broker) -> dict[str, object]:
        return {"clusterName": CLUSTER, "brokerName": set_name(one.number), "invokeTime": int(time.time() * 1000)}

    def _id_header(self, one: Broker) -> dict[str, object]:
        return self._set_header(one) | {"appliedBrokerId": one.id, "registerCheckCode": f"{one.address};1"}

    def _register_header(self, one: Broker) -> dict[str, object]:
        return self._set_header(one) | {"brokerId": one.id, "brokerAddress": one.address}

    def beat(self, brokers: Sequence[Broker]) -> None:
        """From now on these send their heartbeats, spread over BEAT_S."""
        self._beating, self._next_beat, self._beat_from_s = list(brokers), 0, time.monotonic()

    def close(self, brokers: Iterable[Broker]) -> None:
        """They die: their connections are closed, and they beat no longer."""
        gone = set(brokers)
        for one in gone:
            self._selector.unregister(one.socket)
            one.socket.close()
            del self.brokers[one.number, one.id]
        self.beat([one for one in self._beating if one not in gone])

    # ---- what goes on ----

    def exchange(
        self, code: int, brokers: Sequence[Broker], request: Callable[[Broker], tuple[dict[str, object], bytes]]
    ) -> None:
        """Each of them asks once, at most WINDOW at a time; BenchError when any is refused."""
        self._answers.clear()
        asked, deadline = 0, time.monotonic() + EXCHANGE_TIMEOUT_S
        while len(self._answers) < len(brokers):
            while asked < len(brokers) and asked - len(self._answers) < WINDOW:
                header, body = request(brokers[asked])
                brokers[asked].socket.sendall(frame_of(code, header, body, opaque=asked))
                asked += 1
            self.turn()
            if time.monotonic() > deadline:
                raise BenchError(f"{len(self._answers)} of {len(brokers)} requests {code} were answered in time")
        if refused := [head for head, _ in self._answers.values() if head["code"]]:
            raise BenchError(f"{len(refused)} of {len(brokers)} requests {code} were refused: {refused[0]}")

    def turn(self) -> None:
        """Send the heartbeats that are due, and read what has come; with nothing to do, wait for TICK_S at most.

        Heartbeats go out one by one: brokers do not beat together.
        """
        next_s = self._send_beats()
        found = self._selector.select(TICK_S if next_s > TICK_S else 0)
        if not found and next_s <= TICK_S:
            time.sleep(min(max(0.0, next_s), TICK_S))  # the selector knows whole milliseconds only
        for key, _ in found:
            if key.data is None:
                self._accept()
            else:
                self._read(key.data)

    def turn_for(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.turn()

    def _send_beats(self) -> float:
        """Send those that are due; how many seconds until the next one is."""
        if not self._beating:
            return 2 * TICK_S
        each_s, passed_s = BEAT_S / len(self._beating), time.monotonic() - self._beat_from_s
        for number in range(self._next_beat, due := int(passed_s / each_s)):
            one = self._beating[number % len(self._beating)]
            try:
                one.socket.sendall(one.beat)
            except OSError:
                self._dial_again(one)
        self.beats += due - self._next_beat
        self._next_beat = due
        return (due + 1) * each_s - passed_s

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        connection.setblocking(False)
        self._selector.register(connection, selectors.EVENT_READ, Peer(connection))

    def _read(self, peer: Peer) -> None:
        try:
            for head, body in peer.frames():
                if head["flag"] & 1:
                    self._answers[head["opaque"]] = head, body
                elif head["code"] == ROLE_CHANGED:
                    number, broker_id = set_at(head["extFields"]["masterAddress"])
                    self.masters[number] = broker_id
        except BenchError:
            if isinstance(peer, Broker):
                self._dial_again(peer)
                return
            self._selector.unregister(peer.socket)  # the controller may hang up on a broker that it has told
            peer.socket.close()

    # ---- what is measured ----

    def beating(self, controller: LoneController, seconds: float) -> dict[str, float]:
        """What the controller takes while all it has to do is to hear heartbeats."""
        self.turn_for(BEAT_S)
        pids, beats, dialled, began = controller.pids(), self.beats, self.redialled, time.monotonic()
        before = cpu_s(pids), busy_s(), time.process_time()
        self.turn_for(seconds)
        took_s = time.monotonic() - began
        cpu, busy, own = (b - a for a, b in zip(before, (cpu_s(pids), busy_s(), time.process_time()), strict=True))
        return {
            "beats_per_s": (self.beats - beats) / took_s,
            "beat_cores": cpu / took_s,
            "load_grow_cores": own / took_s,
            "redialled": self.redialled - dialled,
            "others_grow_cores": (busy - cpu - own) / took_s,
        }

    def electing(self, controller: LoneController, sets: Sequence[int]) -> dict[str, float]:
        """The masters of these sets die: until the controller has told of a new one in each of them."""
        dying = [self.brokers[number, 1] for number in sets]
        pids = controller.pids()
        before, began = cpu_s(pids), time.monotonic()
        self.close(dying)
        deadline = began + ELECTION_TIMEOUT_S
        while any(self.masters.get(number, 1) == 1 for number in sets):
            self.turn()
            if time.monotonic() > deadline:
                told = sum(self.masters.get(number, 1) != 1 for number in sets)
                raise BenchError(f"{told} of {len(sets)} sets had a new master within {ELECTION_TIMEOUT_S:.0f} s")
        took_s, cpu = time.monotonic() - began, cpu_s(pids) - before
        self._check(sets)
        return {"elect_s": took_s, "elect_cpu_s": cpu}

    def _check(self, sets: Sequence[int]) -> None:
        """The controller's own state says the same as its notices."""
        with Remote(self.controller_port) as remote:
            names = json.dumps([set_name(number) for number in sets]).encode()
            table = json.loads(remote.ask(SYNC_STATE_DATA, {}, names)[1])["replicasInfoTable"]
        for number in sets:
            master = table[set_name(number)]["masterBrokerId"]
            if master != self.masters[number] or (number, master) not in self.brokers:
                raise BenchError(f"{set_name(number)}: {master} is master, {self.masters[number]} was told of")
