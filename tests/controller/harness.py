"""Controllers on simulated disks, with clients, and with time that passes when the test says so."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from tests.durable import failure_of

from perseid.base.machine import (
    Close,
    Closed,
    Connect,
    ConnectFailed,
    Effect,
    Feed,
    Flush,
    Frames,
    Note,
    Opened,
    SaveState,
    Start,
    Stop,
    Tick,
    Write,
)
from perseid.controller.config import ControllerConfig
from perseid.controller.node import LISTENER, Controller
from perseid.raft.config import RaftConfig
from perseid.security.audit import Journal
from perseid.security.credentials import Credentials
from perseid.security.members import Members
from perseid.sim.disk import SimDisk
from perseid.wire.codes import RequestCode
from perseid.wire.command import Command, decode_all, encode_request

GROUP = "cg"
START = 1_700_000_000_000
CLUSTER, SET = "DefaultCluster", "broker-a"
Ext = Mapping[str, Any]


def address(name: str) -> str:
    return f"10.0.4.{name[1:]}:9878"


def broker_at(number: int) -> str:
    return f"10.0.5.{number}:10911"


def texts(ext: Ext | None) -> dict[str, str]:
    """Ext fields as they travel."""
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (ext or {}).items()}


class Cell:
    """One controller: its machine, its disk, what it sent."""

    def __init__(self, group: Group, name: str) -> None:
        self.group, self.name = group, name
        self.disk = SimDisk(Random(int(name[1:])))
        self.hold = False
        """Flushes and saves wait in `held`."""
        self.held: deque[Flush | SaveState] = deque()
        self.notes: list[str] = []
        self.stopped: str | None = None
        self.node: Controller = self._new()
        self.running = False
        self._effects: deque[Effect] = deque()

    def _new(self) -> Controller:
        group = self.group
        raft = RaftConfig(
            group=GROUP, self_id=self.name, peers=group.peers, mapped_file_size_for_entry_data=1 << 20,
            mapped_file_size_for_entry_index=32 * 1024, **group.raft,
        )  # fmt: skip
        return Controller(
            group.config, raft, self.disk, Random(5), config_path="controller.properties",
            members=group.members(),
        )  # fmt: skip

    def start(self) -> None:
        self.running, self.stopped = True, None
        self.do(Start())

    def kill(self, *, power: bool = False) -> None:
        """The process dies; its connections close at once."""
        self.running = False
        self.disk.cut_power() if power else self.disk.kill()
        self.held.clear()
        self._effects.clear()
        self.group.closed_with(self)
        self.node = self._new()

    def do(self, event: Any) -> None:
        """One turn, and all that follows from it here."""
        if not self.running:
            return
        self._effects.extend(self.node.handle(event, self.group.now))
        while self._effects:
            self._carry_out(self._effects.popleft())
        if self.stopped is None:
            self.node.validate()

    def _carry_out(self, effect: Effect) -> None:
        assert self.stopped is None, f"after a Stop: {effect}"
        if isinstance(effect, Flush | SaveState):
            if self.hold:
                self.held.append(effect)
            else:
                self._make_durable(effect)
        elif isinstance(effect, Feed):
            self._effects.extend(self.node.handle(effect.event, self.group.now))
        elif isinstance(effect, Write):
            data = effect.data if isinstance(effect.data, bytes) else b"".join(effect.data)
            self.group.sent(self, effect.conn, data)
        elif isinstance(effect, Connect):
            self.group.dialled(self, effect.address)
        elif isinstance(effect, Close):
            self.group.close(self, effect.conn, effect.reason)
        elif isinstance(effect, Note):
            self.notes.append(effect.text)
        else:
            assert isinstance(effect, Stop)
            self.stopped = effect.reason

    def _make_durable(self, effect: Flush | SaveState) -> None:
        failed = failure_of(self.disk, effect)
        if failed is not None:
            self._effects.extend(self.node.handle(failed, self.group.now))
        else:
            self._effects.extendleft(reversed(effect.then))

    def release(self) -> None:
        """Make durable what was held, and hold no more."""
        self.hold = False
        while self.held:
            self._make_durable(self.held.popleft())
            self.do(Tick())


class Client:
    """A connection of a broker or a tool to one controller."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.conn = cell.group.new_conn()
        self.signs = cell.group.signs
        self.got: list[Command] = []
        self.closed = False
        self._opaque = 100
        cell.group.clients[cell.name, self.conn] = self
        cell.do(Opened(self.conn, f"10.9.9.9:{self.conn}", address(cell.name), LISTENER))

    def send(self, code: int, ext: Ext | None = None, body: bytes = b"", *, oneway: bool = False) -> int:
        self._opaque += 1
        fields: Mapping[str, str | None] = texts(ext)
        if self.signs is not None:
            fields = self.signs.sign(fields, body)
        self.cell.do(Frames(self.conn, encode_request(code, self._opaque, fields, body, oneway=oneway)))
        return self._opaque

    def answer(self, opaque: int) -> Command | None:
        found = [one for one in self.got if one.is_response and one.opaque == opaque]
        assert len(found) < 2, "answered twice"
        return found[0] if found else None

    def ask(self, code: int, ext: Ext | None = None, body: bytes = b"") -> Command:
        """A request, and its answer, which comes before the group falls silent."""
        opaque = self.send(code, ext, body)
        self.cell.group.run()
        answer = self.answer(opaque)
        assert answer is not None, f"no answer: {self.cell.notes[-3:]}"
        return answer

    def beat(self, number: int, **more: Any) -> None:
        """A heartbeat of the broker with this id."""
        members = {
            "clusterName": CLUSTER, "brokerAddr": broker_at(number), "brokerName": SET, "brokerId": number, "epoch": 1,
            "maxOffset": 100, "confirmOffset": 100, "heartbeatTimeoutMills": 3_000, "electionPriority": 2**31 - 1,
        } | more  # fmt: skip
        self.send(RequestCode.BROKER_HEARTBEAT, members, oneway=True)
        self.cell.group.run()

    def close(self) -> None:
        self.closed = True
        del self.cell.group.clients[self.cell.name, self.conn]
        self.cell.do(Closed(self.conn, "the peer closed it"))
        self.cell.group.run()


