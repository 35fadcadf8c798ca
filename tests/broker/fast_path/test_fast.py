"""Plain sends against the ordinary handlers: the same frames give the same answers and the same files.

Three ways are held to it: the core as it was compiled (where it was), the core's source as plain Python, and
`PlainSends`, which takes the core's place.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from broker.harness import SMALL, Rig
from broker.streams import GROUP, Recorder, Stream, kind_of_send, send_of, taken, vars_of, watch
from perseid import core
from perseid.base.machine import Frames, Tick
from perseid.broker.kernel import acks
from perseid.store.timer.log import Unit
from perseid.wire import batch, command, frame
from perseid.wire.codes import RequestCode, Serializer
from perseid.wire.headers.pull import PullMessageRequest
from perseid.wire.headers.send import EndTransactionRequest, SendMessageRequestV2
from perseid.wire.names import RETRY_PREFIX
from perseid.wire.record import SYS_TRANSACTION_COMMIT, decode

pytestmark = pytest.mark.usefixtures("way")


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH", GROUP])
@pytest.mark.parametrize("seed", range(2))
def test_plain_sends_do_what_the_handlers_do(
    tmp_path: Path, seed: int, flush: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    brokers = [Recorder(tmp_path / name, plain=name == "plain", flush=flush) for name in ("plain", "handlers")]
    plain, handlers = brokers
    assert plain.parts.quick.current is not None
    seen = kinds(plain, monkeypatch)
    stream = Stream(random, plain.now)
    for _ in range(60):
        client = random.choice([1, 1, 1, 2, 3, 4])
        stream.now += random.choice([0, 0, 0, 1, 7, 30, 1_200])
        words = [stream.word(handlers.broker) for _ in range(random.choice([0, 2, 8]))]
        frames = words + [stream.next() for _ in range(random.choice([1, 1, 2, 5, 20, 64]))]
        random.shuffle(frames)
        data = b"".join(frames)
        assert frame.complete(data) == len(data)
        for broker in brokers:
            broker.now = stream.now
            broker.handle(Tick())  # at the same times: what is due, not when it was noticed
            broker.connect(client)
            broker.handle(Frames(client, bytearray(data)))
    assert plain.answers() == handlers.answers()
    assert plain.parts.store.index.end_offset == handlers.parts.store.index.end_offset  # writes what waits
    assert plain.files() == handlers.files()
    assert [note.text for note in plain.notes] == [note.text for note in handlers.notes]
    assert vars_of(plain) == vars_of(handlers)
    for broker in brokers:
        broker.now += 20_000
        broker.handle(Tick())
        broker.stop()
    assert plain.answers() == handlers.answers()
    assert plain.files() == handlers.files()
    for kind, least in LEAST.items() if core.compiled is not None else ():
        assert seen[kind] >= least, f"{seen} went the quick way"
    if flush == GROUP and core.compiled is None:  # plain Python takes the ordinary way then
        return
    assert seen.total() > 50 and seen["ordinary"] > 50, f"{seen}"


@pytest.mark.parametrize("seed", range(2))
def test_pulls_find_what_the_handlers_find(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    brokers = [Recorder(tmp_path / name, plain=name == "plain") for name in ("plain", "handlers")]
    seen = kinds(brokers[0], monkeypatch)
    stream = Stream(random, brokers[0].now, holds=False)
    for _ in range(6):
        frames = [stream.send() for _ in range(90)] + [stream.pull() for _ in range(150)]
        for broker in brokers:
            broker.connect(1)
            broker.handle(Frames(1, b"".join(frames)))
    assert brokers[0].answers() == brokers[1].answers()
    assert vars_of(brokers[0]) == vars_of(brokers[1])
    assert core.compiled is None or min(seen["pull"], seen["pull by SQL92"]) > 4, seen


@pytest.mark.parametrize("seed", range(4))
def test_how_frames_are_cut_into_reads_makes_no_difference(tmp_path: Path, seed: int) -> None:
    """Many in one read the quick way, one in each read the ordinary way."""
    random = Random(seed)
    plain, handlers = Recorder(tmp_path / "plain", plain=True), Recorder(tmp_path / "handlers", plain=False)
    stream = Stream(random, plain.now, holds=False)
    for _ in range(12):
        stream.now += random.choice([0, 1, 1_200])
        frames = [stream.next() for _ in range(random.randint(1, 64))]
        for broker in (plain, handlers):
            broker.now = stream.now
            broker.handle(Tick())
            broker.connect(1)
        plain.handle(Frames(1, b"".join(frames)))
        for one in frames:
            handlers.handle(Frames(1, one))
    assert plain.answers() == handlers.answers()
    assert vars_of(plain) == vars_of(handlers)
    plain.stop()
    handlers.stop()
    assert plain.files() == handlers.files()


LEAST = {
    "send": 50, "timed send": 5, "half": 3, "binary send": 3, "batch": 5, "delivered": 3, "commit": 1, "delayed": 5,
    "priority": 3, "edited": 1, "delay over": 1, "retry": 1,
}  # fmt: skip
"""How many of each kind go the quick way at least, with any seed."""


def kinds(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many frames of each kind go the quick way from now on; `ordinary`: all that don't."""
    seen: Counter[str] = Counter()

    def told(one: command.Command, quickly: bool) -> None:
        properties = one.ext.get("i") or one.ext.get("properties") or ""
        pull = "pull by SQL92" if one.ext.get("expressionType") == "SQL92" else "pull"
        retry = RETRY_PREFIX in (one.ext.get("b") or one.ext.get("topic") or "")
        kind = {11: pull, 320: "batch"}.get(one.code, "retry" if retry else kind_of_send(properties))
        binary = "binary " if one.serializer == Serializer.ROCKETMQ else ""
        seen[binary + kind if quickly else "ordinary"] += 1

    def delivered(unit: Unit) -> int:
        end = deliver(unit)
        seen["delivered"] += bool(end)
        return end

    def committed(physical_offset: int, queue_offset: int, group: str, transaction_id: str | None) -> int:
        end = commit(physical_offset, queue_offset, group, transaction_id)
        seen["commit"] += bool(end)
        return end

    def delay_over(physical_offset: int) -> int:
        end = deliver_delayed(physical_offset)
        seen["delay over"] += bool(end)
        return end

    watch(rig, monkeypatch, told)
    if (delays := rig.parts.delay.quick) is not None:
        deliver_delayed = delays.deliver
        monkeypatch.setattr(delays, "deliver", delay_over)
    if (commits := rig.parts.transactions.quick) is not None:
        commit = commits.commit
        monkeypatch.setattr(commits, "commit", committed)
    if (deliveries := rig.parts.timers.quick) is not None:
        deliver = deliveries.deliver
        monkeypatch.setattr(deliveries, "deliver", delivered)
    return seen


