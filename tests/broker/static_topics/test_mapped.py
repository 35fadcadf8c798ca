"""Logical queues of static topics: who answers for them, and what is read across brokers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.harness import SMALL, Rig
from broker.requests import pull_header, send_header
from broker.static_cluster import TOPIC, Cluster
from perseid.store.config import ASYNC_FLUSH, SYNC_FLUSH
from perseid.wire import batch, fastjson
from perseid.wire.bodies import TopicRouteData
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode
from perseid.wire.headers.pull import PullMessageResponse
from perseid.wire.headers.send import SendMessageResponse
from perseid.wire.mapping import NO_BROKER, leaders
from perseid.wire.mapping import LogicQueueMappingItem as Item
from perseid.wire.mapping import TopicQueueMappingDetail as Detail

SUSPEND = 2 | 4
NOT_LEADER = ResponseCode.NOT_LEADER_FOR_QUEUE


@pytest.fixture
def pair() -> Cluster:
    """Queues 0 and 2 on a, 1 and 3 on b; what is physical has other numbers."""
    cluster = Cluster("a", "b")
    cluster.create("a", "b", "a", "b")
    return cluster


def read_all(cluster: Cluster, name: str, queue_id: int, offset: int = 0) -> tuple[list[bytes], list[int]]:
    """What a consumer gets of a logical queue from its leader, with the offsets."""
    bodies: list[bytes] = []
    offsets: list[int] = []
    for _ in range(100):
        pulled = cluster.pull(name, queue_id, offset, max_msg_nums=7)
        bodies += pulled.bodies
        offsets += pulled.offsets
        if pulled.code == ResponseCode.PULL_NOT_FOUND:
            return bodies, offsets
        assert pulled.code in (0, ResponseCode.PULL_RETRY_IMMEDIATELY), pulled
        assert pulled.next_offset > offset, "a reader gets on"
        offset = pulled.next_offset
    raise AssertionError("the queue has no end")


def test_a_leader_takes_and_gives_its_logical_queues(pair: Cluster) -> None:
    for n in range(5):
        sent = pair.send("b", 3, b"%d" % n)
        assert (sent.queue_id, sent.queue_offset) == (3, n)
    assert read_all(pair, "b", 3) == ([b"0", b"1", b"2", b"3", b"4"], [0, 1, 2, 3, 4])
    assert pair.broker("b").parts.store.reads.max_offset(TOPIC, 1) == 5, "the second queue of b"
    assert pair.offset("b", Code.GET_MAX_OFFSET, 3) == 5
    assert pair.offset("b", Code.GET_MIN_OFFSET, 3) == 0
    assert pair.commit("b", 3, 4) == 0 and pair.committed("b", 3) == 4
    assert pair.broker("b").parts.offsets.query(TOPIC, "g", 1) == 4


@pytest.mark.parametrize("queue_id", [1, 3, 4, 99, -7])
def test_only_the_leader_answers(pair: Cluster, queue_id: int) -> None:
    assert pair.pull("a", queue_id, 0).code == NOT_LEADER
    for code in (Code.GET_MAX_OFFSET, Code.GET_MIN_OFFSET, Code.GET_EARLIEST_MSG_STORETIME):
        assert pair.call("a", code, {"topic": TOPIC, "queueId": str(queue_id)}).code == NOT_LEADER
    search = {"topic": TOPIC, "queueId": str(queue_id), "timestamp": "0"}
    assert pair.call("a", Code.SEARCH_OFFSET_BY_TIMESTAMP, search).code == NOT_LEADER
    assert pair.commit("a", queue_id, 0) == NOT_LEADER
    asked = {"topic": TOPIC, "queueId": str(queue_id), "consumerGroup": "g"}
    assert pair.call("a", Code.QUERY_CONSUMER_OFFSET, asked).code == NOT_LEADER


def test_a_send_elsewhere_is_refused_and_one_without_a_choice_is_taken(pair: Cluster) -> None:
    with pytest.raises(AssertionError, match="501"):
        pair.send("a", 1, b"x")
    assert pair.send("a", -1, b"x").queue_id == 0


def test_who_says_lo_false_means_physical_queues(pair: Cluster) -> None:
    pair.send("a", 2, b"x")
    asked = {"topic": TOPIC, "queueId": "1", "lo": "false"}
    assert pair.call("a", Code.GET_MAX_OFFSET, asked).ext["offset"] == "1"


def test_sends_stay_right_when_a_plain_topic_becomes_static() -> None:
    cluster = Cluster("a", "b")
    plain = {
        "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "order": "false",
    }  # fmt: skip
    for name in ("a", "b"):
        assert cluster.call(name, Code.UPDATE_AND_CREATE_TOPIC, plain).code == 0
    for n in range(3):
        assert cluster.send("a", 1, b"before").queue_id == 1
        cluster.pull("a", 1, n)
    cluster.create("b", "a", "b", "a")
    assert cluster.send("a", 3, b"after").queue_offset == 3, "logical queue 3 is the second one of a"
    assert cluster.pull("a", 1, 0).bodies == []
    assert cluster.pull("a", 3, 0).bodies == [b"before"] * 3 + [b"after"]
    with pytest.raises(AssertionError, match="501"):
        cluster.send("a", 0, b"x")


def test_a_pull_waits_for_a_message_of_its_logical_queue(pair: Cluster) -> None:
    begin = pair.scheduler.now_us
    pulled = pair.pull("a", 2, 0, sys_flag=SUSPEND, suspend_timeout_millis=5_000)
    assert pulled.code == ResponseCode.PULL_NOT_FOUND and pair.scheduler.now_us - begin >= 4_900_000
    assert (pulled.next_offset, pulled.min_offset, pulled.max_offset) == (0, 0, 0)


def test_routes_say_who_leads(pair: Cluster) -> None:
    answer = pair.call("namesrv", Code.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC, "acceptStandardJsonOnly": "true"})
    route = TopicRouteData.from_json(answer.body)
    mock = "__syslo__global__"
    found = {(mock, 0): "a", (mock, 1): "b", (mock, 2): "a", (mock, 3): "b"}
    assert leaders(route.topic_queue_mapping_by_broker) == found
    items = pair.begin_remap(3, "b", "a")
    pair.advance(1_000)
    answer = pair.call("namesrv", Code.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC})
    assert leaders(TopicRouteData.from_json(answer.body).topic_queue_mapping_by_broker) == found | {(mock, 3): "a"}
    pair.end_remap(3, items)
    assert leaders({}) == {} and NO_BROKER not in found.values()


def test_a_queue_is_moved_and_read_on_across_brokers(pair: Cluster) -> None:
    """Messages before, during and after the move come once each, in order."""
    for n in range(20):
        pair.send("b", 3, b"%d" % n)
    items = pair.begin_remap(3, "b", "a")
    with pytest.raises(AssertionError, match="501"):
        pair.send("b", 3, b"x")
    assert pair.send("a", 3, b"20").queue_offset == -1, "it does not know yet"
    assert read_all(pair, "a", 3)[0] == [b"%d" % n for n in range(20)], "the rest is not readable yet"
    begin = pair.end_remap(3, items)
    assert begin == 10_000
    for n in range(21, 30):
        assert pair.send("a", 3, b"%d" % n).queue_offset == begin + n - 20
    bodies, offsets = read_all(pair, "a", 3)
    assert bodies == [b"%d" % n for n in range(30)]
    assert offsets == [*range(20), *range(begin, begin + 10)]
    assert pair.offset("a", Code.GET_MAX_OFFSET, 3) == begin + 10
    assert pair.offset("a", Code.GET_MIN_OFFSET, 3) == 0
    assert pair.pull("b", 3, 0).code == NOT_LEADER


def test_a_queue_goes_there_and_back(pair: Cluster) -> None:
    wanted = []
    for n, (old, new) in enumerate([("a", "b"), ("b", "a"), ("a", "b")]):
        for k in range(9):
            pair.send(old, 0, b"%d-%d" % (n, k))
            wanted.append(b"%d-%d" % (n, k))
        pair.remap(0, old, new)
    bodies, offsets = read_all(pair, "b", 0)
    assert bodies == wanted
    assert offsets == [*range(9), *range(10_000, 10_009), *range(20_000, 20_009)]
    assert read_all(pair, "b", 0, 10_004)[0] == wanted[13:]
    assert read_all(pair, "b", 0, 500)[0] == wanted[9:], "an offset in a gap"


@pytest.mark.parametrize("moved", [False, True])
def test_who_is_behind_what_is_left_is_sent_to_it(pair: Cluster, moved: bool) -> None:
    """Of a queue without a past the offset has moved; of a later part of one, the reader is only behind."""
    for n in range(9):
        pair.send("a", 0, b"%d" % n)
    if not moved:
        _is_left(pair, "a", 0, 4)
        pulled = pair.pull("a", 0, 1)
        assert (pulled.code, pulled.next_offset, pulled.min_offset) == (ResponseCode.PULL_OFFSET_MOVED, 4, 4)
        return
    begin = pair.remap(0, "a", "b")
    for n in range(9):
        pair.send("b", 0, b"%d" % n)
    physical = pair.config("b").mapping_detail.hosted_queues[0][-1].queue_id  # type: ignore[union-attr]
    _is_left(pair, "b", physical, 3)
    pulled = pair.pull("b", 0, begin + 1)
    assert (pulled.code, pulled.next_offset) == (ResponseCode.PULL_RETRY_IMMEDIATELY, begin + 3)
    assert pair.pull("b", 0, begin + 3).bodies[0] == b"3"
    _is_left(pair, "a", 0, 4)
    pulled = pair.pull("b", 0, 1)
    assert (pulled.code, pulled.next_offset) == (ResponseCode.PULL_OFFSET_MOVED, 4)


def _is_left(cluster: Cluster, name: str, queue_id: int, first: int) -> None:
    """As when the files of the log with all that is before are gone."""
    queue = cluster.broker(name).parts.store.queues.get(TOPIC, queue_id)
    assert queue is not None
    queue.min = first


def test_a_reader_waits_at_the_end_of_the_last_part_alone(pair: Cluster) -> None:
    pair.send("a", 0, b"x")
    begin = pair.remap(0, "a", "b")
    for offset, waits in ((begin, True), (1, False), (0, False)):
        at = pair.scheduler.now_us
        pulled = pair.pull("b", 0, offset, sys_flag=SUSPEND, suspend_timeout_millis=5_000)
        assert (pair.scheduler.now_us - at >= 4_900_000) is waits, offset
        assert pulled.code == (ResponseCode.PULL_NOT_FOUND if waits else 0 if not offset else 20)


def test_groups_go_on_where_they_were(pair: Cluster) -> None:
    for n in range(10):
        pair.send("a", 0, b"%d" % n)
    assert len(pair.pull("a", 0, 0).bodies) == 10 and pair.commit("a", 0, 4) == 0
    begin = pair.remap(0, "a", "b")
    assert pair.committed("b", 0) == 4, "asked of a"
    assert pair.committed("b", 0, "another") is None
    assert pair.commit("b", 0, 7) == 0
    assert pair.broker("a").parts.offsets.query(TOPIC, "g", 0) == 7, "handed on to a"
    pair.send("b", 0, b"10")
    assert pair.pull("b", 0, begin).bodies == [b"10"]
    assert pair.commit("b", 0, begin + 1) == 0 and pair.committed("b", 0) == begin + 1
    assert pair.commit("b", 0, -5) == ResponseCode.INVALID_PARAMETER


def test_a_pull_commits_only_what_is_in_its_own_item(pair: Cluster) -> None:
    pair.send("a", 0, b"x")
    begin = pair.remap(0, "a", "b")
    pair.send("b", 0, b"y")
    pair.pull("b", 0, begin, sys_flag=1 | 4, commit_offset=begin)
    physical = pair.config("b").mapping_detail.hosted_queues[0][-1].queue_id  # type: ignore[union-attr]
    assert pair.broker("b").parts.offsets.query(TOPIC, "g", physical) == 0
    pair.pull("b", 0, begin, sys_flag=1 | 4, commit_offset=1)
    assert pair.broker("b").parts.offsets.query(TOPIC, "g", physical) == 0
    pair.pull("b", 0, begin, sys_flag=1 | 4, commit_offset=begin + 1)
    assert pair.broker("b").parts.offsets.query(TOPIC, "g", physical) == 1


def test_a_time_is_found_in_the_item_that_has_it(pair: Cluster) -> None:
    times = []
    for n in range(4):
        times.append(pair.nodes["a"].now)
        pair.send("a", 0, b"%d" % n)
        pair.advance(10_000)
    begin = pair.remap(0, "a", "b")
    for n in range(4, 8):
        times.append(pair.nodes["b"].now)
        pair.send("b", 0, b"%d" % n)
        pair.advance(10_000)
    offsets = [*range(4), *range(begin, begin + 4)]

    def search(timestamp: int, **more: str) -> int:
        return pair.offset("b", Code.SEARCH_OFFSET_BY_TIMESTAMP, 0, timestamp=timestamp, **more)

    assert [search(time) for time in times] == offsets
    assert [search(time + 5_000) for time in times[:-1]] == offsets[1:]
    assert search(0) == 0 and search(times[-1] + 5_000) == begin + 4
    assert [search(time + 5_000, boundaryType="upper") for time in times] == offsets
    assert search(0, boundaryType="UPPER") == 0
    answer = pair.call("b", Code.GET_EARLIEST_MSG_STORETIME, {"topic": TOPIC, "queueId": "0"})
    assert times[0] <= int(answer.ext["timestamp"]) < times[0] + 5_000


def test_without_the_other_broker_there_is_an_error_and_what_is_here_goes_on(pair: Cluster) -> None:
    pair.send("a", 0, b"x")
    begin = pair.remap(0, "a", "b")
    pair.nodes["a"].crash()
    assert pair.send("b", 0, b"y").queue_offset == begin
    assert pair.pull("b", 0, 0).code == ResponseCode.SYSTEM_ERROR
    assert pair.pull("b", 0, begin).bodies == [b"y"]
    assert pair.call("b", Code.GET_MIN_OFFSET, {"topic": TOPIC, "queueId": "0"}).code == ResponseCode.SYSTEM_ERROR
    pair.nodes["a"].start()
    pair.advance(40_000)
    assert read_all(pair, "b", 0)[0] == [b"x", b"y"], "and it comes back"


def test_who_may_not_read_here_is_not_read_for_elsewhere(pair: Cluster) -> None:
    """The leader knows who may, whichever broker has the messages."""
    pair.send("a", 0, b"x")
    begin = pair.remap(0, "a", "b")
    pair.send("b", 0, b"y")
    group = {"groupName": "g", "consumeEnable": False}
    assert pair.call("b", Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, fastjson.dumps(group)).code == 0
    for offset in (0, begin):
        assert pair.pull("b", 0, offset).code == ResponseCode.NO_PERMISSION
        assert pair.pull("b", 0, offset, consumer_group="h").code == 0


def test_mappings_outlive_a_restart(pair: Cluster) -> None:
    for n in range(3):
        pair.send("a", 2, b"%d" % n)
    begin = pair.remap(2, "a", "b")
    pair.send("b", 2, b"3")
    before = {name: pair.config(name) for name in ("a", "b")}
    for name in ("a", "b"):
        pair.cut_power(name)
    pair.advance(5_000)
    assert {name: pair.config(name) for name in ("a", "b")} == before
    assert pair.offset("b", Code.GET_MAX_OFFSET, 2) in (begin, begin + 1), "the message was not synced"


def test_a_deleted_topic_leaves_no_mapping(pair: Cluster) -> None:
    for name in ("a", "b"):
        assert pair.call(name, Code.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC}).code == 0
        assert pair.broker(name).parts.mappings.rows == {}
    delete = {"topic": TOPIC, "clusterName": "C"}
    assert pair.call("namesrv", Code.DELETE_TOPIC_IN_NAMESRV, delete).code == 0
    pair.advance(1_000)
    pair.send("a", 0, b"x")
    pair.advance(1_000)
    answer = pair.call("namesrv", Code.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC})
    assert answer.code == 0 and "topicQueueMappingByBroker" not in fastjson.loads(answer.body), "it is a plain one now"


# ---- one broker, frame by frame ----


def told(rig: Rig, queues: dict[int, list[Item]], epoch: int = 1_000) -> None:
    detail = Detail(TOPIC, total_queues=3, bname="b", epoch=epoch, hosted_queues=queues)
    header = {
        "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6",
        "topicFilterType": "SINGLE_TAG",
    }  # fmt: skip
    answer = rig.ask(Code.UPDATE_AND_CREATE_STATIC_TOPIC, header, detail.to_json())
    assert answer.code == 0, answer.remark


def waiting_pull(rig: Rig, queue_id: int) -> int:
    header = pull_header(topic=TOPIC, queue_id=queue_id, sys_flag=SUSPEND, suspend_timeout_millis=5_000)
    opaque = rig.tell(Code.PULL_MESSAGE, header)
    assert rig.answer(opaque) is None
    return opaque


def test_a_pull_that_waits_is_woken_by_its_logical_queue(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    told(rig, {0: [Item(0, 1, "b", 0, 0)], 2: [Item(0, 0, "b", 0, 0)]})
    opaque = waiting_pull(rig, 0)
    rig.send(TOPIC, 2)
    assert rig.answer(opaque) is None, "it was for another queue"
    rig.send(TOPIC, 0, b"x")
    answer = rig.answer(opaque)
    assert answer is not None and answer.code == 0
    said = answer.header(PullMessageResponse)
    assert (said.next_begin_offset, said.offset_delta, said.max_offset) == (1, 0, 1)


def test_a_pull_that_waits_finds_that_its_queue_has_moved_or_is_plain(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    told(rig, {0: [Item(0, 1, "b", 0, 0)], 2: [Item(0, 0, "b", 0, 0)]})
    moved = waiting_pull(rig, 0)
    told(rig, {0: [Item(0, 1, "b", 0, 0), Item(1, 0, "c", -1, 0)]}, epoch=2_000)
    rig.until(rig.now + 6_000)
    answer = rig.answer(moved)
    assert answer is not None and answer.code == NOT_LEADER
    plain = waiting_pull(rig, 2)
    rig.parts.mappings.delete(TOPIC, rig.now)
    rig.until(rig.now + 6_000)
    answer = rig.answer(plain)
    assert answer is not None and answer.code == ResponseCode.INVALID_PARAMETER, "there is no physical queue 2"


@pytest.mark.parametrize("flush", [ASYNC_FLUSH, SYNC_FLUSH])
def test_sends_in_all_forms_are_answered_with_logical_queues(tmp_path: Path, flush: str) -> None:
    rig = Rig(tmp_path, store=replace(SMALL, flush_disk_type=flush))
    told(rig, {2: [Item(3, 1, "b", 50_000, 0)]})
    for n in range(4):
        sent = rig.ask(Code.SEND_MESSAGE_V2, send_header(topic=TOPIC, queue_id=2), b"x").header(SendMessageResponse)
        assert (sent.queue_id, sent.queue_offset) == (2, 50_000 + n)
    body = batch.encode([(0, b"a", b""), (0, b"b", b"")])
    sent = rig.ask(Code.SEND_BATCH_MESSAGE, send_header(topic=TOPIC, queue_id=2, batch=True), body).header(
        SendMessageResponse
    )
    assert (sent.queue_id, sent.queue_offset) == (2, 50_004) and sent.msg_id.count(",") == 1
    assert rig.parts.store.reads.max_offset(TOPIC, 1) == 6
    rig.tell(Code.SEND_MESSAGE_V2, send_header(topic=TOPIC, queue_id=2), b"y", oneway=True)
    assert rig.parts.store.reads.max_offset(TOPIC, 1) == 7


def test_a_light_queue_is_no_static_topic(tmp_path: Path) -> None:
    rig = Rig(tmp_path, store=replace(SMALL, enable_lmq=True, enable_multi_dispatch=True))
    topic = "%LMQ%x"
    detail = Detail(topic, total_queues=1, bname="b", epoch=1, hosted_queues={0: [Item(0, 0, "b", 0, 0)]})
    header = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
        "topicFilterType": "SINGLE_TAG",
    }  # fmt: skip
    answer = rig.ask(Code.UPDATE_AND_CREATE_STATIC_TOPIC, header, detail.to_json())
    assert answer.code == ResponseCode.INVALID_PARAMETER and not rig.parts.mappings.rows
