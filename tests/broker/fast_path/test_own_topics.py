"""Sends that the core puts into topics of the broker's own: which service hears of them, and which queue they go to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.harness import Rig
from broker.streams import Recorder, send_of, taken
from perseid.base.machine import Frames
from perseid.wire import command
from perseid.wire.names import SCHEDULE_TOPIC
from perseid.wire.record import decode

pytestmark = pytest.mark.usefixtures("way")


def delayed(n: int, level: str) -> bytes:
    return send_of(n, properties=f"DELAY\x01{level}\x02UNIQ_KEY\x01ID{n}\x02TAGS\x01a\x02")


def test_a_level_hears_of_the_first_message_that_the_core_stores_there(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path)
    rig.connect(1)
    rig.handle(Frames(1, send_of(1) + delayed(2, "1")))
    rig.until(rig.now + 2_000)  # nothing waits any more
    seen = taken(rig, monkeypatch)
    rig.handle(Frames(1, delayed(3, "1")))
    assert seen == [way != "plain"]
    assert rig.parts.store.reads.max_offset("Plain", 0) == 2
    assert rig.parts.delay.next_deadline() == rig.now + 1_000
    rig.until(rig.now + 1_000)
    found = rig.parts.store.reads.read("Plain", 0, 2, 1, 1 << 20)
    delivered = decode(b"".join(found.buffers))
    assert delivered.unique_key == "ID3" and delivered.tag == "a" and delivered.props["REAL_TOPIC"] == "Plain"


def test_a_level_above_the_highest_is_the_highest(tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path)
    rig.connect(1)
    rig.handle(Frames(1, send_of(1) + delayed(2, "18")))
    seen = taken(rig, monkeypatch)
    rig.handle(Frames(1, delayed(3, "40")))
    assert seen == [way != "plain"]
    stored = decode(b"".join(rig.parts.store.reads.read(SCHEDULE_TOPIC, 17, 1, 1, 1 << 20).buffers))
    assert stored.props["DELAY"] == "18" and stored.unique_key == "ID3"


@pytest.mark.parametrize(("priority", "queue"), [("0", 0), ("2", 2), ("9", 3)])
def test_a_priority_is_a_queue_which_the_answer_says(
    tmp_path: Path, priority: str, queue: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path, default_topic_queue_nums=4)
    rig.connect(1)
    rig.handle(Frames(1, b"".join(send_of(n, queue_id=n) for n in range(4))))
    seen = taken(rig, monkeypatch)
    properties = f"UNIQ_KEY\x01P\x02_SYS_MSG_PRIORITY_\x01{priority}\x02"
    rig.handle(Frames(1, send_of(9, queue_id=1, properties=properties)))
    assert seen == [way != "plain"]
    answer = rig.sent[1][-1]
    assert (answer.ext["queueId"], answer.ext["queueOffset"]) == (str(queue), "1")


def test_what_the_core_delivers_after_a_delay_is_what_the_handlers_deliver(tmp_path: Path, way: str) -> None:
    brokers = [Recorder(tmp_path / name, plain=name == "plain") for name in ("plain", "handlers")]
    assert (brokers[0].parts.delay.quick is not None) == (way != "plain")
    for broker in brokers:
        broker.connect(1)
        for round_of in range(3):
            first = 10 * round_of
            broker.handle(Frames(1, b"".join(delayed(first + n, str(1 + n % 2)) for n in range(9))))
            broker.until(broker.now + 6_000)
        broker.parts.delay.count_quick()
        broker.stop()
    plain, handlers = brokers
    assert plain.parts.store.reads.max_offset("Plain", 0) == 27
    assert plain.files() == handlers.files()
    assert plain.parts.stats.put_messages.total == handlers.parts.stats.put_messages.total == 54


RETRIED = (
    "RETRY_TOPIC\x01Plain\x02ORIGIN_MESSAGE_ID\x010A\x02REAL_TOPIC\x01%RETRY%g\x02REAL_QID\x010\x02MSG_REGION\x01far\x02"
    "TRACE_ON\x01true\x02CLUSTER\x01old\x02POP_CK\x011 2\x02WAIT\x01true\x02"
)
"""Properties that a stored message has, which its consumer sends once more."""


def retried(n: int, level: str = "DELAY\x011\x02", **fields: object) -> bytes:
    return send_of(n, "%RETRY%g", properties=f"{RETRIED}{level}UNIQ_KEY\x01ID{n}\x02TAGS\x01a\x02", **fields)


def lock(n: int) -> bytes:
    queue = {"topic": "Plain", "brokerName": "b", "queueId": 0}
    asked = {"consumerGroup": "g", "clientId": "c", "mqSet": [queue]}
    return command.encode_request(41, n, None, json.dumps(asked).encode())


def test_retries_are_stored_as_the_handlers_store_them(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = [Recorder(tmp_path / name, plain=name == "plain") for name in ("plain", "handlers")]
    frames = [
        [send_of(1), retried(2), retried(3, "")],
        [retried(4), retried(5, ""), retried(6, "DELAY\x0190\x02", reconsume_times=16)],
        [retried(7, reconsume_times=17), retried(8, reconsume_times=4, max_reconsume_times=3)],
        [retried(9, "TIMER_DELAY_SEC\x011\x02"), retried(10, "TRAN_MSG\x01true\x02")],
        [retried(11, "v\x011\x02v\x012\x02")],
        [retried(12, reconsume_times=3, max_reconsume_times=3), retried(13), lock(14), retried(15), retried(16)],
    ]
    seen = taken(brokers[0], monkeypatch)
    for broker in brokers:
        broker.connect(1)
        for read in frames:
            broker.handle(Frames(1, b"".join(read)))
        broker.until(broker.now + 3_000)
        broker.stop()
    plain, handlers = brokers
    assert plain.answers() == handlers.answers()
    assert plain.files() == handlers.files()
    assert plain.parts.store.reads.max_offset("%DLQ%g", 0) >= 4, "tried too often, and those of an ordered consumer"
    if way != "plain":
        assert seen[3:] == [True, True, False, False, False, False, False, False, True, True, False, False, False]