def test_the_second_send_to_a_queue_goes_the_quick_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path)
    rig.connect(1)
    seen = taken(rig, monkeypatch)
    rig.handle(Frames(1, send_of(1) + send_of(2) + send_of(3)))
    rig.handle(Frames(1, send_of(4)))
    assert seen == [False, True, True, True]
    assert sorted(answer.opaque for answer in rig.sent[1]) == [1, 2, 3, 4]
    offsets = [int(a.ext["queueOffset"]) for a in sorted(rig.sent[1], key=lambda a: a.opaque)]
    assert offsets == [0, 1, 2, 3]
    found = rig.parts.store.reads.read("Plain", 0, 0, 32, 1 << 20)
    assert found.count == 4
    assert [decode(b"".join(found.buffers)).props["CLUSTER"]] == ["C"]


def test_a_target_follows_its_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleted, made again: the quick way sees it in the same read; shut by a setting: in the next turn."""
    rig = Rig(tmp_path)
    rig.connect(1)
    rig.handle(Frames(1, send_of(1) + send_of(2)))
    seen = taken(rig, monkeypatch)
    gone = command.encode_request(215, 10, {"topic": "Plain"})
    rig.handle(Frames(1, send_of(3) + gone + send_of(4) + send_of(5)))
    assert seen == [True, False, False, True]
    assert rig.parts.store.reads.max_offset("Plain", 0) == 2, "a new topic begins at 0"
    closed = command.encode_request(25, 11, None, f"startAcceptSendRequestTimeStamp={rig.now + 100}".encode())
    rig.handle(Frames(1, send_of(6) + closed))  # settings change at the end of a turn
    rig.handle(Frames(1, send_of(7)))
    assert {a.opaque: a.code for a in rig.sent[1]}[7] == 1
    rig.until(rig.now + 100)
    rig.handle(Frames(1, send_of(8)))
    assert {a.opaque: a.code for a in rig.sent[1]}[8] == 0


def test_a_full_disk_is_seen_by_the_quick_way(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.connect(1)
    rig.handle(Frames(1, send_of(1) + send_of(2)))
    rig.parts.store.condition.fail("the disk is gone")
    rig.handle(Frames(1, send_of(3)))
    assert {a.opaque: a.code for a in rig.sent[1]} == {1: 0, 2: 0, 3: 14}


def test_one_way_sends_are_stored_and_not_answered(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.connect(1)
    one_way = [bytes(frame_of) for frame_of in (send_of(1), send_of(2), send_of(3))]
    flagged = [raw.replace(b'"flag":0,', b'"flag":2,') for raw in one_way]
    rig.handle(Frames(1, b"".join(flagged)))
    assert rig.parts.store.reads.max_offset("Plain", 0) == 3
    assert 1 not in rig.sent


def test_with_sync_flush_the_answers_of_a_read_wait(tmp_path: Path) -> None:
    rig = Rig(tmp_path, store=replace(SMALL, flush_disk_type="SYNC_FLUSH"))
    rig.connect(1)
    rig.handle(Frames(1, send_of(1)))
    rig.hold_io()
    no_wait = send_of(4, properties="UNIQ_KEY\x01ID4\x02WAIT\x01false\x02")
    rig.handle(Frames(1, send_of(2) + send_of(3) + no_wait))
    assert [a.opaque for a in rig.sent[1]] == [1, 4], "4 asked not to wait"
    assert len(rig.parts.acks) == 2
    rig.finish_io()
    assert [a.opaque for a in rig.sent[1]] == [1, 4, 2, 3] and len(rig.parts.acks) == 0
    rig.handle(Frames(1, send_of(5)))
    rig.until(rig.now + 5_000)
    late = rig.sent[1][-1]
    assert (late.opaque, late.code, late.ext["queueOffset"]) == (5, 10, "4"), "stored, and late"
    rig.finish_io()
    assert rig.sent[1][-1] is late, "no second answer"
    assert "[5~10s]:1 " in rig.parts.stats.put_distribution()


def test_no_quick_way_around_a_full_table_of_waiting_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acks, "MAX_WAITING", 3)
    rig = Rig(tmp_path, store=replace(SMALL, flush_disk_type="SYNC_FLUSH"))
    rig.connect(1)
    rig.handle(Frames(1, send_of(1)))
    rig.hold_io()
    rig.handle(Frames(1, send_of(2) + send_of(3) + send_of(4)))
    rig.handle(Frames(1, send_of(5)))
    assert [(a.opaque, a.code) for a in rig.sent[1]] == [(1, 0), (5, 2)]
    rig.finish_io()
    assert [(a.opaque, a.code) for a in rig.sent[1][2:]] == [(2, 0), (3, 0), (4, 0)]


def test_held_pulls_get_what_came_the_quick_way(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.connect(1)
    rig.handle(Frames(1, send_of(1)))
    header = PullMessageRequest(
        consumer_group="g", topic="Plain", queue_id=0, queue_offset=1, max_msg_nums=32, sys_flag=6, commit_offset=0,
        suspend_timeout_millis=15_000, sub_version=0, subscription="*",
    )  # fmt: skip
    held = rig.tell(RequestCode.PULL_MESSAGE, header, client=2)
    assert len(rig.parts.holds) == 1
    rig.handle(Frames(1, send_of(2) + send_of(3)))
    answer = next(a for a in rig.sent[2] if a.opaque == held)
    assert answer.code == 0 and answer.ext["nextBeginOffset"] == "3", "both messages of the turn"


@pytest.mark.parametrize("serializer", Serializer)
def test_batches_alone_make_their_queue_known(
    tmp_path: Path, serializer: Serializer, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path)
    rig.connect(1)
    header = SendMessageRequestV2("p", "Plain", "TBW102", 4, 0, 0, 1, 0, "UNIQ_KEY\x01B\x02", batch=True)
    body = batch.encode([(0, b"x", f"UNIQ_KEY\x01M{n}\x02".encode()) for n in range(3)])
    seen = taken(rig, monkeypatch)
    for opaque in (1, 2):
        rig.handle(Frames(1, command.encode_request(320, opaque, header, body, serializer=serializer)))
    assert seen == [False, way != "plain" or serializer == Serializer.JSON]
    assert rig.sent[1][1].ext["queueOffset"] == "3" and rig.sent[1][1].ext["msgId"].count(",") == 2


def test_a_half_that_says_something_twice_becomes_what_the_handlers_make_of_it(tmp_path: Path) -> None:
    brokers = [Recorder(tmp_path / name, plain=name == "plain") for name in ("plain", "handlers")]
    halves = [f"TRAN_MSG\x01true\x02PGROUP\x01p\x02v\x01{n}\x02PGROUP\x01p\x02UNIQ_KEY\x01K{n}\x02" for n in range(3)]
    for broker in brokers:
        broker.connect(1)
        sends = [send_of(2 + n, properties=half) for n, half in enumerate(halves)]
        broker.handle(Frames(1, send_of(1) + b"".join(sends)))
        for queue_offset, physical_offset in enumerate(broker.parts.transactions.places()):
            header = EndTransactionRequest("p", queue_offset, physical_offset, SYS_TRANSACTION_COMMIT, "x")
            broker.handle(Frames(1, command.encode_request(RequestCode.END_TRANSACTION, 10, header, oneway=True)))
    assert brokers[0].files() == brokers[1].files()
    assert brokers[0].parts.store.reads.max_offset("Plain", 0) == 4
