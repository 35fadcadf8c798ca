"""Statistics, units of queues, cleaning, cold-data flow control."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from broker.harness import NOW, SMALL, Rig
from broker.requests import pull_header
from perseid.base.errors import RequestRefused
from perseid.broker.admin import upkeep
from perseid.broker.config import BrokerConfig
from perseid.broker.consume.cold_reads import FORGOTTEN_MS, MAX_GROUPS, WINDOW_MS, ColdReads
from perseid.wire import fastjson
from perseid.wire.bodies import ConsumeStats, MessageQueue
from perseid.wire.command import Command
from perseid.wire.headers.admin import GetBrokerConsumeStatsRequest, ViewBrokerStatsDataRequest
from perseid.wire.headers.query import QueryConsumeQueueRequest
from perseid.wire.inspection import BrokerStatsData, ConsumeStatsList, QueryConsumeQueueResponseBody


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def beat(rig: Rig, group: str, topic: str) -> None:
    data = {"groupName": group, "subscriptionDataSet": [{"topic": topic, "subString": "a || b"}]}
    body = {"clientID": "c", "consumerDataSet": [data], "producerDataSet": []}
    assert rig.ask(34, None, json.dumps(body).encode(), client=7).code == 0


def commit(rig: Rig, group: str, topic: str, queue_id: int, offset: int) -> None:
    assert rig.ask(352, {"group": group}).code == 0
    header = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id), "commitOffset": str(offset)}
    assert rig.ask(15, header).code == 0


# ---- statistics ----


def stats(rig: Rig, name: str, key: str) -> Command:
    return rig.ask(315, ViewBrokerStatsDataRequest(stats_name=name, stats_key=key))


def test_what_was_counted(rig: Rig) -> None:
    for _ in range(4):
        rig.send("T")
    pulled = rig.ask(11, pull_header(topic="T", queue_offset=0))
    assert pulled.code == 0
    rig.until(NOW + 10_001)
    for name, key in (
        ("TOPIC_PUT_NUMS", "T"), ("GROUP_GET_NUMS", "T@g"), ("BROKER_PUT_NUMS", "C"), ("BROKER_GET_NUMS", "C"),
        ("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", "C"), ("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", "C"),
    ):  # fmt: skip
        answer = stats(rig, name, key)
        assert answer.code == 0, answer.remark
        data = BrokerStatsData.from_json(answer.body)
        assert (data.stats_minute.sum, data.stats_minute.tps > 0, data.stats_minute.avgpt) == (4, True, 1.0), name
    names = list(fastjson.loads(bytes(stats(rig, "TOPIC_PUT_NUMS", "T").body)))
    assert names == ["statsDay", "statsHour", "statsMinute"]


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("TOPIC_PUT_NUMS", "none"), ("GROUP_GET_NUMS", "T"), ("BROKER_PUT_NUMS", "other"), ("NONSENSE", "T"), ("", ""),
        ("TOPIC_PUT_NUMS", "x" * 9000),
    ],
)  # fmt: skip
def test_what_was_not_counted(rig: Rig, name: str, key: str) -> None:
    rig.send("T")
    answer = stats(rig, name, key)
    assert answer.code == 1 and f"The stats <{name}> <{key[:100]}" in (answer.remark or "")


def consume_stats(rig: Rig, *, is_order: bool = False) -> ConsumeStatsList:
    answer = rig.ask(317, GetBrokerConsumeStatsRequest(is_order=is_order))
    assert answer.code == 0, answer.remark
    return ConsumeStatsList.from_json(answer.body)


def test_how_far_all_groups_are(rig: Rig) -> None:
    for _ in range(5):
        rig.send("T")
    rig.send("U")
    commit(rig, "g", "T", 0, 3)
    commit(rig, "g", "U", 0, 1)
    commit(rig, "h", "T", 0, 5)
    found = consume_stats(rig)
    assert (found.total_diff, found.broker_addr) == (2, rig.config.address)
    rows = fastjson.loads(bytes(rig.ask(317).body))["consumeStatsList"]
    by_group = {group: tables for row in rows for group, tables in row.items()}
    assert len(by_group["g"]) == 2 and len(by_group["h"]) == 1
    table = ConsumeStats.from_json(by_group["g"][0]).offset_table
    wrapper = table[MessageQueue("T", "b", 0)]
    assert (wrapper.broker_offset, wrapper.consumer_offset, len(table)) == (5, 3, 4)
    beat(rig, "g", "U")
    assert consume_stats(rig).total_diff == 0, "its living members don't want T"
    assert consume_stats(rig, is_order=True).total_diff == 0


def test_too_many_groups_for_one_answer(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.send("T")
    commit(rig, "g", "T", 0, 1)
    monkeypatch.setattr(upkeep, "MAX_ROWS", 3)
    assert rig.ask(317).code == 1


# ---- queues ----


def units(
    rig: Rig, topic: str = "T", queue_id: int = 0, index: int = 0, count: int = 10, group: str | None = None
) -> Command:
    header = QueryConsumeQueueRequest(topic=topic, queue_id=queue_id, index=index, count=count, consumer_group=group)
    return rig.ask(321, header)


def test_the_units_of_a_queue(rig: Rig) -> None:
    for _ in range(3):
        rig.send("T", properties="TAGS\x01a\x02UNIQ_KEY\x01U\x02")
    body = QueryConsumeQueueResponseBody.from_json(units(rig, index=1).body)
    assert (body.min_queue_index, body.max_queue_index, len(body.queue_data)) == (0, 3, 2)
    first = body.queue_data[0]
    unit = rig.parts.store.reads.unit("T", 0, 1)
    assert unit is not None
    assert (first.physic_offset, first.physic_size, first.tags_code) == (unit.physical_offset, unit.size, ord("a"))
    assert len(QueryConsumeQueueResponseBody.from_json(units(rig, count=1).body).queue_data) == 1


def test_what_a_group_wants_of_it(rig: Rig) -> None:
    rig.send("T")
    body = QueryConsumeQueueResponseBody.from_json(units(rig, group="g").body)
    assert body.subscription_data is None and body.filter_data == "g@T is not online!"
    beat(rig, "g", "T")
    body = QueryConsumeQueueResponseBody.from_json(units(rig, group="g").body)
    assert body.subscription_data is not None and body.subscription_data.sub_string == "a || b"


@pytest.mark.parametrize(("index", "count"), [(-1, 10), (1, 10), (1 << 62, 10), (0, 0), (0, -5)])
def test_no_units(rig: Rig, index: int, count: int) -> None:
    rig.send("T")
    answer = units(rig, index=index, count=count)
    assert answer.code == 0 and QueryConsumeQueueResponseBody.from_json(answer.body).queue_data == []


@pytest.mark.parametrize(("topic", "queue_id"), [("none", 0), ("T", 1), ("T", -1), ("", 0)])
def test_no_such_queue(rig: Rig, topic: str, queue_id: int) -> None:
    rig.send("T")
    assert units(rig, topic, queue_id).code == 1
    assert rig.ask(321).code == 1, "no field at all"


def test_queues_of_topics_that_are_gone_are_cleaned(rig: Rig) -> None:
    rig.send("T")
    rig.send("U")
    rig.send("T", properties="DELAY\x011\x02")
    del rig.parts.topics.rows["U"]
    assert rig.ask(316).code == 0
    left = {topic for topic, _ in rig.parts.store.queues.table}
    assert left == {"T", "SCHEDULE_TOPIC_XXXX"}
    assert not rig.disk.list("consumequeue/U")


def test_a_slave_cleans_no_topics(tmp_path: Path) -> None:
    answer = Rig(tmp_path, broker_role="SLAVE", broker_id=1).ask(316)
    assert answer.code == 1 and "master" in (answer.remark or "")


def test_expired_files_go_when_an_operator_says_so(tmp_path: Path) -> None:
    store = replace(
        SMALL, commit_log_file_bytes=1 << 16, file_reserved_time=1, delete_when="", clean_resource_first_ms=0
    )
    rig = Rig(tmp_path, store=store)
    for _ in range(60):
        rig.send("T", body=bytes(4000))
    rig.until(rig.now + 30_000)
    assert rig.parts.store.log.start == 0 and rig.parts.store.log.end > 3 << 16
    rig.until(rig.now + 5 * 3_600_000)
    rig.now = max(rig.now, int(max(p.stat().st_mtime for p in (tmp_path / "commitlog").iterdir()) * 1000) + 7_200_000)
    assert rig.parts.store.log.start == 0, "not in these hours"
    assert rig.ask(329).code == 0
    rig.until(rig.now + 60_000)
    assert rig.parts.store.log.start >= 1 << 16
    assert rig.ask(306).code == 0
    queue = rig.parts.store.queues.get("T", 0)
    assert queue is not None and queue.min > 0 and queue.end == 60, "a queue never starts anew"


# ---- reads from the disk ----

LITE_PULL = 361
"""Always served by the ordinary handler, whose store the test changes."""
LIMITED = BrokerConfig(cold_data_flow_control_enable=True, cg_cold_read_threshold=100, global_cold_read_threshold=1000)


def test_a_group_that_reads_too_much_waits_for_the_next_window() -> None:
    cold = ColdReads()
    cold.admit(LIMITED, "g", 60, NOW)
    cold.admit(LIMITED, "g", 60, NOW + 1)
    with pytest.raises(RequestRefused, match="flow control"):
        cold.admit(LIMITED, "g", 1, NOW + 2)
    cold.admit(LIMITED, "h", 1, NOW + 2)
    cold.admit(replace(LIMITED, cold_data_flow_control_enable=False), "g", 1, NOW + 2)
    cold.admit(LIMITED, "g", 1, NOW + WINDOW_MS)


def test_all_together_have_a_limit_and_some_have_their_own() -> None:
    cold = ColdReads()
    cold.set_limits({"g": 5000})
    cold.admit(LIMITED, "g", 400, NOW)
    cold.admit(LIMITED, "g", 600, NOW)
    for group in ("g", "new"):
        with pytest.raises(RequestRefused):
            cold.admit(LIMITED, group, 1, NOW)


def test_what_is_kept_is_bounded() -> None:
    cold = ColdReads()
    for number in range(MAX_GROUPS + 5):
        cold.admit(LIMITED, str(number), 0, NOW)
    assert len(fastjson.loads(cold.info(LIMITED, NOW))["runtimeTable"]) == MAX_GROUPS
    assert fastjson.loads(cold.info(LIMITED, NOW + FORGOTTEN_MS))["runtimeTable"] == {}
    cold.set_limits({str(number): 1 for number in range(MAX_GROUPS)})
    with pytest.raises(RequestRefused):
        cold.set_limits({"one more": 1})


def test_operators_set_limits(rig: Rig) -> None:
    assert rig.ask(2001, None, b"g=7\nh=8\n").code == 0
    assert rig.ask(2002, None, b"h").code == 0
    assert rig.ask(2002, None, b"nobody").code == 0
    info = fastjson.loads(bytes(rig.ask(2003).body))
    assert info == {
        "runtimeTable": {}, "configTable": {"g": 7}, "cgColdReadThreshold": 3 << 20,
        "globalColdReadThreshold": 100 << 20, "globalAcc": 0,
    }  # fmt: skip


@pytest.mark.parametrize("body", [b"g=1\nh=-1", b"h=", b"h=many", b"h=" + b"9" * 30, b"\xff=1"])
def test_limits_that_can_not_be(rig: Rig, body: bytes) -> None:
    assert rig.ask(2001, None, body).code == 1
    assert rig.parts.fetches.cold.limits == {}
    assert rig.ask(2002, None, b"\xff").code == 1


def test_a_pull_from_the_disk_is_counted_and_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path, cold_data_flow_control_enable=True, cg_cold_read_threshold=1)
    for _ in range(3):
        rig.send("T")
    file = rig.parts.store.log.segments.file(0)
    monkeypatch.setattr(rig.parts.store.reads, "cold", lambda *_: [(file, 0, 100)])
    rig.parts.quick.current = None  # the core sees for itself that they are in memory
    first = rig.tell(LITE_PULL, pull_header(topic="T", queue_offset=0))
    assert rig.answer(first) is None and len(rig.fetches) == 1
    second = rig.answer(rig.tell(LITE_PULL, pull_header(topic="T", queue_offset=0)))
    assert second is not None and second.code == 2 and "reading cold data" in (second.remark or "")
    rig.fetch()
    answer = rig.answer(first)
    assert answer is not None and answer.code == 0
    table = fastjson.loads(bytes(rig.ask(2003).body))["runtimeTable"]
    assert table["g"] == {"coldAcc": 100, "createTimeMills": NOW, "lastColdReadTimeMills": NOW}


def test_a_master_has_no_masters_offset_to_reset(tmp_path: Path) -> None:
    (tmp_path / "master").mkdir()
    (tmp_path / "slave").mkdir()
    assert Rig(tmp_path / "master").ask(908, {"masterFlushOffset": "0"}).code == 0
    answer = Rig(tmp_path / "slave", broker_role="SLAVE", broker_id=1).ask(908, {"masterFlushOffset": "0"})
    assert answer.code == 1 and "histories" in (answer.remark or "")
