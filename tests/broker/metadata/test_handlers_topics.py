from __future__ import annotations

from pathlib import Path

import pytest

from broker.harness import Rig
from perseid.wire import fastjson
from perseid.wire.bodies import (
    CreateTopicListRequestBody,
    DataVersion,
    GroupList,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
)
from perseid.wire.headers import topics as headers


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def create(rig: Rig, topic: str = "T", queues: int = 4, attributes: str | None = None, kind: str = "SINGLE_TAG") -> int:
    header = headers.CreateTopicRequest(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=6,
        topic_filter_type=kind,
        attributes=attributes,
    )
    return rig.ask(17, header).code


def row(rig: Rig, topic: str = "T") -> TopicConfig | int:
    answer = rig.ask(351, headers.GetTopicConfigRequest(topic=topic))
    return answer.code or TopicConfig.from_json(answer.body)


def test_create_read_change(rig: Rig) -> None:
    assert row(rig) == 17
    assert create(rig) == 0
    assert row(rig) == TopicConfig("T", 4, 4)
    rig.saved.clear()
    assert create(rig) == 0 and rig.saved == [], "it was so already"
    assert create(rig, queues=8) == 0 and rig.saved == ["config/topics.json"]
    assert row(rig) == TopicConfig("T", 8, 8)


@pytest.mark.parametrize("flag", [None, 0, 1, 3])
@pytest.mark.parametrize("order", [False, True])
def test_a_topic_has_all_that_it_was_made_with(rig: Rig, flag: int | None, order: bool) -> None:
    header = headers.CreateTopicRequest(
        topic="T", default_topic="TBW102", read_queue_nums=3, write_queue_nums=2, perm=4,
        topic_filter_type="MULTI_TAG", topic_sys_flag=flag, order=order,
    )  # fmt: skip
    assert rig.ask(17, header).code == 0
    found = row(rig)
    assert isinstance(found, TopicConfig)
    assert (found.read_queue_nums, found.write_queue_nums, found.perm) == (3, 2, 4)
    assert (found.topic_filter_type, found.topic_sys_flag, found.order) == ("MULTI_TAG", flag or 0, order)


def test_a_created_topic_survives(rig: Rig, tmp_path: Path) -> None:
    create(rig, attributes="+message.type=FIFO")
    rig.stop()
    assert row(Rig(tmp_path, rig.now)) == TopicConfig("T", 4, 4, attributes={"message.type": "FIFO"})


@pytest.mark.parametrize(
    ("topic", "more", "code"),
    [
        ("", {}, 29),
        ("a b", {}, 29),
        ("x" * 128, {}, 29),
        ("TBW102", {}, 29),
        ("b", {}, 29),
        ("rmq_sys_x", {}, 29),
        ("T", {"queues": -1}, 29),
        ("T", {"queues": 1_000_000_000}, 29),
        ("T", {"attributes": "+message.type=MIXED"}, 29),
        ("T", {"attributes": "+nonsense=1"}, 1),
        ("T", {"attributes": "nonsense"}, 1),
        ("T", {"kind": "NO_TAG"}, 1),
    ],
)
def test_topics_that_can_not_be(rig: Rig, topic: str, more: dict[str, object], code: int) -> None:
    version = rig.parts.topics.version.counter
    assert create(rig, topic, **more) == code  # type: ignore[arg-type]
    assert rig.parts.topics.version.counter == version


def test_mixed_messages_where_they_are_allowed(tmp_path: Path) -> None:
    assert create(Rig(tmp_path, enable_mixed_message_type=True), attributes="+message.type=MIXED") == 0


def test_several_at_once(rig: Rig) -> None:
    body = CreateTopicListRequestBody([TopicConfig("A", 1, 1), TopicConfig("B", 2, 2)]).to_json()
    assert rig.ask(18, None, body).code == 0
    assert row(rig, "A") == TopicConfig("A", 1, 1) and row(rig, "B") == TopicConfig("B", 2, 2)
    body = CreateTopicListRequestBody([TopicConfig("C1", 1, 1), TopicConfig("TBW102", 2, 2)]).to_json()
    assert rig.ask(18, None, body).code == 29


# ---- delete ----


