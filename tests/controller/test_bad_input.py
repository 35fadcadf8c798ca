"""The rows of bad input that concern a controller: each is refused, and changes nothing."""

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.controller.harness import CLUSTER, SET, Client, Group, broker_at, register
from tests.controller.test_requests import Stage

from perseid.base.machine import Frames
from perseid.controller.commands import MAX_REPLICAS, MAX_TEXT
from perseid.controller.handlers import MAX_NAMES
from perseid.controller.routes import ROUTES
from perseid.wire.codes import RequestCode as Ask
from perseid.wire.codes import ResponseCode as Code
from perseid.wire.command import Command, encode_request
from perseid.wire.dledger import DLedgerRequest


@pytest.fixture
def stage() -> Stage:
    """Brokers 1, 2 and 3 alive, 1 master, 1 and 2 in sync."""
    made = Stage(1, 2, 3)
    assert made.elect(1).code == 0 and made.alter(1, 2).code == 0
    return made


def everything(stage: Stage) -> Any:
    tables = stage.cell.node.tables
    return json.loads(tables.snapshot())


def unchanged(stage: Stage, answer: Command, code: int) -> None:
    assert answer.code == code, answer.remark
    assert stage.state == (1, 1, [1, 2], 2)


def test_stale_epochs(stage: Stage) -> None:
    for epoch in (0, 2, -1, 2**31 - 1, -(2**31)):
        unchanged(stage, stage.alter(1, 2, 3, masterEpoch=epoch), Code.CONTROLLER_FENCED_MASTER_EPOCH)
        unchanged(stage, stage.alter(1, 2, 3, epoch=epoch - 1 if epoch == 2 else epoch), 2001)


def test_an_old_master_after_an_election(stage: Stage) -> None:
    assert stage.elect(2, designateElect=True).code == 0
    answer = stage.alter(1, 2, masterBrokerId=1, masterEpoch=1, epoch=2)
    assert answer.code == Code.CONTROLLER_INVALID_MASTER and stage.state == (2, 2, [2], 3)


def test_foreign_masters(stage: Stage) -> None:
    for number in (2, 3, 9, 0, -1, 2**63 - 1):
        unchanged(stage, stage.alter(1, 2, 3, masterBrokerId=number), Code.CONTROLLER_INVALID_MASTER)


def test_unknown_replicas(stage: Stage) -> None:
    for number in (0, -1, 4, 2**63 - 1, -(2**63)):
        unchanged(stage, stage.alter(1, number), Code.CONTROLLER_INVALID_REPLICAS)
        answer = stage.elect(number, designateElect=True)
        unchanged(stage, answer, 2011 if number == -1 else Code.CONTROLLER_ELECT_MASTER_FAILED)


def test_a_set_of_more_replicas_than_there_can_be(stage: Stage) -> None:
    unchanged(stage, stage.alter(*range(MAX_REPLICAS + 1)), Code.CONTROLLER_INVALID_REPLICAS)


def test_ids_that_are_taken(stage: Stage) -> None:
    before = everything(stage)
    for number in (1, 2, 3):
        assert stage.apply(number, f"10.6.6.6:1;{number}").code == Code.CONTROLLER_BROKER_ID_INVALID
    assert everything(stage) == before


def test_ids_that_are_invented(stage: Stage) -> None:
    before = everything(stage)
    for number in (0, -1, -(2**63), 2**63 - 1):
        assert stage.apply(number, "10.6.6.6:1;1").code == Code.CONTROLLER_BROKER_ID_INVALID
        assert stage.register(number).code == Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    assert everything(stage) == before


def test_codes_and_names_that_are_none(stage: Stage) -> None:
    before = everything(stage)
    for code in ("", ";", ";5", "x" * (MAX_TEXT + 1)):
        assert stage.apply(4, code).code == Code.CONTROLLER_BROKER_ID_INVALID
    for name in ("", "n" * (MAX_TEXT + 1)):
        assert stage.apply(1, "h:1;1", name).code == Code.CONTROLLER_BROKER_ID_INVALID
    stage.die(3)
    assert stage.register(3, "x" * (MAX_TEXT + 1)).code == Code.CONTROLLER_INVALID_REQUEST
    assert everything(stage) == before


