"""A client that pops, for tests of a broker that is asked frame by frame."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perseid.wire.command import Command
from perseid.wire.headers.pop import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    ChangeInvisibleTimeResponse,
    PopMessageRequest,
    PopMessageResponse,
)
from perseid.wire.names import RETRY_PREFIX
from perseid.wire.pop import CK_TAG, Handle, parse_handle, parse_info, retry_of
from perseid.wire.record import Record, decode_all

from .harness import Rig, records

POP, ACK, PEEK, CHANGE, NOTIFICATION, POLLING_INFO, BATCH_ACK = (
    200050, 200051, 200052, 200053, 200054, 200055, 200151
)  # fmt: skip
SECOND = 1_000
REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_C"
INVISIBLE_MS = 60_000


@dataclass(slots=True)
class Popped:
    """One delivery."""

    message: Record
    handle: Handle
    topic: str
    """Where its queue is: the retry topic of a message that comes again."""

    @property
    def body(self) -> bytes:
        return self.message.body


def pop_header(rig: Rig, **fields: Any) -> PopMessageRequest:
    usual = {
        "consumer_group": "g", "topic": "T", "queue_id": -1, "max_msg_nums": 32, "invisible_time": INVISIBLE_MS,
        "poll_time": 0, "born_time": rig.now, "init_mode": 0, "exp_type": "TAG", "exp": "*",
    }  # fmt: skip
    return PopMessageRequest(**{**usual, **fields})


def read_pop(answer: Command, group: str = "g", topic: str = "T", broker: str = "b") -> list[Popped]:
    """The deliveries of an answer, with handles made as a client makes them."""
    header = answer.header(PopMessageResponse)
    starts, offsets = parse_info(header.start_offset_info), parse_info(header.msg_offset_info)
    found = []
    for message in decode_all(answer.body):
        given = message.props.get("POP_CK")
        if given is None:
            key = retry_of(message.topic), str(message.queue_id)
            assert str(message.queue_offset) in offsets[key].split(",")
            handle = Handle(
                int(starts[key]), header.pop_time, header.invisible_time, header.revive_qid, key[0], broker,
                message.queue_id, message.queue_offset,
            )  # fmt: skip
        else:
            handle = parse_handle(given)
        real = {"0": topic, "1": f"{RETRY_PREFIX}{group}_{topic}", "2": f"{RETRY_PREFIX}{group}+{topic}"}
        found.append(Popped(message, handle, real[handle.retry]))
    return found


def pop(rig: Rig, *, client: int = 1, **fields: Any) -> list[Popped]:
    """What a pop gets now."""
    answer = rig.ask(POP, pop_header(rig, **fields), client=client)
    if answer.code == 210:
        return []
    assert answer.code == 0, (answer.code, answer.remark)
    return read_pop(answer, fields.get("consumer_group", "g"), fields.get("topic", "T"))


def ack_header(one: Popped, group: str = "g") -> AckMessageRequest:
    return AckMessageRequest(
        consumer_group=group, topic=one.topic, queue_id=one.handle.queue_id, extra_info=str(one.handle),
        offset=one.handle.offset,
    )  # fmt: skip


def ack(rig: Rig, one: Popped, *, group: str = "g") -> Command:
    return rig.ask(ACK, ack_header(one, group))


def change_header(one: Popped, invisible_ms: int, group: str = "g") -> ChangeInvisibleTimeRequest:
    return ChangeInvisibleTimeRequest(
        consumer_group=group, topic=one.topic, queue_id=one.handle.queue_id, extra_info=str(one.handle),
        offset=one.handle.offset, invisible_time=invisible_ms,
    )  # fmt: skip


def change(rig: Rig, one: Popped, invisible_ms: int, *, group: str = "g") -> Popped | Command:
    """The delivery under its new handle, or the refusal."""
    answer = rig.ask(CHANGE, change_header(one, invisible_ms, group))
    if answer.code:
        return answer
    new = answer.header(ChangeInvisibleTimeResponse)
    handle = one.handle._replace(
        start_offset=one.handle.offset, pop_time=new.pop_time, invisible_time=new.invisible_time,
        revive_queue=new.revive_qid,
    )  # fmt: skip
    return Popped(one.message, handle, one.topic)


def bodies(popped: list[Popped]) -> list[bytes]:
    return [one.body for one in popped]


def revive_log(rig: Rig) -> list[tuple[str, dict[str, Any]]]:
    """Tag and body of each message of the revive log."""
    return [(r.tag or "", json.loads(r.body)) for q in range(8) for r in records(rig, REVIVE_TOPIC, q)]


def named_acks(rig: Rig) -> list[tuple[str, int, list[int]]]:
    """Tag, queue and offsets of the acks in the revive log."""
    return [(tag, body["q"], body.get("aol", [body["ao"]])) for tag, body in revive_log(rig) if tag != CK_TAG]


def crash(rig: Rig, root: Path, **settings: Any) -> Rig:
    """The process dies, and starts again on what the kernel has."""
    rig.disk.unlock("lock")  # what the end of a process does
    return Rig(root, now=rig.now, **settings)


def stocked(root: Path, count: int = 3, **settings: Any) -> Rig:
    rig = Rig(root, **settings)
    for number in range(count):
        rig.send("T", number % 4, b"m%d" % number)
    return rig


def is_changed(found: object) -> Popped:
    assert isinstance(found, Popped), found
    return found