class Group:
    """Some controllers, and the connections among them."""

    def __init__(
        self, size: int = 1, *, config: Mapping[str, Any] | None = None, certified: bool = False,
        signs: Credentials | None = None, **raft: Any,
    ) -> None:  # fmt: skip
        """`certified`: controllers show each other certificates, and nobody else has one; `signs`: what controllers
        and their clients sign with, and have to."""
        self.signs = signs
        self.audited: list[bytes] = []
        """Lines of audit logs."""
        self.now = START
        self.certified = certified
        self.config = ControllerConfig(**(config or {}))
        self.raft: dict[str, Any] = {"heart_beat_time_interval_ms": 500, **raft}
        names = [f"n{number}" for number in range(size)]
        self.peers = ";".join(f"{name}-{address(name)}" for name in names)
        self.clients: dict[tuple[str, int], Client] = {}
        self.notices: list[tuple[str, Command]] = []
        """What brokers were told: to which address, and what."""
        self.unreachable: set[str] = set()
        """Nobody answers there: dials fail. Of a controller: what it sends and gets is lost."""
        self._conns = 0
        self._links: dict[tuple[str, int], tuple[str, int]] = {}
        """(controller, connection) ↔ the other end; (address, 0) is a broker's."""
        self._mail: deque[tuple[str, int, bytes]] = deque()
        self.cells = {name: Cell(self, name) for name in names}

    def members(self) -> Members:
        """Who may speak as one."""
        journal = Journal(self.audited.append)
        return Members(
            self.signs, authenticates=self.signs is not None, certified=self.certified, journal=journal
        )

    def __getitem__(self, name: str) -> Cell:
        return self.cells[name]

    def new_conn(self) -> int:
        self._conns += 1
        return self._conns

    # ---- the network ----

    def sent(self, cell: Cell, conn: int, data: bytes) -> None:
        client = self.clients.get((cell.name, conn))
        if client is not None:
            client.got += [one.keep() for one in decode_all(data)]
            return
        link = self._links.get((cell.name, conn))
        if link is not None and link[0] in self.cells:
            self._mail.append((*link, data))
        elif link is not None and link[0] not in self.unreachable:
            self.notices += [(link[0], one.keep()) for one in decode_all(data)]

    def dialled(self, cell: Cell, to: str) -> None:
        target = next((one for one in self.cells.values() if address(one.name) == to), None)
        down = target is not None and not target.running
        if {to, address(cell.name)} & self.unreachable or down:
            cell._effects.extend(cell.node.handle(ConnectFailed(to, "refused"), self.now))
            return
        here, there = self.new_conn(), self.new_conn() if target is not None else 0
        self._links[cell.name, here] = (target.name, there) if target is not None else (to, 0)
        if target is not None:
            self._links[target.name, there] = (cell.name, here)
            shown = f"CN={cell.name}" if self.certified else ""
            target.do(Opened(there, f"{address(cell.name).partition(':')[0]}:4000", to, LISTENER, certificate=shown))
        cell._effects.extend(cell.node.handle(Opened(here, to, address(cell.name), "", to), self.now))

    def close(self, cell: Cell, conn: int, reason: str) -> None:
        client = self.clients.pop((cell.name, conn), None)
        if client is not None:
            client.closed = True
        link = self._links.pop((cell.name, conn), None)
        if link is not None and self._links.pop(link, None) is not None:
            self.cells[link[0]].do(Closed(link[1], reason))
        if client is not None or link is not None:
            cell._effects.extend(cell.node.handle(Closed(conn, reason), self.now))

    def closed_with(self, cell: Cell) -> None:
        """All connections of a process that died."""
        for key in [key for key in self.clients if key[0] == cell.name]:
            self.clients.pop(key).closed = True
        for key in [key for key in self._links if key[0] == cell.name]:
            link = self._links.pop(key, None)
            if link is not None and self._links.pop(link, None) is not None:
                self.cells[link[0]].do(Closed(link[1], "its process died"))

    def run(self) -> None:
        """Deliver what controllers have sent one another, until they say nothing more."""
        for _ in range(20_000):
            if not self._mail:
                return
            name, conn, data = self._mail.popleft()
            link = self._links.get((name, conn))
            if link is not None and not {address(name), address(link[0])} & self.unreachable:
                self.cells[name].do(Frames(conn, data))
        raise AssertionError("they never fall silent")

    def pass_time(self, ms: int, *, among: Callable[[], None] = lambda: None, step: int = 10) -> None:
        """Time passes; `among` is called at each step."""
        end = self.now + ms
        while self.now < end:
            self.now = min(end, self.now + step)
            for cell in self.cells.values():
                due = cell.node.next_deadline() if cell.running and cell.stopped is None else None
                if due is not None and due <= self.now:
                    cell.do(Tick())
            self.run()
            among()

    # ---- what tests begin with ----

    def start(self) -> Cell:
        """All start, and elect an active controller."""
        for cell in self.cells.values():
            cell.start()
        return self.until_active()

    def until_active(self) -> Cell:
        for _ in range(3_000):
            found = [cell for cell in self.cells.values() if cell.running and cell.node.active]
            if found:
                return found[0]
            self.pass_time(10)
        raise AssertionError("nobody becomes active")

    def told(self) -> list[tuple[str, dict[str, str], bytes]]:
        """The notices since the last call."""
        found = [(to, one.ext, bytes(one.body)) for to, one in self.notices]
        self.notices.clear()
        return found


def register(client: Client, *numbers: int) -> None:
    """Brokers of the set get their ids, and send a heartbeat on a connection of their own."""
    for number in numbers:
        ext = {"clusterName": CLUSTER, "brokerName": SET, "appliedBrokerId": number}
        code = f"{broker_at(number)};{number}"
        answer = client.ask(RequestCode.CONTROLLER_APPLY_BROKER_ID, {**ext, "registerCheckCode": code})
        assert answer.code == 0, answer.remark
