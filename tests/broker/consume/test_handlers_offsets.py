from __future__ import annotations

from pathlib import Path

import pytest

from broker.harness import NOW, Rig
from perseid.wire import fastjson
from perseid.wire.bodies import ResetOffsetBody
from perseid.wire.codes import RequestCode
from perseid.wire.headers import offsets as headers
from perseid.wire.headers.pull import PullMessageRequest, PullMessageResponse


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def query(rig: Rig, topic: str = "T", group: str = "g", queue_id: int = 0, zero: bool | None = None) -> int | None:
    """The committed offset; None: code 22."""
    answer = rig.ask(
        14,
        headers.QueryConsumerOffsetRequest(
            consumer_group=group, topic=topic, queue_id=queue_id, set_zero_if_not_found=zero
        ),
    )
    if answer.code == 22:
        return None
    assert answer.code == 0
    return answer.header(headers.OffsetResponse).offset


def commit(rig: Rig, offset: int, topic: str = "T", group: str = "g", queue_id: int = 0) -> tuple[int, str | None]:
    answer = rig.ask(
        15,
        headers.UpdateConsumerOffsetRequest(consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset),
    )
    return answer.code, answer.remark


def make_group(rig: Rig, group: str = "g") -> None:
    assert rig.ask(352, {"group": group}).code == 0


def test_commit_and_query(rig: Rig) -> None:
    rig.send("T")
    make_group(rig)
    assert commit(rig, 1) == (0, None)
    assert query(rig) == 1


def test_a_oneway_commit_has_no_answer(rig: Rig) -> None:
    rig.send("T")
    make_group(rig)
    header = headers.UpdateConsumerOffsetRequest(consumer_group="g", topic="T", queue_id=0, commit_offset=1)
    opaque = rig.tell(15, header, oneway=True)
    assert all(answer.opaque != opaque for answer in rig.sent[1])
    assert query(rig) == 1


def test_refused_commits(rig: Rig) -> None:
    rig.send("T")
    assert commit(rig, 1)[0] == 26
    make_group(rig)
    assert commit(rig, 1, topic="U")[0] == 17
    assert commit(rig, -1)[0] == 29
    assert commit(rig, 1, queue_id=-1)[0] == 29
    assert rig.ask(15, {"consumerGroup": "g", "topic": "T"}).code == 1


def test_a_new_group_begins_a_young_queue_at_0(rig: Rig) -> None:
    assert query(rig) is None, "no queue yet"
    rig.send("T")
    assert query(rig) == 0
    assert query(rig, zero=True) == 0
    assert query(rig, zero=False) is None
    assert query(rig, queue_id=1) is None, "no message in this queue"


def test_offsets_survive_a_clean_stop(rig: Rig, tmp_path: Path) -> None:
    rig.send("T")
    make_group(rig)
    commit(rig, 1)
    rig.stop()
    assert query(Rig(tmp_path, rig.now)) == 1


def test_offsets_are_saved_now_and_then(rig: Rig) -> None:
    rig.send("T")
    make_group(rig)
    rig.until(rig.now + 20_000)
    rig.saved.clear()
    rig.until(rig.now + 20_000)
    assert "config/consumerOffset.json" not in rig.saved, "nothing changed"
    commit(rig, 1)
    rig.until(rig.now + 5_000)
    assert rig.saved.count("config/consumerOffset.json") == 1


# ---- a queue's bounds ----


def test_bounds(rig: Rig) -> None:
    for i in range(3):
        rig.now = NOW + i * 1000
        rig.send("T")
    assert rig.ask(30, headers.GetMaxOffsetRequest(topic="T", queue_id=0)).ext["offset"] == "3"
    assert rig.ask(31, headers.GetMinOffsetRequest(topic="T", queue_id=0)).ext["offset"] == "0"
    assert rig.ask(32, headers.GetEarliestMsgStoretimeRequest(topic="T", queue_id=0)).ext["timestamp"] == str(NOW)
    assert rig.ask(30, headers.GetMaxOffsetRequest(topic="T", queue_id=3)).ext["offset"] == "0"
    assert rig.ask(32, headers.GetEarliestMsgStoretimeRequest(topic="T", queue_id=3)).ext["timestamp"] == "-1"


def test_search_by_time(rig: Rig) -> None:
    """Two groups of five, and a time between them (client-traps.md 17)."""
    for at in (NOW, NOW + 10_000):
        rig.now = at
        for _ in range(5):
            rig.send("T")

    def search(timestamp: int, boundary: str | None = None) -> int:
        header = headers.SearchOffsetByTimestampRequest(
            topic="T", queue_id=0, timestamp=timestamp, boundary_type=boundary
        )
        return rig.ask(29, header).header(headers.OffsetResponse).offset

    assert search(NOW + 5_000) == search(NOW + 5_000, "LOWER") == search(NOW + 5_000, "lower") == 5
    assert search(NOW + 5_000, "UPPER") == search(NOW + 5_000, "upper") == 4
    assert search(NOW + 60_000) == 10
    assert search(NOW - 1) == 0


