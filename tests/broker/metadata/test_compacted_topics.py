"""Topics with `cleanup.policy` COMPACTION at a broker: keys, pulls that wait, what is refused, starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.harness import NOW, SMALL, Rig
from broker.pops import POP, pop_header
from broker.requests import SUBSCRIPTION, SUSPEND, properties, pull_header, send_header
from perseid.base.errors import RequestRefused
from perseid.raft.config import RaftConfig
from perseid.wire import batch
from perseid.wire.bodies import TopicConfig
from perseid.wire.command import Command
from perseid.wire.record import decode_all

SEND, BATCH, PULL = 310, 320, 11
TOPIC = "K"
STORE = replace(
    SMALL, compaction_mapped_file_size=46 * 10 * 5, compaction_cq_mapped_file_size=46 * 10,
    compaction_schedule_internal=60_000,
)  # fmt: skip


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path, store=STORE)
    policy = {"+cleanup.policy": "COMPACTION"}
    row = TopicConfig(topic_name=TOPIC, attributes=policy, read_queue_nums=1, write_queue_nums=1)
    rig.parts.topics.update(row, NOW)
    return rig


def send(rig: Rig, key: str | None, body: bytes = b"x", **more: object) -> Command:
    said = properties(UNIQ_KEY="U", **({} if key is None else {"KEYS": key}), **more)
    return rig.ask(SEND, send_header(topic=TOPIC, properties=said), body)


def pull(rig: Rig, offset: int = 0, sys_flag: int = SUBSCRIPTION, subscription: str = "*") -> Command:
    return rig.ask(PULL, pull_header(topic=TOPIC, queue_offset=offset, sys_flag=sys_flag, subscription=subscription))


def bodies(answer: Command) -> list[bytes]:
    return [record.body for record in decode_all(answer.body)]


@pytest.mark.parametrize("key", [None, "", " ", "\t"])
def test_a_message_needs_a_key(rig: Rig, key: str | None) -> None:
    for _ in range(2):  # the second one would go the quick way
        answer = send(rig, key)
        assert (answer.code, answer.remark) == (13, "Required message key is missing")
    assert rig.parts.store.log.end == 0


def test_each_message_of_a_batch_needs_one(rig: Rig) -> None:
    header = send_header(topic=TOPIC, batch=True)
    good, bad = (0, b"a", b"KEYS\x01k\x02"), (0, b"b", b"")
    assert rig.ask(BATCH, header, batch.encode([good, bad])).code == 13
    assert rig.parts.store.log.end == 0
    assert rig.ask(BATCH, header, batch.encode([good, good])).code == 0
    assert bodies(pull(rig)) == [b"a", b"a"]


def test_pulls_find_what_stays(rig: Rig) -> None:
    for number in range(40):
        assert send(rig, f"k{number % 3}", b"%d" % number).code == 0
    assert bodies(pull(rig))[:3] == [b"0", b"1", b"2"]
    rig.until(NOW + 200_000)
    found = bodies(pull(rig))
    assert len(found) < 32 and {b"37", b"38", b"39"} <= set(found) | set(bodies(pull(rig, 35)))
    answer = pull(rig, 1)
    assert int(answer.ext["minOffset"]) > 1 and answer.ext["maxOffset"] == "40"
    for _ in range(5):
        assert bodies(pull(rig)) == found, "no pull of it goes the quick way"


def test_tags_are_left_to_the_client_as_by_the_original(rig: Rig) -> None:
    send(rig, "a", b"1", TAGS="x")
    assert bodies(pull(rig, subscription="y")) == [b"1"]


def test_a_pull_waits_for_the_next_message(rig: Rig) -> None:
    send(rig, "a", b"1")
    waiting = pull_header(topic=TOPIC, queue_offset=1, sys_flag=SUBSCRIPTION | SUSPEND)
    opaque = rig.tell(PULL, waiting)
    assert rig.answer(opaque) is None
    send(rig, "b", b"2")
    answer = rig.answer(opaque)
    assert answer is not None and bodies(answer) == [b"2"]


@pytest.mark.parametrize("offset", [-(2**63), -1, 2, 2**63 - 1])
def test_pulls_from_where_nothing_is(rig: Rig, offset: int) -> None:
    send(rig, "a", b"1")
    answer = pull(rig, offset)
    if offset < 0:
        assert bodies(answer) == [b"1"], "the first one that is there, as in the original"
    else:
        assert (answer.code, answer.ext["nextBeginOffset"]) == (21, "0")


def test_pops_are_refused(rig: Rig) -> None:
    send(rig, "a")
    assert rig.ask(POP, pop_header(rig, topic=TOPIC)).code == 1


def test_it_can_not_have_batch_queues_too(rig: Rig) -> None:
    both = {"+cleanup.policy": "COMPACTION", "+queue.type": "BatchCQ"}
    with pytest.raises(RequestRefused) as refused:
        rig.parts.topics.update(TopicConfig(topic_name="X", attributes=both), NOW)
    assert refused.value.code == 1


def test_a_deleted_topic_takes_its_files_along(rig: Rig, tmp_path: Path) -> None:
    send(rig, "a", b"1")
    pull(rig)
    files = list(tmp_path.rglob("compactionLog/K/0/*"))
    assert files
    assert rig.ask(215, {"topic": TOPIC}).code == 0
    assert not list(tmp_path.rglob("compactionLog/K/0/*"))
    assert rig.ask(SEND, send_header(topic=TOPIC), b"plain").code == 0, "it is a topic like others now"


def test_after_a_start_it_is_what_it_was(rig: Rig, tmp_path: Path) -> None:
    for number in range(40):
        send(rig, f"k{number % 3}", b"%d" % number)
    rig.until(NOW + 200_000)
    before = bodies(pull(rig))
    rig.stop()
    again = Rig(tmp_path, store=STORE)
    assert TOPIC in again.parts.topics.compacted
    assert bodies(pull(again)) == before
    assert send(again, None).code == 13


def test_in_a_raft_group(tmp_path: Path) -> None:
    raft = RaftConfig(group="C", self_id="n0", peers="n0-127.0.0.1:40911")
    rig = Rig(tmp_path, raft=raft, store=STORE)
    row = TopicConfig(
        topic_name=TOPIC, attributes={"+cleanup.policy": "COMPACTION"}, read_queue_nums=1, write_queue_nums=1
    )
    rig.parts.topics.update(row, rig.now)
    for number in range(40):
        assert send(rig, f"k{number % 3}", b"%d" % number).code == 0
    assert bodies(pull(rig))[:3] == [b"0", b"1", b"2"]
    rig.until(rig.now + 200_000)
    assert len(bodies(pull(rig))) < 32 and bodies(pull(rig, 37)) == [b"37", b"38", b"39"]
