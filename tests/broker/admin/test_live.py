"""What an operator changes at night, by code 25: it takes effect in the running broker, and it is kept."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from broker.harness import NOW, Rig, records
from broker.replication.test_manager import CONTROLLER, master
from broker.requests import send_header
from perseid.base.config import pairs
from perseid.base.machine import Closed, ConnectFailed, Opened
from perseid.disk.port import Usage
from perseid.replication.config import ReplicationConfig
from perseid.wire.bodies import HARuntimeInfo
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode
from perseid.wire.ha import HEADER_BYTES, decode_header
from perseid.wire.headers.namesrv import BrokerHeartbeatRequest
from perseid.wire.headers.pull import PullMessageRequest
from perseid.wire.headers.send import SendMessageResponse

SEND = Code.SEND_MESSAGE_V2
SLAVE_1, SLAVE_2 = 901, 902
HOUR = f"{datetime.fromtimestamp(NOW / 1000).hour:02d}"
OTHER_HOUR = f"{(datetime.fromtimestamp(NOW / 1000).hour + 5) % 24:02d}"


def update(rig: Rig, text: str) -> str:
    """The remark of a change that was taken."""
    answer = rig.ask(Code.UPDATE_BROKER_CONFIG, None, text.encode())
    assert answer.code == 0, answer.remark
    return answer.remark or ""


def refused(rig: Rig, text: str) -> str:
    before = rig.parts.settings.current, rig.parts.store.config, rig.parts.mode.config
    answer = rig.ask(Code.UPDATE_BROKER_CONFIG, None, text.encode())
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert (rig.parts.settings.current, rig.parts.store.config, rig.parts.mode.config) == before
    return answer.remark or ""


def send(rig: Rig, size: int = 5) -> int:
    """The code of a send's answer; each one but the first may go the quick way."""
    return rig.ask(SEND, send_header(), bytes(size)).code


# ---- files that go, and a disk that fills ----


def filled(root: Path, **settings: Any) -> Rig:
    """Three files of the log, two hours old, that no recovery would read."""
    rig = Rig(root, **settings)
    while len(rig.parts.store.log.segments.starts) < 3:
        rig.send("T", body=bytes(100_000))
    rig.until(NOW + 61_000)
    for path in (root / "commitlog").iterdir():
        os.utime(path, (NOW / 1000 - 7200,) * 2)
    return rig


def kept_files(rig: Rig) -> int:
    """Of the log, after the next rounds."""
    rig.until(rig.now + 21_000)
    return len(rig.parts.store.log.segments.starts)


def test_when_files_go_and_how_old(tmp_path: Path) -> None:
    rig = filled(tmp_path)
    assert update(rig, f"deleteWhen={HOUR}") and kept_files(rig) == 3, "72 hours"
    update(rig, "fileReservedTime=1")
    assert kept_files(rig) == 1


def test_an_hour_that_has_gone_by_is_not_kept_to(tmp_path: Path) -> None:
    rig = filled(tmp_path)
    update(rig, f"fileReservedTime=1\ndeleteWhen={OTHER_HOUR}")
    assert kept_files(rig) == 3
    update(rig, f"deleteWhen={OTHER_HOUR};{HOUR}")
    assert kept_files(rig) == 1
    assert "a list of hours" in refused(rig, "deleteWhen=25") and "a whole number" in refused(rig, "fileReservedTime=x")


def test_the_marks_of_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = filled(tmp_path)
    update(rig, f"deleteWhen={OTHER_HOUR}\nfileReservedTime=72")
    monkeypatch.setattr(rig.disk, "usage", lambda path="": Usage(100 << 30, 40 << 30))  # 60 % are used
    assert kept_files(rig) == 3 and send(rig) == 0
    update(rig, "diskSpaceWarningLevelRatio=55")
    assert kept_files(rig) == 3 and send(rig) != 0, "no room for another message"
    update(rig, "diskSpaceWarningLevelRatio=90")
    assert kept_files(rig) == 3 and send(rig) == 0
    update(rig, "cleanFileForciblyEnable=false\ndiskSpaceCleanForciblyRatio=50")
    assert kept_files(rig) == 3, "young files are not to be forced"
    update(rig, "cleanFileForciblyEnable=true")
    assert kept_files(rig) == 1


