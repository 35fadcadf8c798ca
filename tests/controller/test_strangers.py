"""Strangers at the port of a controller: what only members and brokers say is taken from their machines alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.controller.harness import CLUSTER, SET, Cell, Client, Group, address, broker_at, register

from perseid.base.machine import Frames, Opened
from perseid.controller import events
from perseid.controller.node import LISTENER
from perseid.controller.routes import ROUTES
from perseid.raft.state import VOTE_FILE, parse_vote
from perseid.security.credentials import Credentials
from perseid.security.members import Asks
from perseid.wire.codes import RequestCode as Ask
from perseid.wire.codes import ResponseCode as Code
from perseid.wire.command import encode_request
from perseid.wire.dledger import (
    AppendEntryRequest,
    DLedgerRequest,
    Entry,
    GetEntriesRequest,
    HeartBeatRequest,
    LeadershipTransferRequest,
    Message,
    Push,
    PushEntryRequest,
    VoteRequest,
)
from perseid.wire.dledger import Code as Raft

STRANGER = "10.9.9.9"
LAST = (1 << 63) - 1
PUSHES = (Push.APPEND, Push.COMMIT, Push.COMPARE, Push.TRUNCATE)


def at(cell: Cell, host: str) -> Client:
    """A connection from that machine."""
    client = Client.__new__(Client)
    client.cell, client.conn, client.got, client.closed, client._opaque = cell, cell.group.new_conn(), [], False, 100
    client.signs = None
    cell.group.clients[cell.name, client.conn] = client
    cell.do(Opened(client.conn, f"{host}:{client.conn}", address(cell.name), LISTENER))
    return client


def words(speaker: str, target: str, term: int, index: int) -> list[tuple[DLedgerRequest, Message]]:
    """All that a member may say to another one, and what clients ask, with this term and index."""
    base: dict[str, Any] = {"group": "cg", "remote_id": target, "local_id": speaker, "leader_id": speaker, "term": term}
    entry = Entry(index=index, term=term, pos=0, body=b"of a stranger")
    pushes = [
        (DLedgerRequest.PUSH, PushEntryRequest(**base, type=kind, commit_index=index, entry=entry)) for kind in PUSHES
    ]
    return [
        (DLedgerRequest.VOTE, VoteRequest(**base, ledger_end_index=index, ledger_end_term=term)),
        (DLedgerRequest.HEART_BEAT, HeartBeatRequest(**base)),
        *pushes,
        (DLedgerRequest.GET, GetEntriesRequest(**base, begin_index=index)),
        (
            DLedgerRequest.LEADERSHIP_TRANSFER,
            LeadershipTransferRequest(
                **base, transfer_id=speaker, transferee_id=target, take_leadership_ledger_index=index
            ),
        ),
    ]


def say(client: Client, code: int, message: Message) -> None:
    client._opaque += 1
    client.cell.do(Frames(client.conn, encode_request(code, client._opaque, None, message.to_json())))


def test_without_a_certificate_nobody_is_taken_for_a_controller() -> None:
    """Where members show certificates. Its own machine's address does not make a stranger one, and it reads nothing of
    the log, either."""
    group = Group(3, certified=True)
    leader = group.start()
    before = terms_on_disk(group), leader.node.raft.log.end
    for cell in group.cells.values():
        others = [name for name in group.cells if name != cell.name]
        for code, message in [*words(others[0], cell.name, 9, 1), (DLedgerRequest.METADATA, Message(group="cg"))]:
            client = at(cell, address(others[0]).partition(":")[0])
            say(client, code, message)
            assert client.closed and not client.got, code
    assert (terms_on_disk(group), leader.node.raft.log.end) == before
    assert "a request of a controller without a certificate: only members" in leader.notes[-1]
    register(Client(leader), 1)
    leader.kill()
    register(Client(group.until_active()), 2)


@pytest.mark.parametrize("by", [None, Credentials("mallory", "x"), Credentials("nodes", "a guess")])
def test_who_does_not_sign_is_no_broker_and_no_tool(by: Credentials | None) -> None:
    group = Group(signs=Credentials("nodes", "nodes-secret"))
    cell = group.start()
    register(Client(cell), 1, 2)
    Client(cell).beat(1)
    before = cell.node.raft.log.end, repr(vars(cell.node.tables)), repr(cell.node.live.rows), cell.node.config
    stranger = at(cell, broker_at(1).partition(":")[0])
    stranger.signs = by
    beat = {"clusterName": CLUSTER, "brokerName": SET, "brokerAddr": broker_at(1), "brokerId": 1, "epoch": 9}
    more = {"appliedBrokerId": 3, "registerCheckCode": "x;3", "brokerAddress": broker_at(1), "masterBrokerId": 2,
            "masterEpoch": 9, "brokerControllerIdsToClean": "1"}  # fmt: skip
    for code in (*ROUTES, 99_999):
        answer = stranger.ask(code, {**beat, **more}, b"notifyBrokerRoleChanged=false")
        assert answer.code == 16 and not answer.body and len(answer.ext) == 0, code
    stranger.send(Ask.BROKER_HEARTBEAT, beat, oneway=True)
    lines = [json.loads(line) for line in group.audited]
    assert len(lines) == len(ROUTES) + 2
    assert not [line for line in lines if line["allowed"]], "what nodes do has no line"
    assert {line.get("user") for line in lines} == {None if by is None else by.access_key}
    stranger.close()
    assert (cell.node.raft.log.end, repr(vars(cell.node.tables)), repr(cell.node.live.rows), cell.node.config) == before
    assert {route.asks for route in ROUTES.values()} == {Asks.SUPER}
    assert Client(cell).ask(Ask.CONTROLLER_GET_METADATA_INFO).code == 0


def test_who_does_not_sign_is_no_controller() -> None:
    group = Group(3, signs=Credentials("nodes", "nodes-secret"))
    leader = group.start()
    before = terms_on_disk(group), leader.node.raft.log.end
    for cell in group.cells.values():
        other = next(name for name in group.cells if name != cell.name)
        for code, message in [*words(other, cell.name, 9, 1), (DLedgerRequest.METADATA, Message(group="cg"))]:
            client = at(cell, address(other).partition(":")[0])
            say(client, code, message)
            assert client.closed and not client.got, code
    assert (terms_on_disk(group), leader.node.raft.log.end) == before
    told = [note for note in leader.notes if "is refused, and its connection closed" in note]
    assert told and len(told) <= len(DLedgerRequest), "one line for each kind of request"
    register(Client(leader), 1)
    leader.kill()
    register(Client(group.until_active()), 2)


def test_what_brokers_are_told_by_controllers_is_signed() -> None:
    inner = Credentials("nodes", "nodes-secret")
    group = Group(signs=inner)
    cell = group.start()
    register(Client(cell), 1)
    broker = Client(cell)
    broker.beat(1)
    assert broker.ask(Ask.CONTROLLER_ELECT_MASTER, {"clusterName": CLUSTER, "brokerName": SET, "brokerId": 1}).code == 0
    group.pass_time(1_000)
    assert group.notices
    for _, notice in group.notices:
        fields = {key: value for key, value in notice.ext.items() if key not in ("AccessKey", "Signature")}
        assert notice.ext == inner.sign(fields, notice.body)


def terms_on_disk(group: Group) -> list[int]:
    return [
        parse_vote(cell.disk.read(f"dledger-{cell.name}/{VOTE_FILE}") or b"", "")[0] for cell in group.cells.values()
    ]


@pytest.mark.parametrize("machine", ["a stranger's", "a member's own"])
def test_three_controllers_go_on_whatever_terms_somebody_says(machine: str) -> None:
    """Votes with a term of 2^63-1 left them without a leader for ever."""
    group = Group(3)
    active = group.start()
    register(Client(active), 1)
    before = max(terms_on_disk(group))
    for target in group.cells.values():
        for speaker in group.cells:
            host = STRANGER if machine == "a stranger's" else address(speaker).partition(":")[0]
            for term in (LAST, LAST - 1, 1 << 62, -1, -(1 << 63)):
                for index in (LAST, 0, -1):
                    client = at(target, host)
                    for code, message in words(speaker, target.name, term, index):
                        say(client, code, message)
    group.pass_time(10_000)
    assert [cell.stopped for cell in group.cells.values()] == [None] * 3
    assert max(terms_on_disk(group)) <= before + 5
    register(Client(group.until_active()), 2)
    victim = group.until_active()
    victim.kill()
    register(Client(group.until_active()), 3)
    assert group.until_active().node.tables.replicas[SET].brokers.keys() == {1, 2, 3}


def test_nobody_appends_to_the_log_of_controllers() -> None:
    """A client of the group once could: an event in it is an election, whoever wrote it."""
    group = Group(3)
    active = group.start()
    client = Client(active)
    register(client, 1)
    stranger = at(active, STRANGER)
    end = active.node.raft.log.end
    for body in (events.encode(events.CleanBrokerData(SET)), b"nonsense"):
        say(stranger, DLedgerRequest.APPEND, AppendEntryRequest(group="cg", remote_id=active.name, body=body))
        assert Message.from_json(stranger.got[-1].body).code == Raft.UNKNOWN_MEMBER
    group.pass_time(1_000)
    assert active.node.raft.log.end == end and active.node.tables.known(SET)


class Stage:
    """A controller and two brokers, each on a connection from its own machine; 1 is master."""

    def __init__(self) -> None:
        self.group = Group()
        self.cell = self.group.start()
        register(Client(self.cell), 1, 2)
        self.brokers = {number: at(self.cell, f"10.0.5.{number}") for number in (1, 2)}
        for number, client in self.brokers.items():
            client.beat(number)
        ext = {"clusterName": CLUSTER, "brokerName": SET, "brokerId": 1, "designateElect": False}
        self.brokers[1].ask(Ask.CONTROLLER_ELECT_MASTER, ext)
        self.stranger = at(self.cell, STRANGER)
        assert self.where == (1, {1})

    @property
    def where(self) -> tuple[int | None, set[int]]:
        state = self.cell.node.tables.in_sync[SET]
        return state.master, set(state.members)

    def alter(self, client: Client, *ids: int) -> int:
        state = self.cell.node.tables.in_sync[SET]
        ext = {"brokerName": SET, "masterBrokerId": state.master, "masterEpoch": state.master_epoch}
        body = json.dumps({"syncStateSet": list(ids), "syncStateSetEpoch": state.epoch}).encode()
        return client.ask(Ask.CONTROLLER_ALTER_SYNC_STATE_SET, ext, body).code


def test_only_the_master_says_which_replicas_are_in_sync() -> None:
    """A stranger's word would let a replica be elected that lacks what was acknowledged."""
    stage = Stage()
    assert stage.alter(stage.stranger, 1, 2) == Code.CONTROLLER_INVALID_MASTER
    assert stage.alter(stage.brokers[2], 1, 2) == Code.CONTROLLER_INVALID_MASTER
    assert stage.where == (1, {1})
    assert stage.alter(stage.brokers[1], 1, 2) == Code.SUCCESS and stage.where == (1, {1, 2})
    assert stage.alter(stage.stranger, 1) == Code.CONTROLLER_INVALID_MASTER and stage.where == (1, {1, 2})