# ---- operators ----


def reset(rig: Rig, timestamp: int, queue_id: int = -1, offset: int | None = None, topic: str = "T") -> object:
    """The new offsets by queue, or the code of the refusal."""
    header = headers.ResetOffsetRequest(
        group="g", topic=topic, timestamp=timestamp, queue_id=queue_id, offset=offset, is_force=True
    )
    answer = rig.ask(222, header)
    if answer.code:
        return answer.code
    table = ResetOffsetBody.from_json(answer.body).offset_table
    return {queue.queue_id: offset for queue, offset in table.items()}


def pull(rig: Rig, offset: int, queue_id: int = 0) -> tuple[int, int]:
    """Code and next offset of a pull that brings its subscription along."""
    header = PullMessageRequest(
        consumer_group="g",
        topic="T",
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=4,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription="*",
    )
    answer = rig.ask(11, header)
    return answer.code, answer.header(PullMessageResponse).next_begin_offset


def test_a_reset_holds_until_the_next_pull(rig: Rig) -> None:
    for _ in range(5):
        rig.send("T")
    make_group(rig)
    commit(rig, 5)
    assert reset(rig, NOW - 1) == {0: 0, 1: 0, 2: 0, 3: 0}
    assert query(rig) == 0
    assert commit(rig, 5) == (0, "Offset has been previously reset")
    assert query(rig) == 0
    assert pull(rig, 5) == (21, 0)
    assert pull(rig, 0) == (0, 5)
    assert commit(rig, 5) == (0, None)
    assert query(rig) == 5


def test_where_a_reset_goes(rig: Rig) -> None:
    for _ in range(5):
        rig.send("T")
    make_group(rig)
    assert reset(rig, -1) == {0: 5, 1: 0, 2: 0, 3: 0}, "a negative time is the end"
    assert reset(rig, NOW - 1, queue_id=0) == {0: 0}
    assert reset(rig, 0, queue_id=0, offset=3) == {0: 3}
    assert reset(rig, -1, queue_id=0, offset=-1) == {0: 5}
    assert query(rig) == 5
    body = rig.ask(222, headers.ResetOffsetRequest(group="g", topic="T", timestamp=0, queue_id=0, offset=3)).body
    assert bytes(body) == b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:3}}'


def test_refused_resets(rig: Rig) -> None:
    assert reset(rig, -1) == 17
    rig.send("T")
    assert reset(rig, -1) == 26
    make_group(rig)
    assert reset(rig, 0, queue_id=0, offset=9) == 1
    assert reset(rig, 0, queue_id=0, offset=2) == {0: 2}, "one beyond the end is let through, as in the original"


def test_only_the_broker_resets(tmp_path: Path) -> None:
    rig = Rig(tmp_path, use_server_side_reset_offset=False)
    rig.send("T")
    make_group(rig)
    assert reset(rig, -1) == 1


def test_all_offsets_for_a_slave(rig: Rig) -> None:
    rig.send("T")
    make_group(rig)
    commit(rig, 1)
    body = bytes(rig.call(RequestCode.GET_ALL_CONSUMER_OFFSET).body)
    assert fastjson.loads(body)["offsetTable"] == {"T@g": {"0": 1}}


def test_clone(rig: Rig) -> None:
    for topic in ("T", "U"):
        rig.send(topic)
        make_group(rig)
        commit(rig, 1, topic=topic)
    header = headers.CloneGroupOffsetRequest(src_group="g", dest_group="one", topic="T")
    rig.call(RequestCode.CLONE_GROUP_OFFSET, header)
    assert (query(rig, "T", "one"), query(rig, "U", "one", zero=False)) == (1, None)
    rig.call(RequestCode.CLONE_GROUP_OFFSET, headers.CloneGroupOffsetRequest(src_group="g", dest_group="all"))
    assert (query(rig, "T", "all"), query(rig, "U", "all")) == (1, 1)


def test_correction(rig: Rig) -> None:
    for _ in range(9):
        rig.send("T")
    for group, offset in (("a", 4), ("b", 6), ("skip", 1), ("behind", 2)):
        make_group(rig, group)
        commit(rig, offset, group=group)

    def corrections(compare: str, skip: str) -> object:
        header = headers.QueryCorrectionOffsetRequest(topic="T", compare_group=compare, filter_groups=skip)
        return fastjson.loads(bytes(rig.call(RequestCode.QUERY_CORRECTION_OFFSET, header).body))

    assert corrections("b", "skip,behind") == {"correctionOffsets": {"0": 4}}
    assert corrections("behind", "skip,behind") == {"correctionOffsets": {"0": 2**63 - 1}}