def test_a_copied_disk_does_not_take_the_place_of_the_broker_that_it_was_copied_from(stage: Stage) -> None:
    copy = Client(stage.cell)
    answer = stage.register(1, "10.6.6.6:1")
    assert answer.code == Code.CONTROLLER_BROKER_ID_INVALID and broker_at(1) in (answer.remark or "")
    copy.beat(1, brokerAddr="10.6.6.6:1")
    copy.close()
    assert stage.state == (1, 1, [1, 2], 2), "and its death is nothing to the other one"
    assert stage.cell.node.tables.address(SET, 1) == broker_at(1)
    stage.die(1)
    assert stage.register(1, "10.6.6.6:1").code == 0, "a broker that has moved"


def test_a_wiped_broker_with_an_old_id_is_a_slave_that_is_not_in_sync(stage: Stage) -> None:
    """Whoever comes back with an id it had: the set in sync is what the master says, and never what an id says."""
    stage.die(2)
    assert stage.alter(1).code == 0
    back = stage.brokers[2] = Client(stage.cell)
    back.beat(2, epoch=0, maxOffset=0)
    assert stage.register(2).ext["masterBrokerId"] == "1"
    stage.die(1)
    assert stage.state[0] is None and stage.state[2] == [1], "it is not elected"


def test_requests_to_a_controller_that_does_not_lead() -> None:
    group = Group(3)
    active = group.start()
    register(Client(active), 1)
    before = active.node.raft.committed
    for cell in group.cells.values():
        if cell is not active:
            for code in (route.code for route in ROUTES.values() if not route.anywhere):
                assert Client(cell).ask(code).code == Code.CONTROLLER_NOT_LEADER
    assert active.node.raft.committed == before


NO_JSON = [
    b"", b"{", b"[", b"nul", b'{"syncStateSet":', b"\xff\xfe", b'{"syncStateSet":"x"}', b'{"syncStateSet":[1.5]}', b"7",
    b'{"syncStateSet":[99999999999999999999]}', b'{"syncStateSetEpoch":"soon"}', b"[" * 10_000,
]  # fmt: skip
NO_NAMES = [b"{", b"{}", b'"x"', b"[1]", b'["a",null]', b"\xff", json.dumps(["x"] * (MAX_NAMES + 1)).encode()]


@pytest.mark.parametrize("body", NO_JSON, ids=[repr(body[:20]) for body in NO_JSON])
def test_bodies_that_are_no_json(stage: Stage, body: bytes) -> None:
    ext = {"brokerName": SET, "masterBrokerId": 1, "masterEpoch": 1}
    answer = stage.tools.ask(Ask.CONTROLLER_ALTER_SYNC_STATE_SET, ext, body)
    unchanged(stage, answer, Code.SYSTEM_ERROR)


@pytest.mark.parametrize("body", NO_NAMES, ids=[repr(body[:20]) for body in NO_NAMES])
def test_names_that_are_none(stage: Stage, body: bytes) -> None:
    unchanged(stage, stage.tools.ask(Ask.CONTROLLER_GET_SYNC_STATE_DATA, body=body), Code.SYSTEM_ERROR)


@pytest.mark.parametrize(
    ("code", "ext", "field"),
    [
        (1001, {}, "brokerName"),
        (1001, {"brokerName": SET, "masterBrokerId": "x", "masterEpoch": 1}, "masterBrokerId"),
        (1001, {"brokerName": SET, "masterBrokerId": 1, "masterEpoch": 2**31}, "masterEpoch"),
        (1002, {"brokerId": "me"}, "brokerId"),
        (1003, {"brokerName": SET, "brokerAddress": "h:1"}, "brokerId"),
        (1004, {}, "brokerName"),
        (1013, {"brokerName": SET, "appliedBrokerId": "", "registerCheckCode": "h:1;1"}, "appliedBrokerId"),
        (904, {"brokerName": SET}, "clusterName"),
    ],
)  # fmt: skip
def test_headers_that_lack_a_field_or_have_no_number(stage: Stage, code: int, ext: dict[str, Any], field: str) -> None:
    answer = stage.tools.ask(code, ext)
    unchanged(stage, answer, Code.SYSTEM_ERROR)
    assert field in (answer.remark or "") or code == 904


