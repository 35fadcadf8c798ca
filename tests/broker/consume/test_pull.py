"""Pulls: the checks of broker.md §6.1, the answers of §6.2, offsets, and what is known of who pulls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from broker.harness import NOW, Rig
from broker.requests import SUBSCRIPTION, properties, pull_header
from perseid.broker.consume import pull
from perseid.store.results import ReadStatus
from perseid.wire.command import Command
from perseid.wire.record import decode_all

PULL, LITE_PULL = 11, 361
COMMIT = 1


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path)
    for n in range(5):
        rig.send("T", 0, b"%d" % n, properties(UNIQ_KEY=f"ID{n}", TAGS=f"Tag{n % 2}"))
    return rig


def pulled(rig: Rig, code: int = PULL, **fields: Any) -> Command:
    return rig.ask(code, pull_header(**({"sys_flag": SUBSCRIPTION} | fields)))


def bodies(answer: Command) -> list[bytes]:
    return [record.body for record in decode_all(answer.body)]


def heartbeat(rig: Rig, expression: str = "*", *, client: int = 1, group: str = "g", **fields: Any) -> None:
    """The members of a group, as their heartbeats tell."""
    subscription = {"topic": "T", "subString": expression, "subVersion": 100, "expressionType": "TAG"} | fields
    data = {
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": fields.get("model", "CLUSTERING"),
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [subscription],
    }  # fmt: skip
    body = json.dumps({"clientID": f"c{client}", "consumerDataSet": [data], "producerDataSet": []}).encode()
    assert rig.ask(34, None, body, client=client).code == 0


# ---- answers ----


@pytest.mark.parametrize("code", [PULL, LITE_PULL])
def test_found(rig: Rig, code: int) -> None:
    answer = pulled(rig, code, queue_offset=1, max_msg_nums=3)
    assert answer.code == 0 and answer.remark == "FOUND" and bodies(answer) == [b"1", b"2", b"3"]
    assert answer.ext == {
        "suggestWhichBrokerId": "0", "nextBeginOffset": "4", "minOffset": "0", "maxOffset": "5", "topicSysFlag": "0",
        "groupSysFlag": "0",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "code", "status", "next_offset"),
    [
        ({"queue_offset": 5}, 19, "OFFSET_OVERFLOW_ONE", 5),
        ({"queue_offset": 6}, 21, "OFFSET_OVERFLOW_BADLY", 5),
        ({"queue_offset": -1}, 21, "OFFSET_TOO_SMALL", 0),
        ({"queue_offset": 0, "subscription": "Nobody"}, 20, "NO_MATCHED_MESSAGE", 5),
        ({"queue_id": 2, "queue_offset": 0}, 19, "NO_MATCHED_LOGIC_QUEUE", 0),
        ({"queue_id": 2, "queue_offset": 7}, 21, "NO_MATCHED_LOGIC_QUEUE", 0),
    ],
)
def test_nothing_found(rig: Rig, fields: dict[str, Any], code: int, status: str, next_offset: int) -> None:
    answer = pulled(rig, **fields)
    assert (answer.code, answer.remark, answer.ext["nextBeginOffset"]) == (code, status, str(next_offset))
    assert not answer.body


def test_every_status_of_the_store_has_a_code() -> None:
    assert set(pull.CODES) == set(ReadStatus) - {ReadStatus.OFFSET_RESET}


def test_tags(rig: Rig) -> None:
    assert bodies(pulled(rig, subscription="Tag1")) == [b"1", b"3"]
    assert bodies(pulled(rig, subscription="Tag1 || Tag0")) == [b"0", b"1", b"2", b"3", b"4"]


def test_limits_of_one_answer(rig: Rig) -> None:
    assert len(bodies(pulled(rig, max_msg_nums=0))) == 1, "at least one"
    assert len(bodies(pulled(rig, max_msg_nums=-5))) == 1
    assert len(bodies(pulled(rig, max_msg_nums=2**31 - 1))) == 5
    one = len(pulled(rig, max_msg_nums=1).body)
    assert len(bodies(pulled(rig, max_msg_bytes=2 * one))) == 2
    assert len(bodies(pulled(rig, max_msg_bytes=1))) == 1
    assert len(bodies(pulled(rig, max_msg_bytes=-1))) == 5


def test_counted(rig: Rig) -> None:
    pulled(rig)
    pulled(rig, queue_offset=5)
    stats = rig.parts.stats
    assert (stats.get_found.total, stats.get_missed.total, stats.get_total) == (1, 1, 5)


# ---- checks ----


def refused(answer: Command, code: int, words: str) -> None:
    assert answer.code == code and words in (answer.remark or ""), (answer.code, answer.remark)


def test_a_broker_that_may_not_be_read(tmp_path: Path) -> None:
    rig = Rig(tmp_path, broker_permission=2)
    refused(pulled(rig), 16, "the broker[127.0.0.1] pulling message is forbidden")


def test_lite_pulls_switched_off(tmp_path: Path) -> None:
    rig = Rig(tmp_path, lite_pull_message_enable=False)
    rig.send("T")
    refused(pulled(rig, LITE_PULL), 16, "for lite pull consumer is forbidden")
    assert pulled(rig).code == 0


def test_groups(tmp_path: Path) -> None:
    rig = Rig(tmp_path, auto_create_subscription_group=False)
    rig.send("T")
    refused(pulled(rig), 26, "subscription group [g] does not exist")
    assert rig.ask(200, None, b'{"groupName":"g","consumeEnable":false}').code == 0
    refused(pulled(rig), 16, "subscription group no permission, g")


def test_groups_are_made_on_first_use(rig: Rig) -> None:
    assert pulled(rig, consumer_group="new").code == 0 and "new" in rig.parts.groups
    refused(pulled(rig, consumer_group="a/b"), 26, "a/b")
    refused(pulled(rig, consumer_group="x" * 121), 26, "does not exist")


def test_topics(rig: Rig) -> None:
    refused(pulled(rig, topic="Nope"), 17, "topic[Nope] not exist, apply first please!")
    row = {"topic": "W", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "2"}
    rig.ask(17, row | {"topicFilterType": "SINGLE_TAG", "order": "false"})
    refused(pulled(rig, topic="W"), 16, "the topic[W] pulling message is forbidden")


@pytest.mark.parametrize("queue_id", [-1, 4, 2**31 - 1])
def test_queues(rig: Rig, queue_id: int) -> None:
    refused(pulled(rig, queue_id=queue_id), 29, f"queueId[{queue_id}] is illegal, topic:[T]")


def test_subscriptions_that_cannot_be_read(rig: Rig) -> None:
    refused(pulled(rig, subscription="||"), 23, "parse the consumer's subscription failed")
    refused(pulled(rig, expression_type="SQL92", subscription="a > 1"), 1, "to filter message by SQL92")
    assert pulled(rig, subscription=None, expression_type=None).code == 0, "none: all"


# ---- subscriptions by heartbeat ----


def test_a_pull_that_relies_on_heartbeats(rig: Rig) -> None:
    refused(pulled(rig, sys_flag=0), 24, "the consumer's group info not exist")
    heartbeat(rig, "Tag1")
    assert bodies(pulled(rig, sys_flag=0, subscription="*")) == [b"1", b"3"], "the heartbeat's, not its own"
    refused(pulled(rig, sys_flag=0, sub_version=101), 25, "the consumer's subscription not latest")
    rig.send("Other")
    refused(pulled(rig, sys_flag=0, topic="Other"), 24, "the consumer's subscription not exist")


def test_heartbeats_of_a_filter_that_is_none_here(rig: Rig) -> None:
    heartbeat(rig, "a > 1", expressionType="SQL92")
    refused(pulled(rig, sys_flag=0), 1, "SQL92")


def test_broadcast_and_forbidden(rig: Rig) -> None:
    heartbeat(rig, model="BROADCASTING")
    assert rig.ask(200, None, b'{"groupName":"g","consumeBroadcastEnable":false}').code == 0
    refused(pulled(rig, sys_flag=0), 16, "can not consume by broadcast way")
    assert pulled(rig).code == 0, "a pull with its own subscription is not asked"


# ---- what is known of groups without heartbeats ----


def test_a_pull_tells_what_its_group_subscribes_to(rig: Rig) -> None:
    pulled(rig, subscription="Tag1 || Tag0")
    known = rig.parts.consumers.subscription("g", "T")
    assert known is not None and (known.sub_string, known.tags_set) == ("Tag1 || Tag0", ["Tag1", "Tag0"])
    assert known.sub_version == NOW and known.expression_type == "TAG"
    pulled(rig, subscription="*")
    known = rig.parts.consumers.subscription("g", "T")
    assert known is not None and (known.sub_string, known.tags_set) == ("*", [])
    again = rig.parts.consumers.subscription("g", "T")
    pulled(rig)
    assert rig.parts.consumers.subscription("g", "T") is again, "not made anew each time"
    assert rig.parts.consumers.subscription("g", "T", compensated=False) is None


def test_it_is_forgotten_when_the_pulls_end(rig: Rig) -> None:
    for _ in range(20):
        pulled(rig)
        rig.until(rig.now + 60_000)
    assert rig.parts.consumers.subscription("g", "T") is not None, "renewed"
    rig.until(rig.now + 600_000 + 10_000)
    assert rig.parts.consumers.subscription("g", "T") is None


def test_heartbeats_count_more(rig: Rig) -> None:
    heartbeat(rig, "Tag1")
    pulled(rig, subscription="*")
    known = rig.parts.consumers.subscription("g", "T")
    assert known is not None and known.sub_string == "Tag1"


# ---- offsets ----


def test_commits(rig: Rig) -> None:
    pulled(rig, commit_offset=3)
    assert rig.parts.offsets.query("T", "g", 0) is None, "no commit bit"
    pulled(rig, sys_flag=SUBSCRIPTION | COMMIT, commit_offset=3)
    assert rig.parts.offsets.query("T", "g", 0) == 3
    pulled(rig, sys_flag=SUBSCRIPTION | COMMIT, commit_offset=-1)
    assert rig.parts.offsets.query("T", "g", 0) == 3, "none to commit"
    pulled(rig, sys_flag=SUBSCRIPTION | COMMIT, commit_offset=1)
    assert rig.parts.offsets.query("T", "g", 0) == 1, "back, if the client says so"


def test_a_refused_pull_commits_nothing(rig: Rig) -> None:
    pulled(rig, sys_flag=SUBSCRIPTION | COMMIT, commit_offset=3, subscription="||")
    pulled(rig, sys_flag=SUBSCRIPTION | COMMIT, commit_offset=3, queue_id=9)
    assert rig.parts.offsets.query("T", "g", 0) is None and rig.parts.offsets.query("T", "g", 9) is None


def test_a_reset_is_handed_over_once(rig: Rig) -> None:
    rig.parts.offsets.reset("T", "g", 0, 2)
    answer = pulled(rig, queue_offset=5, sys_flag=SUBSCRIPTION | COMMIT | 2, commit_offset=5)
    assert (answer.code, answer.remark, answer.ext["nextBeginOffset"]) == (21, "OFFSET_RESET", "2")
    assert (answer.ext["minOffset"], answer.ext["maxOffset"]) == ("0", "5")
    assert rig.parts.offsets.query("T", "g", 0) == 2, "its old position didn't count"
    assert bodies(pulled(rig, queue_offset=2)) == [b"2", b"3", b"4"]


def test_how_far_a_group_was_given_messages(rig: Rig) -> None:
    pulled(rig, max_msg_nums=2)
    assert rig.parts.offsets.pull_offset("T", "g", 0) == 2
