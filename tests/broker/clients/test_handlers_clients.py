from __future__ import annotations

from pathlib import Path

import pytest

from broker.harness import Rig
from perseid.wire.bodies import (
    CheckClientRequestBody,
    ConsumerData,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from perseid.wire.headers.clients import HeartbeatResponse, UnregisterClientRequest


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def beat(
    rig: Rig,
    client: int = 1,
    group: str = "g",
    topics: tuple[str, ...] = ("T",),
    *,
    fingerprint: int = 0,
    without_sub: bool = False,
    unit_mode: bool = False,
    producer: str = "p",
) -> HeartbeatResponse:
    wants = [SubscriptionData(topic, "*", sub_version=rig.now) for topic in topics]
    data = HeartbeatData(
        f"c{client}",
        [ProducerData(producer)],
        [ConsumerData(group, subscription_data_set=wants, unit_mode=unit_mode)],
        fingerprint,
        without_sub,
    )
    answer = rig.ask(34, None, data.to_json(), client=client)
    assert answer.code == 0, answer.remark
    return answer.header(HeartbeatResponse)


def members(rig: Rig, group: str = "g") -> list[str] | int:
    answer = rig.ask(38, {"consumerGroup": group}, client=9)
    if answer.code:
        return answer.code
    return GetConsumerListByGroupResponseBody.from_json(answer.body).consumer_id_list


def test_a_heartbeat_makes_a_member_its_group_and_its_retry_topic(rig: Rig) -> None:
    answer = beat(rig)
    assert answer.is_support_heart_beat_v2 and answer.is_sub_change
    assert members(rig) == ["c1"]
    assert "g" in rig.parts.groups and "p" in rig.parts.producers
    row = rig.parts.topics.get("%RETRY%g")
    assert row is not None and (row.read_queue_nums, row.write_queue_nums, row.perm) == (1, 1, 6)
    assert "config/topics.json" in rig.saved and "config/subscriptionGroup.json" in rig.saved


def test_the_same_heartbeat_again_saves_nothing(rig: Rig) -> None:
    beat(rig)
    rig.saved.clear()
    beat(rig)
    assert rig.saved == []


def test_the_retry_topic_of_unit_consumers_and_of_ordered_topics(rig: Rig) -> None:
    rig.send("T")
    rig.parts.topics.set_order(["T"], rig.now)
    beat(rig, group="u", unit_mode=True)
    row = rig.parts.topics.get("%RETRY%u")
    assert row is not None and row.topic_sys_flag == 2 and row.order


def test_no_group_no_member(tmp_path: Path) -> None:
    rig = Rig(tmp_path, auto_create_subscription_group=False)
    beat(rig)
    assert members(rig) == 1 and "%RETRY%g" not in rig.parts.topics
    assert "p" in rig.parts.producers


def test_members_are_told_at_once(rig: Rig) -> None:
    beat(rig, 1)
    rig.told(1, 40)
    beat(rig, 2)
    assert len(rig.told(1, 40)) == len(rig.told(2, 40)) == 1
    rig.leave(2)
    notices = rig.told(1, 40)
    assert len(notices) == 1 and notices[0].is_oneway and notices[0].ext == {"consumerGroup": "g"}
    assert members(rig) == ["c1"]


def test_a_notice_is_not_sent_to_the_one_that_left(rig: Rig) -> None:
    beat(rig, 1)
    beat(rig, 2)
    rig.told(2, 40)
    rig.leave(2)
    assert rig.told(2, 40) == []


def test_good_bye(rig: Rig) -> None:
    beat(rig, 1)
    beat(rig, 2)
    rig.told(2, 40)
    header = UnregisterClientRequest(client_id="c1", producer_group="p", consumer_group="g")
    assert rig.ask(35, header).code == 0
    assert members(rig) == ["c2"] and len(rig.told(2, 40)) == 1
    assert [client.client_id for client in rig.parts.producers.clients("p")] == ["c2"]
    assert rig.ask(35, UnregisterClientRequest(client_id="c1")).code == 0


def test_silence_ends_a_membership_and_its_connection(rig: Rig) -> None:
    beat(rig, 1)
    rig.until(rig.now + 60_000)
    beat(rig, 2)
    rig.told(2, 40)
    rig.until(rig.now + 60_000)
    assert members(rig) == ["c1", "c2"]
    rig.until(rig.now + 15_000)
    assert members(rig) == ["c2"] and set(rig.closed) == {1} and len(rig.told(2, 40)) == 1


def test_heartbeats_without_subscriptions(rig: Rig) -> None:
    assert beat(rig, topics=(), fingerprint=7, without_sub=True).is_sub_change, "nothing is known yet"
    assert not beat(rig, fingerprint=7).is_sub_change
    assert not beat(rig, topics=(), fingerprint=7, without_sub=True).is_sub_change
    assert rig.parts.consumers.groups_of("T") == {"g"}
    assert beat(rig, topics=(), fingerprint=8, without_sub=True).is_sub_change


@pytest.mark.parametrize("body", [b"", b"nonsense", b"[]", b'{"clientID":5,"consumerDataSet":7}'])
def test_a_heartbeat_that_is_none(rig: Rig, body: bytes) -> None:
    assert rig.ask(34, None, body).code == 1


def test_nobody_there(rig: Rig) -> None:
    answer = rig.ask(38, {"consumerGroup": "nobody"})
    assert (answer.code, answer.remark) == (1, "no consumer for this group, nobody")


@pytest.mark.parametrize(
    ("subscription", "code"),
    [
        (SubscriptionData("T", "a || b"), 0),
        (SubscriptionData("T", "*", expression_type="TAG"), 0),
        (SubscriptionData("T", "a > 1", expression_type="SQL92"), 1),
        (None, 0),
    ],
)
def test_checks_of_subscriptions(rig: Rig, subscription: SubscriptionData | None, code: int) -> None:
    body = CheckClientRequestBody("c1", "g", subscription_data=subscription).to_json()
    assert rig.ask(46, None, body).code == code