def test_the_end_of_a_strangers_connection_is_no_masters_end() -> None:
    stage = Stage()
    assert stage.alter(stage.brokers[1], 1, 2) == Code.SUCCESS
    stage.stranger.beat(1, epoch=LAST & 0x7FFFFFFF, maxOffset=LAST, heartbeatTimeoutMills=1)
    stage.stranger.close()
    stage.group.pass_time(1_000)
    assert stage.where == (1, {1, 2})
    assert any("is alive, and its heartbeats come from 10.0.5.1" in note for note in stage.cell.notes)
    stage.brokers[1].close()
    assert stage.where == (2, {2}), "its own connection's is"


def test_a_stranger_moves_no_broker_that_is_alive() -> None:
    """Who has its address would be taken for it at the master's port of replication."""
    stage = Stage()
    ext = {"clusterName": CLUSTER, "brokerName": SET, "brokerId": 2, "brokerAddress": f"{STRANGER}:10911"}
    assert stage.stranger.ask(Ask.CONTROLLER_REGISTER_BROKER, ext).code == Code.CONTROLLER_BROKER_ID_INVALID
    claim = {"clusterName": CLUSTER, "brokerName": SET, "appliedBrokerId": 2, "registerCheckCode": f"{STRANGER}:1;7"}
    assert stage.stranger.ask(Ask.CONTROLLER_APPLY_BROKER_ID, claim).code == Code.CONTROLLER_BROKER_ID_INVALID
    stage.stranger.beat(2, brokerAddr=f"{STRANGER}:10911")
    assert stage.cell.node.tables.address(SET, 2) == broker_at(2)


def test_what_is_open_until_there_are_passwords() -> None:
    """docs/controller.md lists it: tools need these from any machine, and a new broker has none that is known."""
    stage = Stage()
    assert stage.alter(stage.brokers[1], 1, 2) == Code.SUCCESS
    ext = {"clusterName": CLUSTER, "brokerName": SET, "brokerId": 2, "designateElect": True}
    assert stage.stranger.ask(Ask.CONTROLLER_ELECT_MASTER, ext).code == Code.SUCCESS
    assert stage.where == (2, {2}), "but only one in sync and alive"
    claim = {"clusterName": CLUSTER, "brokerName": SET, "appliedBrokerId": 3, "registerCheckCode": f"{STRANGER}:1;7"}
    assert stage.stranger.ask(Ask.CONTROLLER_APPLY_BROKER_ID, claim).code == Code.SUCCESS
    clean = {"clusterName": CLUSTER, "brokerName": SET, "brokerControllerIdsToClean": "3", "isCleanLivingBroker": True}
    assert stage.stranger.ask(Ask.CLEAN_BROKER_DATA, clean).code == Code.SUCCESS
    assert stage.cell.node.tables.replicas[SET].brokers.keys() == {1, 2}
