from __future__ import annotations

from pathlib import Path

import pytest

from broker.harness import Rig
from perseid.wire import fastjson
from perseid.wire.bodies import (
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
    TopicList,
)
from perseid.wire.headers import topics as headers


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def create(rig: Rig, group: SubscriptionGroupConfig) -> int:
    return rig.ask(200, None, group.to_json()).code


def row(rig: Rig, group: str = "g") -> SubscriptionGroupConfig | int:
    answer = rig.ask(352, headers.GetSubscriptionGroupConfigRequest(group=group))
    return answer.code or SubscriptionGroupConfig.from_json(answer.body)


def test_create_read_change(rig: Rig, tmp_path: Path) -> None:
    rig.saved.clear()
    wanted = SubscriptionGroupConfig("g", retry_max_times=3, consume_enable=False)
    assert create(rig, wanted) == 0 and row(rig) == wanted
    assert rig.saved == ["config/subscriptionGroup.json"]
    assert create(rig, wanted) == 0 and len(rig.saved) == 1, "it was so already"
    rig.stop()
    assert row(Rig(tmp_path, rig.now)) == wanted


def test_reading_a_missing_group(rig: Rig, tmp_path: Path) -> None:
    assert row(rig) == SubscriptionGroupConfig("g"), "created on first use, as in the original"
    closed = Rig(tmp_path / "closed", auto_create_subscription_group=False)
    assert row(closed) == 26


def test_groups_that_can_not_be(rig: Rig) -> None:
    assert create(rig, SubscriptionGroupConfig("a b")) == 29
    assert create(rig, SubscriptionGroupConfig("")) == 29
    assert rig.ask(200, None, b"nonsense").code == 1


def test_several_at_once(rig: Rig) -> None:
    wanted = [SubscriptionGroupConfig("x"), SubscriptionGroupConfig("y", retry_queue_nums=2)]
    assert rig.ask(225, None, SubscriptionGroupList(wanted).to_json()).code == 0
    assert row(rig, "y") == wanted[1]


def commit(rig: Rig) -> None:
    rig.send("T")
    row(rig)
    fields = {"consumerGroup": "g", "topic": "T", "queueId": "0", "commitOffset": "1"}
    assert rig.ask(15, fields).code == 0


@pytest.mark.parametrize("clean", [True, False])
def test_delete(rig: Rig, clean: bool) -> None:
    commit(rig)
    rig.saved.clear()
    assert rig.ask(207, headers.DeleteSubscriptionGroupRequest(group_name="g", clean_offset=clean)).code == 0
    assert "g" not in rig.parts.groups
    assert (rig.parts.offsets.topics_of("g") == set()) == clean
    assert rig.saved == ["config/consumerOffset.json"] * clean + ["config/subscriptionGroup.json"]
    assert rig.ask(207, headers.DeleteSubscriptionGroupRequest(group_name="unknown")).code == 0


def test_all_groups(rig: Rig) -> None:
    rig.parts.groups.set_may_read("TOOLS_CONSUMER", "T", False, rig.now)
    answer = rig.ask(201, headers.GetAllSubscriptionGroupConfigRequest())
    wrapper = SubscriptionGroupWrapper.from_json(answer.body)
    assert wrapper.subscription_group_table == rig.parts.groups.rows
    assert wrapper.forbidden_table == {"TOOLS_CONSUMER": {"T": 4}}
    assert wrapper.data_version == rig.parts.groups.version
    assert answer.header(headers.GetAllSubscriptionGroupConfigResponse).total_group_num == 8


def test_pages_of_groups(rig: Rig) -> None:
    rig.parts.groups.set_may_read("TOOLS_CONSUMER", "T", False, rig.now)
    names = sorted(rig.parts.groups.rows)
    version = rig.parts.groups.version.to_json().decode()

    def page(seq: int, count: int, version: str | None) -> SubscriptionGroupWrapper:
        header = headers.GetAllSubscriptionGroupConfigRequest(group_seq=seq, max_group_num=count, data_version=version)
        return SubscriptionGroupWrapper.from_json(rig.ask(201, header).body)

    assert list(page(3, 2, version).subscription_group_table) == names[3:5]
    assert list(page(3, 2, None).subscription_group_table) == names[:2]
    assert page(0, 2, version).forbidden_table == {}
    assert page(7, 9, version).forbidden_table == {"TOOLS_CONSUMER": {"T": 4}}


def test_forbid_and_allow(rig: Rig) -> None:
    def forbidden(readable: bool | None) -> object:
        header = headers.UpdateAndGetGroupForbiddenRequest(group="g", topic="T", readable=readable)
        return fastjson.loads(rig.ask(353, header).body)["readable"]

    assert forbidden(None) is True
    assert forbidden(False) is False
    assert forbidden(None) is False and not rig.parts.groups.may_read("g", "T")
    assert forbidden(True) is True


def test_topics_of_a_group(rig: Rig) -> None:
    commit(rig)
    body = TopicList.from_json(rig.ask(343, headers.QueryTopicsByConsumerRequest(group="g")).body)
    assert body == TopicList(["T"], "127.0.0.1:10911")


def test_subscription_of_a_group(rig: Rig) -> None:
    def subscription(topic: str) -> dict[str, object]:
        header = headers.QuerySubscriptionByConsumerRequest(group="g", topic=topic)
        found: dict[str, object] = fastjson.loads(rig.ask(345, header).body)
        return found

    assert subscription("T") == {"group": "g", "topic": "T"}
    beat = (
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"T","subString":"a"}]}],'
        b'"producerDataSet":[]}'
    )
    assert rig.ask(34, None, beat).code == 0
    known = subscription("T")["subscriptionData"]
    assert isinstance(known, dict) and known["subString"] == "a"