def commit(rig: Rig, topic: str, group: str = "g") -> None:
    rig.ask(352, {"group": group})
    fields = {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": "1"}
    assert rig.ask(15, fields).code == 0


def delete(rig: Rig, topic: str) -> int:
    return rig.ask(215, headers.DeleteTopicRequest(topic=topic)).code


def test_delete_and_create_again(rig: Rig) -> None:
    """Queue offsets start at 0 again, and so do the groups (client-traps.md 19)."""
    for _ in range(3):
        rig.send("T")
    commit(rig, "T")
    assert delete(rig, "T") == 0
    assert row(rig) == 17 and rig.parts.offsets.groups_of("T") == set()
    assert rig.saved.index("config/consumerOffset.json") < len(rig.saved) - 1 - rig.saved[::-1].index(
        "config/topics.json"
    )
    assert rig.send("T").queue_offset == 0
    assert rig.parts.store.reads.max_offset("T", 0) == 1


def test_deletion_survives(rig: Rig, tmp_path: Path) -> None:
    rig.send("T")
    rig.send("U")
    commit(rig, "T")
    delete(rig, "T")
    rig.stop()
    again = Rig(tmp_path, rig.now)
    assert row(again) == 17 and not isinstance(row(again, "U"), int)
    assert again.parts.offsets.groups_of("T") == set()
    assert again.send("T").queue_offset == 0


def test_pop_retry_topics_go_along(rig: Rig) -> None:
    for topic in ("T", "%RETRY%g_T", "%RETRY%g+T", "%RETRY%h_T", "%RETRY%g"):
        rig.parts.topics.ensure(topic, 1, rig.now)
    commit(rig, "T")
    assert delete(rig, "T") == 0
    left = [topic for topic in rig.parts.topics.rows if topic.startswith("%RETRY%")]
    assert left == ["%RETRY%h_T", "%RETRY%g"]


def test_deletions_that_can_not_be(rig: Rig) -> None:
    assert delete(rig, "TBW102") == 29
    assert delete(rig, "  ") == 29
    assert delete(rig, "unknown") == 0


# ---- all topics ----


def page(
    rig: Rig, seq: int | None = None, count: int | None = None, version: str | None = None
) -> tuple[int, list[str]]:
    answer = rig.ask(21, headers.GetAllTopicConfigRequest(topic_seq=seq, max_topic_num=count, data_version=version))
    wrapper = TopicConfigSerializeWrapper.from_json(answer.body)
    assert wrapper.data_version == rig.parts.topics.version
    total = answer.header(headers.GetAllTopicConfigResponse).total_topic_num
    assert total == len(rig.parts.topics)
    return total, list(wrapper.topic_config_table)


def test_all_topics_at_once(rig: Rig) -> None:
    create(rig)
    total, names = page(rig)
    assert total == len(names) and {"T", "TBW102"} <= set(names)
    body = bytes(rig.ask(21, headers.GetAllTopicConfigRequest()).body)
    assert body.startswith(b'{"dataVersion":{"counter":') and b'"topicQueueMappingInfoMap":{}' in body


def test_pages_of_topics(rig: Rig) -> None:
    create(rig)
    names = sorted(rig.parts.topics.rows)
    version = rig.parts.topics.version.to_json().decode()
    assert page(rig, 0, 5)[1] == names[:5]
    assert page(rig, 5, 5, version)[1] == names[5:10]
    assert page(rig, 5, 5, DataVersion().to_json().decode())[1] == names[:5], "another version: from the start"
    assert page(rig, 5, 5, "nonsense")[1] == names[:5]
    assert page(rig, 5, None, version)[1] == names[5:]
    assert page(rig, 5_000, 5, version)[1] == []


# ---- who and what ----


def test_who_consumes_a_topic(rig: Rig) -> None:
    rig.send("T")
    commit(rig, "T", "committed")
    beat = (
        b'{"clientID":"c","consumerDataSet":[{"groupName":"subscribed","subscriptionDataSet":[{"topic":"T"}]}],'
        b'"producerDataSet":[]}'
    )
    assert rig.ask(34, None, beat).code == 0
    answer = rig.ask(300, headers.QueryTopicConsumeByWhoRequest(topic="T"))
    assert GroupList.from_json(answer.body).group_list == ["committed", "subscribed"]
    answer = rig.ask(300, headers.QueryTopicConsumeByWhoRequest(topic="U"))
    assert fastjson.loads(answer.body) == {"groupList": []}


def test_system_topics(rig: Rig) -> None:
    names = TopicList.from_json(rig.ask(305).body).topic_list
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "C", "b"} <= set(names) and "T" not in names