def test_heartbeats_that_make_no_sense(stage: Stage) -> None:
    ext = {"clusterName": CLUSTER, "brokerAddr": "h:1", "brokerName": SET}
    assert stage.tools.ask(904, ext).code == Code.CONTROLLER_INVALID_REQUEST, "no id"
    long = {**ext, "brokerId": 1, "brokerName": "x" * (MAX_TEXT + 1)}
    assert stage.tools.ask(904, long).code == Code.CONTROLLER_INVALID_REQUEST
    for number in (-1, 0, 77, 2**63 - 1):
        stage.tools.beat(number, epoch=2**31 - 1, maxOffset=2**63 - 1, electionPriority=-(2**31))
    stage.die(1)
    assert stage.state == (2, 2, [2], 3), "whoever is not registered is not elected, whatever it says"


def test_a_heartbeat_that_invents_its_epoch_gets_nobody_elected_who_is_not_in_sync(stage: Stage) -> None:
    stage.brokers[3].beat(3, epoch=2**31 - 1, maxOffset=2**63 - 1, electionPriority=-(2**31))
    stage.die(1)
    assert stage.state == (2, 2, [2], 3)


def test_frames_that_are_none_close_their_connection_and_no_other(stage: Stage) -> None:
    bad = Client(stage.cell)
    stage.cell.do(Frames(bad.conn, b"\x00\x00\x00\x08\x00\x00\x00\x04}{}{"))
    assert bad.closed and not stage.tools.closed
    assert stage.tools.ask(Ask.CONTROLLER_GET_REPLICA_INFO, {"brokerName": SET}).code == 0


def test_answers_that_nobody_asked_for(stage: Stage) -> None:
    for code in (0, 200, 1001):
        stage.tools.cell.do(Frames(stage.tools.conn, encode_request(code, 1, {}).replace(b'"flag":0', b'"flag":1')))
    assert stage.tools.ask(Ask.CONTROLLER_GET_REPLICA_INFO, {"brokerName": SET}).code == 0


CODES = st.sampled_from([*ROUTES, *DLedgerRequest, 99])
VALUES = st.one_of(
    st.integers(-(2**64), 2**64).map(str), st.sampled_from(["", "null", "true", "1;2", SET, CLUSTER, "-1", "1"]),
    st.text(max_size=6),
)  # fmt: skip
FIELDS = st.sampled_from(
    ["clusterName", "brokerName", "brokerId", "masterBrokerId", "masterEpoch", "designateElect", "appliedBrokerId",
     "registerCheckCode", "brokerAddress", "brokerAddr", "epoch", "maxOffset", "heartbeatTimeoutMills",
     "isCleanLivingBroker", "brokerControllerIdsToClean"]
)  # fmt: skip
REQUESTS = st.lists(
    st.tuples(CODES, st.dictionaries(FIELDS, VALUES, max_size=8), st.binary(max_size=40) | st.sampled_from(
        [b'{"syncStateSet":[1,2],"syncStateSetEpoch":1}', b'{"syncStateSet":[],"syncStateSetEpoch":2}', b'["broker-a"]']
    )),
    min_size=1, max_size=25,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(REQUESTS, st.integers(0, 2**32))
def test_whatever_is_asked_the_books_stay_right(requests: list[tuple[int, dict[str, str], bytes]], seed: int) -> None:
    """Every turn is followed by `validate`: masters in their sets, channels and rows, waiting requests."""
    random = Random(seed)
    stage = Stage(1, 2)
    stage.elect(1)
    for code, ext, body in requests:
        client = random.choice([stage.tools, *stage.brokers.values()])
        if client.closed:
            continue
        asked = client.send(code, {"brokerName": SET} | ext, body)
        stage.group.run()
        served = code not in set(DLedgerRequest)
        assert not served or client.answer(asked) is not None or client.closed
        if random.random() < 0.2:
            stage.group.pass_time(100)
    assert stage.cell.node.active and not any("Traceback" in note for note in stage.cell.notes), stage.cell.notes
