"""A broker with replicas: what its acknowledgements wait for, what a slave refuses, what operators are told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.harness import NOW, SMALL, Rig
from perseid.replication.config import ReplicationConfig
from perseid.store.timer import checkpoint as checkpoints
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.ha import HEADER_BYTES, decode_header
from perseid.wire.headers.pull import PullMessageRequest
from perseid.wire.headers.send import SendMessageRequest
from perseid.wire.headers.topics import CreateTopicRequest

TWO = ReplicationConfig(in_sync_replicas=2)
SLAVE_1, SLAVE_2 = 901, 902
PLAIN = "UNIQ_KEY\x01ABCDEF0123456789\x02"


def master(root: Path, replication: ReplicationConfig = TWO, **settings: Any) -> Rig:
    return Rig(root, replication=replication, broker_role="SYNC_MASTER", **settings)


def slave(root: Path, **settings: Any) -> Rig:
    return Rig(root, broker_role="SLAVE", broker_id=1, **settings)


def send_header(topic: str = "T", properties: str = PLAIN) -> SendMessageRequest:
    return SendMessageRequest(
        producer_group="p", topic=topic, default_topic="TBW102", default_topic_queue_nums=4, queue_id=0, sys_flag=0,
        born_timestamp=1, flag=0, properties=properties,
    )  # fmt: skip


def pull_header(**changes: Any) -> PullMessageRequest:
    return replace_header(
        PullMessageRequest(
            consumer_group="g", topic="T", queue_id=0, queue_offset=0, max_msg_nums=32, sys_flag=4, commit_offset=0,
            suspend_timeout_millis=0, subscription="*", sub_version=0, expression_type="TAG",
        ),
        **changes,
    )  # fmt: skip


def replace_header(header: PullMessageRequest, **changes: Any) -> PullMessageRequest:
    for name, value in changes.items():
        setattr(header, name, value)
    return header


# ---- acknowledgements ----


@pytest.mark.parametrize("times", [1, 3])
def test_an_answer_waits_for_a_slave(tmp_path: Path, times: int) -> None:
    """The first send goes by the handler, the others the quick way."""
    rig = master(tmp_path)
    rig.follow(SLAVE_1)
    for _ in range(times):
        opaque = rig.tell(RequestCode.SEND_MESSAGE, send_header(), b"body")
        assert rig.answer(opaque) is None
        offset, size = decode_header(rig.streams[SLAVE_1])
        assert len(rig.streams[SLAVE_1]) == HEADER_BYTES + size and offset + size == rig.parts.store.log.end
        rig.streams[SLAVE_1].clear()
        rig.report(SLAVE_1, rig.parts.store.log.end)
        answer = rig.answer(opaque)
        assert answer is not None and answer.code == ResponseCode.SUCCESS


def test_without_slaves_it_says_so_after_a_while_and_the_message_stays(tmp_path: Path) -> None:
    rig = master(tmp_path)
    opaque = rig.tell(RequestCode.SEND_MESSAGE, send_header(), b"body")
    rig.until(rig.now + TWO.slave_timeout - 1)
    assert rig.answer(opaque) is None
    rig.until(rig.now + 1)
    answer = rig.answer(opaque)
    assert answer is not None and answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert rig.parts.store.reads.max_offset("T", 0) == 1


def test_a_message_that_asks_not_to_wait_does_not(tmp_path: Path) -> None:
    rig = master(tmp_path)
    for _ in range(2):
        assert rig.ask(RequestCode.SEND_MESSAGE, send_header(properties=PLAIN + "WAIT\x01false\x02"), b"body").code == 0


def test_with_sync_flush_both_are_waited_for(tmp_path: Path) -> None:
    rig = master(tmp_path, store=replace(SMALL, flush_disk_type="SYNC_FLUSH"))
    rig.follow(SLAVE_1)
    rig.hold_io()
    opaque = rig.tell(RequestCode.SEND_MESSAGE, send_header(), b"body")
    assert not rig.streams[SLAVE_1], "it is not flushed yet"
    while rig.io:
        assert rig.answer(opaque) is None
        rig.finish_io()
    assert rig.answer(opaque) is None and rig.streams[SLAVE_1], "now it is sent"
    rig.report(SLAVE_1, rig.parts.store.log.end)
    answer = rig.answer(opaque)
    assert answer is not None and answer.code == ResponseCode.SUCCESS


def test_a_slow_slave_does_not_hold_up_what_another_has(tmp_path: Path) -> None:
    rig = master(tmp_path)
    rig.follow(SLAVE_1)
    rig.follow(SLAVE_2)
    first = rig.tell(RequestCode.SEND_MESSAGE, send_header(), b"one")
    end = rig.parts.store.log.end
    second = rig.tell(RequestCode.SEND_MESSAGE, send_header(), b"two")
    rig.report(SLAVE_2, end)
    assert rig.answer(first) is not None and rig.answer(second) is None
    rig.report(SLAVE_1, rig.parts.store.log.end)
    assert rig.answer(second) is not None


def test_one_node_waits_for_nobody_and_is_warned_about(tmp_path: Path) -> None:
    rig = master(tmp_path, ReplicationConfig())
    assert rig.ask(RequestCode.SEND_MESSAGE, send_header(), b"body").code == 0
    assert any("waits for no slave" in note.text and note.level == "warning" for note in rig.notes)


# ---- a slave ----


def test_a_slave_takes_no_sends(tmp_path: Path) -> None:
    rig = slave(tmp_path)
    answer = rig.ask(RequestCode.SEND_MESSAGE, send_header(), b"body")
    assert answer.code == ResponseCode.SYSTEM_BUSY and "[REJECTREQUEST]" in (answer.remark or "")
    assert rig.parts.store.log.end == 0


def test_a_slave_changes_no_topics(tmp_path: Path) -> None:
    rig = slave(tmp_path)
    header = CreateTopicRequest(
        topic="T", default_topic="TBW102", read_queue_nums=4, write_queue_nums=4, perm=6, topic_filter_type="SINGLE_TAG"
    )
    for code in (RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC):
        answer = rig.ask(code, header)
        assert answer.code == ResponseCode.SYSTEM_ERROR and "slave" in (answer.remark or "")


def test_a_slave_is_read_from_only_with_slave_read_enable(tmp_path: Path) -> None:
    answer = slave(tmp_path / "no").ask(RequestCode.PULL_MESSAGE, pull_header())
    assert answer.code == ResponseCode.SYSTEM_BUSY and "slaveReadEnable is false" in (answer.remark or "")
    answer = slave(tmp_path / "yes", slave_read_enable=True).ask(RequestCode.PULL_MESSAGE, pull_header())
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


def test_a_slave_delivers_nothing_that_was_delayed(tmp_path: Path) -> None:
    rig = slave(tmp_path)
    rig.until(rig.now + 60_000)
    assert rig.parts.store.log.end == 0 and rig.parts.delay.next_deadline() is None


def test_a_reader_far_behind_is_sent_to_the_slave(tmp_path: Path) -> None:
    store = replace(SMALL, physical_memory_bytes=1_000, access_message_in_memory_max_ratio=40)
    rig = master(tmp_path, ReplicationConfig(), store=store, slave_read_enable=True)
    for number in range(8):
        rig.send("T", body=b"x" * 200, properties=f"UNIQ_KEY\x01ABCDEF{number}\x02")
    far = rig.ask(RequestCode.PULL_MESSAGE, pull_header(max_msg_nums=1))
    near = rig.ask(RequestCode.PULL_MESSAGE, pull_header(queue_offset=7))
    assert (far.ext["suggestWhichBrokerId"], near.ext["suggestWhichBrokerId"]) == ("1", "0")


# ---- what is told ----


def test_ha_status_of_a_master(tmp_path: Path) -> None:
    rig = master(tmp_path)
    rig.follow(SLAVE_1)
    rig.tell(RequestCode.SEND_MESSAGE, send_header(), b"body")
    rig.until(rig.now + 2_000)
    end = rig.parts.store.log.end
    told = json.loads(bytes(rig.ask(RequestCode.GET_BROKER_HA_STATUS).body))
    [one] = told["haConnectionInfo"]
    assert (told["master"], told["masterCommitLogMaxOffset"], told["inSyncSlaveNums"]) == (True, end, 1)
    assert (one["slaveAckOffset"], one["diff"], one["inSync"], one["transferFromWhere"]) == (0, end, True, end)
    assert one["lagMillis"] >= 2_000
    table = json.loads(bytes(rig.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body))["table"]
    assert table["slaveLagBytes_0"] == str(end) and float(table["slaveLagSeconds_0"]) >= 2
    rig.report(SLAVE_1, end)
    told = json.loads(bytes(rig.ask(RequestCode.GET_BROKER_HA_STATUS).body))
    assert told["haConnectionInfo"][0]["lagMillis"] == 0 == told["haConnectionInfo"][0]["diff"]


def test_ha_status_of_a_slave(tmp_path: Path) -> None:
    rig = Rig(
        tmp_path, replication=ReplicationConfig(ha_master_address="10.0.0.1:10912"), broker_role="SLAVE", broker_id=1
    )
    assert rig.dialled == ["10.0.0.1:10912"]
    told = json.loads(bytes(rig.ask(RequestCode.GET_BROKER_HA_STATUS).body))
    assert told["master"] is False and told["haClientRuntimeInfo"]["masterAddr"] == "10.0.0.1:10912"


def test_what_a_java_slave_copies_is_served(tmp_path: Path) -> None:
    rig = master(tmp_path, ReplicationConfig())
    bodies = {code: bytes(rig.ask(code).body) for code in (43, 45, 402, 60, 61)}
    assert "offsetTable" in json.loads(bodies[43]) and "offsetTable" in json.loads(bodies[45])
    assert json.loads(bodies[402]) == {"messageRequestModeMap": {}}
    timers = checkpoints.decode(bodies[60])
    assert (timers.log_end, timers.queue_offset, timers.master_offset, timers.read_ms) == (0, 0, 0, NOW)
    assert json.loads(bodies[61])["timingCount"] == {}


def test_a_master_follows_nobody_whatever_name_servers_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They answer with the address of whoever registered as master last, under a name that is used twice."""
    rig, asked = Rig(tmp_path), list[str]()
    monkeypatch.setattr(rig.parts.turn, "call", lambda address, *rest: asked.append(address))
    for address in ("10.0.0.2:10911", rig.config.address):
        rig.parts.mode.follow(address, "10.0.0.2:10912", rig.now)
        rig.until(rig.now + 60_000)
    assert asked == [] and not rig.parts.roles.is_slave
