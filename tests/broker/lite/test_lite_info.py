"""What operators see of lite topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.harness import Rig
from broker.lites import (
    BROKER_INFO,
    CLIENT,
    CLIENT_INFO,
    GROUP,
    GROUP_INFO,
    PARENT,
    PARENT_INFO,
    TOPIC_INFO,
    ack,
    group,
    new,
    pop,
    send,
    subscribe,
)
from perseid.wire.lite import queue_name

from .test_lite import body_of

A = queue_name(PARENT, "a")


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return new(tmp_path)


def test_what_operators_see(rig: Rig) -> None:
    group(rig, "silent")
    subscribe(rig, "a", "b")
    for number in range(3):
        send(rig, "a", b"%d" % number)
    send(rig, "b", b"x")
    (record,) = pop(rig, max_msg_num=1)
    ack(rig, record)
    assert body_of(rig.ask(BROKER_INFO)) == {
        "storeType": "default", "maxLmqNum": 20_000, "currentLmqNum": 2, "liteSubscriptionCount": 2,
        "orderInfoCount": 1, "cqTableSize": 3, "offsetTableSize": 1, "eventMapSize": 1,
        "topicMeta": {PARENT: -1}, "groupMeta": {PARENT: [GROUP, "silent"]},
    }  # fmt: skip
    assert body_of(rig.ask(PARENT_INFO, {"topic": PARENT})) == {
        "topic": PARENT, "ttl": -1, "groups": [GROUP, "silent"], "lmqNum": 2, "liteTopicCount": 2,
    }  # fmt: skip
    assert body_of(rig.ask(TOPIC_INFO, {"parentTopic": PARENT, "liteTopic": "a"})) == {
        "parentTopic": PARENT, "liteTopic": "a", "subscriber": [{"clientId": CLIENT, "group": GROUP}],
        "topicOffset": {"minOffset": 0, "maxOffset": 3, "lastUpdateTimestamp": rig.now}, "shardingToBroker": True,
    }  # fmt: skip
    asked = {"parentTopic": PARENT, "group": GROUP, "clientId": CLIENT, "maxCount": "1"}
    assert body_of(rig.ask(CLIENT_INFO, asked)) == {
        "parentTopic": PARENT, "group": GROUP, "clientId": CLIENT, "liteTopicCount": 2, "liteTopicSet": [A],
        "lastAccessTime": rig.now, "lastConsumeTime": rig.now,
    }  # fmt: skip
    unknown = body_of(rig.ask(CLIENT_INFO, asked | {"clientId": "unknown"}))
    assert (unknown["liteTopicCount"], unknown["lastAccessTime"]) == (-1, -1)
    lag = body_of(rig.ask(GROUP_INFO, {"group": GROUP, "topK": "5"}))
    assert (lag["totalLagCount"], lag["earliestUnconsumedTimestamp"], lag["lagTimestampTopK"]) == (2, -1, [])
    assert lag["lagCountTopK"] == [{"liteTopic": "a", "lagCount": 2, "earliestUnconsumedTimestamp": rig.now}]
    one = body_of(rig.ask(GROUP_INFO, {"group": GROUP, "liteTopic": "a", "topK": "5"}))
    assert one["liteTopicOffsetWrapper"]["consumerOffset"] == 1 and one["totalLagCount"] == 2
    assert body_of(rig.ask(GROUP_INFO, {"group": GROUP, "liteTopic": "none"}))["totalLagCount"] == -1


def test_how_far_a_group_is_in_a_lite_topic(rig: Rig) -> None:
    """When the last message came that it consumed, and the first one that it did not."""
    subscribe(rig, "a")
    times = []
    for number in range(3):
        rig.until(rig.now + 10)
        send(rig, "a", b"%d" % number)
        times.append(rig.now)
    records = pop(rig)
    popped, seen = rig.now, []
    rig.parts.offsets.commit(A, GROUP, 0, 0, rig.now, 1)
    for consumed in range(4):
        said = body_of(rig.ask(GROUP_INFO, {"group": GROUP, "liteTopic": "a", "topK": "5"}))
        wrapper = said["liteTopicOffsetWrapper"]
        assert (wrapper["brokerOffset"], wrapper["pullOffset"], said["totalLagCount"]) == (3, 0, 3 - consumed)
        seen.append((wrapper["consumerOffset"], wrapper["lastTimestamp"], said["earliestUnconsumedTimestamp"]))
        if consumed < 3:
            assert ack(rig, records[consumed], popped).code == 0
    assert seen == [(0, 0, times[0]), (1, times[0], times[1]), (2, times[1], times[2]), (3, times[2], -1)]


@pytest.mark.parametrize(("asked", "told"), [("-1", 0), ("0", 0), ("1", 1), ("2", 2), ("9", 2)])
def test_an_operator_is_told_as_many_names_as_he_asks_for(rig: Rig, asked: str, told: int) -> None:
    subscribe(rig, "a", "b")
    fields = {"parentTopic": PARENT, "group": GROUP, "clientId": CLIENT, "maxCount": asked}
    info = body_of(rig.ask(CLIENT_INFO, fields))
    assert (info["liteTopicCount"], len(info["liteTopicSet"])) == (2, told)


@pytest.mark.parametrize("interval_ms", [700, 3_000])
def test_who_is_silent_is_forgotten_when_its_time_is_over(tmp_path: Path, interval_ms: int) -> None:
    """Not with the housekeeping of others, some seconds later."""
    rig = new(
        tmp_path, lite_subscription_check_interval=interval_ms, lite_subscription_check_timeout_mills=5_000,
        lite_event_check_interval=100_000,
    )  # fmt: skip
    subscribe(rig, "a", "b")
    began = rig.now
    rig.until(began + 5_000)
    assert body_of(rig.ask(BROKER_INFO))["liteSubscriptionCount"] == 2
    rig.until(began + 5_000 + interval_ms + 1)
    assert body_of(rig.ask(BROKER_INFO))["liteSubscriptionCount"] == 0