def test_a_disk_that_is_too_full_takes_away_what_is_old_at_any_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = filled(tmp_path)
    monkeypatch.setattr(rig.disk, "usage", lambda path="": Usage(100 << 30, 40 << 30))
    update(rig, f"deleteWhen={OTHER_HOUR}\nfileReservedTime=1")
    assert kept_files(rig) == 3
    update(rig, "diskMaxUsedSpaceRatio=50")
    assert kept_files(rig) == 1


# ---- sends ----


def test_how_long_a_message_may_be(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    assert [send(rig, 2_000), send(rig, 2_000)] == [0, 0]
    update(rig, "maxMessageSize=1000")
    assert [send(rig, 2_000), send(rig, 1_000), send(rig, 1_001), send(rig, 1_000)] == [13, 0, 13, 0]
    update(rig, "maxMessageSize=3000")
    assert [send(rig, 3_000), send(rig, 3_001), send(rig, 3_000)] == [0, 13, 0]
    assert "at least 1" in refused(rig, "maxMessageSize=0")


def test_a_longer_message_finds_its_way_to_a_slave(tmp_path: Path) -> None:
    """What may be on its way to a slave holds the longest record, or that one would wait for ever."""
    rig = Rig(tmp_path, replication=ReplicationConfig(in_sync_replicas=2, ha_window_bytes=1), broker_role="SYNC_MASTER")
    rig.follow(SLAVE_1)
    update(rig, "maxMessageSize=1")
    update(rig, "maxMessageSize=300000")
    opaque = rig.tell(SEND, send_header(), bytes(250_000))
    rig.report(SLAVE_1, rig.parts.store.log.end)
    answer = rig.answer(opaque)
    assert answer is not None and answer.code == 0


def test_traces_on_and_off(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    update(rig, "traceOn=false")
    for _ in range(2):
        assert rig.ask(SEND, send_header(), b"x").header(SendMessageResponse).trace_on is False
    update(rig, "traceOn=true")
    assert rig.ask(SEND, send_header(), b"x").header(SendMessageResponse).trace_on is True
    assert [record.props["TRACE_ON"] for record in records(rig, send_header().topic)] == ["false", "false", "true"]


def test_what_has_no_effect_says_so(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    assert "no effect: a send waits in no queue of threads" in update(rig, "waitTimeMillsInSendQueue=500")
    assert any("waitTimeMillsInSendQueue: no effect" in note.text for note in rig.notes)
    assert "brokerElectionPriority: no effect: this broker has no controller" in update(rig, "brokerElectionPriority=1")
    assert "inSyncReplicas: no effect: brokerRole is not SYNC_MASTER" in update(rig, "inSyncReplicas=2")
    assert send(rig) == 0, "nobody is waited for"


def test_a_slave_that_is_read_from(tmp_path: Path) -> None:
    rig = Rig(tmp_path, broker_role="SLAVE", broker_id=1)
    pull = PullMessageRequest(
        consumer_group="g", topic="T", queue_id=0, queue_offset=0, max_msg_nums=32, sys_flag=4, commit_offset=0,
        suspend_timeout_millis=0, subscription="*", sub_version=0, expression_type="TAG",
    )  # fmt: skip
    assert rig.ask(Code.PULL_MESSAGE, pull).code == ResponseCode.SYSTEM_BUSY
    update(rig, "slaveReadEnable=true")
    assert rig.ask(Code.PULL_MESSAGE, pull).code != ResponseCode.SYSTEM_BUSY
    update(rig, "slaveReadEnable=false")
    assert rig.ask(Code.PULL_MESSAGE, pull).code == ResponseCode.SYSTEM_BUSY


# ---- name servers and controllers ----


def test_other_name_servers(tmp_path: Path) -> None:
    rig = Rig(tmp_path, namesrv_addr="10.0.0.1:9876;10.0.0.2:9876")
    for number, address in enumerate(("10.0.0.1:9876", "10.0.0.2:9876")):
        rig.handle(Opened(700 + number, address, "10.0.0.9:5", "", address))
    update(rig, "namesrvAddr=10.0.0.2:9876;10.0.0.3:9876")
    assert rig.parts.registration.name_servers == ["10.0.0.2:9876", "10.0.0.3:9876"]
    assert rig.dialled == ["10.0.0.1:9876", "10.0.0.2:9876", "10.0.0.3:9876"]
    assert [one.code for one in rig.sent[700]] == [Code.REGISTER_BROKER, Code.UNREGISTER_BROKER]
    assert [one.code for one in rig.sent[701]] == [Code.REGISTER_BROKER]
    rig.handle(Closed(700, "it is gone"))
    rig.handle(ConnectFailed("10.0.0.3:9876", "nobody is there"))
    rig.until(rig.now + 120_000)
    assert "10.0.0.1:9876" not in rig.dialled[3:] and "10.0.0.3:9876" in rig.dialled[3:]


@pytest.mark.parametrize("text", ["", ";", "a", "a:0", "a:70000", "a:1,b:1", "a:1\\nlistenPort=1", "a:1 # mine"])
@pytest.mark.parametrize("key", ["namesrvAddr", "controllerAddr"])
def test_addresses_that_are_none(tmp_path: Path, key: str, text: str) -> None:
    rig = Rig(tmp_path, **{"namesrv_addr" if key == "namesrvAddr" else "controller_addr": "a:1"})
    assert f"{key}" in refused(rig, f"{key}={text}\n")


def test_other_controllers(tmp_path: Path) -> None:
    made = master(tmp_path)
    made.rig.dialled.clear()
    update(made.rig, f"controllerAddr=10.0.0.78:9878;{CONTROLLER}")
    assert made.rig.dialled == ["10.0.0.78:9878"]
    made.wait(1_000)
    assert made.manager.controllers.leader == CONTROLLER, "it is asked again who leads"
    assert not made.rig.parts.roles.is_slave and made.rig.ask(SEND, send_header(), b"x").code == 0


def test_how_soon_it_is_elected(tmp_path: Path) -> None:
    made = master(tmp_path)
    update(made.rig, "brokerElectionPriority=7")
    made.rig.sent[made.conn].clear()
    made.rig.until(made.rig.now + 1_000)
    beats = [one for one in made.rig.sent[made.conn] if one.code == Code.BROKER_HEARTBEAT]
    assert beats[-1].header(BrokerHeartbeatRequest).election_priority == 7


# ---- what acknowledgements wait for ----


def three(root: Path, nodes: int = 3) -> Rig:
    rig = Rig(root, replication=ReplicationConfig(in_sync_replicas=nodes), broker_role="SYNC_MASTER")
    rig.follow(SLAVE_1)
    rig.follow(SLAVE_2)
    return rig


def test_fewer_nodes_while_answers_wait(tmp_path: Path) -> None:
    """What was sent under a promise keeps it: the operator's change is for what comes then."""
    rig = three(tmp_path)
    before = rig.tell(SEND, send_header(), b"three nodes")
    middle = rig.parts.store.log.end
    rig.report(SLAVE_1, middle)
    update(rig, "inSyncReplicas=2")
    assert rig.answer(before) is None, "it is on two nodes, and three were promised"
    after = rig.tell(SEND, send_header(), b"two nodes")
    rig.report(SLAVE_1, rig.parts.store.log.end)
    assert rig.answer(after) is None, "answers leave in the order of the log"
    rig.report(SLAVE_2, middle)
    assert rig.answer(before) is not None and rig.answer(after) is not None


def test_what_was_promised_before_holds_nobody_up_when_its_time_is_over(tmp_path: Path) -> None:
    rig = three(tmp_path)
    before = rig.tell(SEND, send_header(), b"three nodes")
    rig.report(SLAVE_1, rig.parts.store.log.end)
    update(rig, "inSyncReplicas=2")
    rig.until(rig.now + ReplicationConfig().slave_timeout)
    late = rig.answer(before)
    assert late is not None and late.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    after = rig.tell(SEND, send_header(), b"two nodes")
    rig.report(SLAVE_1, rig.parts.store.log.end)
    answer = rig.answer(after)
    assert answer is not None and answer.code == 0


def test_one_node_and_more_again(tmp_path: Path) -> None:
    rig = three(tmp_path, 2)
    update(rig, "inSyncReplicas=1")
    assert send(rig) == 0 and send(rig) == 0, "nobody is waited for"
    update(rig, "inSyncReplicas=3")
    for _ in range(2):
        opaque = rig.tell(SEND, send_header(), b"x")
        rig.report(SLAVE_1, rig.parts.store.log.end)
        assert rig.answer(opaque) is None
        rig.report(SLAVE_2, rig.parts.store.log.end)
        assert rig.answer(opaque) is not None


def test_a_broker_that_waited_for_nobody(tmp_path: Path) -> None:
    """The quick way learns it too."""
    rig = three(tmp_path, 1)
    assert send(rig) == 0 and send(rig) == 0
    update(rig, "inSyncReplicas=2")
    for _ in range(3):
        opaque = rig.tell(SEND, send_header(), b"x")
        assert rig.answer(opaque) is None
        rig.report(SLAVE_1, rig.parts.store.log.end)
        assert rig.answer(opaque) is not None


def test_how_long_slaves_are_waited_for(tmp_path: Path) -> None:
    rig = three(tmp_path)
    update(rig, "slaveTimeout=100")
    opaque = rig.tell(SEND, send_header(), b"x")
    rig.until(rig.now + 100)
    late = rig.answer(opaque)
    assert late is not None and late.code == ResponseCode.FLUSH_SLAVE_TIMEOUT


def test_all_in_sync_or_a_number(tmp_path: Path) -> None:
    """Under a controller: readers see what was not on all of the set, from then on."""
    made = master(tmp_path, replication=ReplicationConfig(all_ack_in_sync_state_set=True, min_in_sync_replicas=1))
    made.notify(1, 1, [1, 2], set_epoch=2)
    waits = made.rig.tell(SEND, send_header(), b"on all")
    assert made.rig.answer(waits) is None and not records(made.rig, send_header().topic)
    update(made.rig, "allAckInSyncStateSet=false")
    assert made.rig.answer(waits) is None, "it was promised all"
    assert len(records(made.rig, send_header().topic)) == 1
    update(made.rig, "minInSyncReplicas=3")
    answer = made.rig.ask(SEND, send_header(), b"x")
    assert answer.code != 0 and "minInSyncReplicas is 3" in (answer.remark or "")


# ---- limits of the HA stream ----


def test_limits_of_the_stream(tmp_path: Path) -> None:
    rig = three(tmp_path)
    update(rig, "haTransferBatchSize=1000\nhaMaxGapNotInSync=10\nhaSendHeartbeatInterval=100\n")
    update(rig, "haHousekeepingInterval=700")
    rig.streams[SLAVE_1].clear()
    rig.tell(SEND, send_header(), bytes(3_000))
    assert decode_header(rig.streams[SLAVE_1])[1] == 1_000
    status = HARuntimeInfo.from_json(rig.ask(Code.GET_BROKER_HA_STATUS).body)
    assert status.in_sync_slave_nums == 0, "they are more than ten bytes behind"
    rig.streams[SLAVE_1].clear()
    rig.until(rig.now + 101)
    assert len(rig.streams[SLAVE_1]) == HEADER_BYTES, "a sign of life"
    rig.until(rig.now + 700)
    assert {SLAVE_1, SLAVE_2} <= set(rig.closed), "they have been silent for too long"


def test_the_streams_flow(tmp_path: Path) -> None:
    rig = three(tmp_path)
    update(rig, "haFlowControlEnable=true\nmaxHaTransferByteInSecond=1500")
    rig.streams[SLAVE_1].clear()
    rig.tell(SEND, send_header(), bytes(5_000))
    assert len(rig.streams[SLAVE_1]) == HEADER_BYTES + 1_500
    rig.until(rig.now + 1_001)
    assert len(rig.streams[SLAVE_1]) == 2 * (HEADER_BYTES + 1_500)


# ---- as many as are in sync ----


def test_as_many_as_are_in_sync(tmp_path: Path) -> None:
    """enableAutoInSyncReplicas: a slave that leaves holds nobody up, nor does one that is far behind; with fewer than
    minInSyncReplicas nothing is taken."""
    settings = ReplicationConfig(in_sync_replicas=3, enable_auto_in_sync_replicas=True, ha_max_gap_not_in_sync=10_000)
    rig = Rig(tmp_path, replication=settings, broker_role="SYNC_MASTER", enable_slave_acting_master=True)
    assert send(rig) == 0, "alone"
    end = rig.parts.store.log.end
    rig.follow(SLAVE_1, end)
    rig.follow(SLAVE_2, end)
    opaque = rig.tell(SEND, send_header(), b"x")
    rig.report(SLAVE_1, rig.parts.store.log.end)
    assert rig.answer(opaque) is None, "both are in sync"
    rig.handle(Closed(SLAVE_2, "gone"))
    assert rig.answer(opaque) is None, "it was promised three nodes"
    rig.until(rig.now + settings.slave_timeout)
    opaque = rig.tell(SEND, send_header(), b"x")
    assert rig.answer(opaque) is None
    rig.report(SLAVE_1, rig.parts.store.log.end)
    assert rig.answer(opaque) is not None
    update(rig, "minInSyncReplicas=3")
    assert send(rig) == ResponseCode.SYSTEM_ERROR
    assert "more than inSyncReplicas" in refused(rig, "minInSyncReplicas=4")


# ---- the file ----

FILE = "# whose this is\nbrokerName=b\n\n  fileReservedTime = 48 \nmystery=1\n"


def with_file(root: Path, text: bytes = FILE.encode()) -> tuple[Rig, Path]:
    (root / "conf").mkdir()
    path = root / "conf" / "broker.conf"
    path.write_bytes(text)
    return Rig(root, kept=("conf/broker.conf", "")), path


def test_it_is_kept_in_the_file_with_all_else(tmp_path: Path) -> None:
    rig, path = with_file(tmp_path)
    assert update(rig, "fileReservedTime=24\ntraceOn=false\nlongPollingEnable=true") == ""
    assert path.read_text() == FILE.replace("  fileReservedTime = 48 ", "fileReservedTime=24") + "traceOn=false\n"
    assert pairs(bytes(rig.ask(Code.GET_BROKER_CONFIG).body).decode())["fileReservedTime"] == "24"
    path.write_text(path.read_text() + "regionId=theirs\n")
    update(rig, "fileReservedTime=25")
    assert "regionId=theirs\n" in path.read_text(), "what was written into it meanwhile stays"


def test_the_answer_waits_for_the_file(tmp_path: Path) -> None:
    rig, path = with_file(tmp_path)
    rig.hold_io()
    opaque = rig.tell(Code.UPDATE_BROKER_CONFIG, None, b"fileReservedTime=24")
    assert rig.answer(opaque) is None and path.read_text() == FILE
    rig.finish_io()
    assert rig.answer(opaque) is not None and "fileReservedTime=24" in path.read_text()


def test_a_file_that_can_not_be_written(tmp_path: Path) -> None:
    """It says so: what was changed holds until a restart; the broker goes on."""
    rig, _ = with_file(tmp_path)
    rig.hold_io()
    opaque = rig.tell(Code.UPDATE_BROKER_CONFIG, None, b"slaveReadEnable=true")
    rig.fail_io("read-only file system")
    answer = rig.answer(opaque)
    assert answer is not None and answer.code == ResponseCode.SYSTEM_ERROR
    assert "in effect until a restart, and not kept" in (answer.remark or "")
    assert rig.parts.settings.current.slave_read_enable and rig.stopped is None


def test_a_file_that_is_gone_or_none_is_not_made_anew(tmp_path: Path) -> None:
    """A file with nothing but what was changed would be another configuration."""
    rig, path = with_file(tmp_path)
    path.unlink()
    answer = rig.ask(Code.UPDATE_BROKER_CONFIG, None, b"fileReservedTime=24")
    assert answer.code == ResponseCode.SYSTEM_ERROR and "is gone, or can't be read" in (answer.remark or "")
    assert not path.exists()
    path.write_bytes(b"\xff\xfe")
    assert rig.ask(Code.UPDATE_BROKER_CONFIG, None, b"fileReservedTime=25").code == ResponseCode.SYSTEM_ERROR
    assert path.read_bytes() == b"\xff\xfe"


def test_several_in_one_read(tmp_path: Path) -> None:
    """Each follows the one before, and a refused one changes nothing."""
    rig, path = with_file(tmp_path)
    rig.connect(1)
    for text in (b"fileReservedTime=1", b"fileReservedTime=2\nnonsense=1", b"traceOn=false"):
        rig.tell(Code.UPDATE_BROKER_CONFIG, None, text)
    assert pairs(path.read_text())["fileReservedTime"] == "1" and pairs(path.read_text())["traceOn"] == "false"


def test_without_a_file_the_answer_says_so(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    assert update(rig, "fileReservedTime=24").endswith("the broker was started without a configuration file")
    assert update(rig, "fileReservedTime=24") == "", "nothing is changed"
