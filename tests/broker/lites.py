"""A client of lite topics, for tests of a broker that is asked frame by frame."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from perseid.wire.command import Command
from perseid.wire.headers.lite import PopLiteMessageRequest, PopLiteMessageResponse
from perseid.wire.headers.pop import AckMessageRequest, ChangeInvisibleTimeRequest
from perseid.wire.lite import queue_name
from perseid.wire.pop import ORDER_QUEUE, Handle
from perseid.wire.record import Record, decode_all

from .harness import SMALL, Rig
from .requests import properties, send_header

POP_LITE, CTL, NOTIFY = 200070, 200071, 200073
BROKER_INFO, PARENT_INFO, TOPIC_INFO, CLIENT_INFO, GROUP_INFO, TRIGGER = range(200074, 200080)
SEND, ACK, CHANGE = 310, 200051, 200053
ON = replace(SMALL, enable_lmq=True, enable_multi_dispatch=True)
PARENT, GROUP, CLIENT = "P", "lg", "c1"
INVISIBLE_MS = 30_000


def new(path: Path, attributes: str = "+message.type=LITE", **settings: Any) -> Rig:
    rig = Rig(path, store=settings.pop("store", ON), now=settings.pop("now", 1_700_000_000_000), **settings)
    parent(rig, attributes=attributes)
    group(rig)
    return rig


def parent(rig: Rig, topic: str = PARENT, attributes: str = "+message.type=LITE", **fields: str) -> Command:
    row = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "order": "false", "attributes": attributes,
    }  # fmt: skip
    return rig.ask(17, row | fields)


def group(rig: Rig, name: str = GROUP, **attributes: str) -> Command:
    """`attributes`: with _ for the dots of their names."""
    given = {"+lite.bind.topic": PARENT} | {f"+{key.replace('_', '.')}": value for key, value in attributes.items()}
    return rig.ask(200, None, json.dumps({"groupName": name, "attributes": given}).encode())


def send(rig: Rig, lite: str, body: bytes, topic: str = PARENT, **more: str) -> Command:
    said = properties(UNIQ_KEY="U", __LITE_TOPIC=lite, **more)
    return rig.ask(SEND, send_header(topic=topic, queue_id=1, properties=said), body)


def change(action: str, *names: str, client: str = CLIENT, of: str = GROUP, topic: str = PARENT, **more: Any) -> Any:
    return {
        "action": action, "clientId": client, "group": of, "topic": topic, "liteTopicSet": list(names), "version": 1,
        **more,
    }  # fmt: skip


def subscribe(rig: Rig, *names: str, action: str = "PARTIAL_ADD", conn: int = 1, **more: Any) -> Command:
    body = {"subscriptionSet": [change(action, *names, **more)]}
    return rig.ask(CTL, None, json.dumps(body).encode(), client=conn)


def pop_header(rig: Rig, **fields: Any) -> PopLiteMessageRequest:
    usual = {
        "client_id": CLIENT, "consumer_group": GROUP, "topic": PARENT, "max_msg_num": 32,
        "invisible_time": INVISIBLE_MS, "poll_time": 0, "born_time": rig.now,
    }  # fmt: skip
    return PopLiteMessageRequest(**{**usual, **fields})


def ask(rig: Rig, conn: int = 1, **fields: Any) -> Command:
    return rig.ask(POP_LITE, pop_header(rig, **fields), client=conn)


def pop(rig: Rig, **fields: Any) -> list[Record]:
    """What a client gets now."""
    answer = ask(rig, **fields)
    if answer.code == 210:
        return []
    assert answer.code == 0, (answer.code, answer.remark)
    found = decode_all(answer.body)
    counts = answer.header(PopLiteMessageResponse).order_count_info
    assert counts is not None and len(counts.split(";")) == len(found)
    return found


def bodies(records: list[Record]) -> list[bytes]:
    return [one.body for one in records]


def offset_of(record: Record) -> int:
    names, offsets = (record.props[key].split(",") for key in ("INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"))
    return int(offsets[names.index(queue_name(PARENT, record.props["__LITE_TOPIC"]))])


def handle(rig: Rig, pop_time: int | None = None, **parts: Any) -> str:
    usual = Handle(0, rig.now if pop_time is None else pop_time, INVISIBLE_MS, ORDER_QUEUE, "0", "b", 0, 0)
    return str(usual._replace(**parts))


def ack(rig: Rig, record: Record, pop_time: int | None = None, **fields: Any) -> Command:
    usual = {
        "consumer_group": GROUP, "topic": PARENT, "queue_id": 0, "extra_info": handle(rig, pop_time),
        "offset": offset_of(record), "lite_topic": record.props["__LITE_TOPIC"],
    }  # fmt: skip
    return rig.ask(ACK, AckMessageRequest(**{**usual, **fields}))


def put_off(rig: Rig, record: Record, invisible_ms: int, pop_time: int | None = None, **fields: Any) -> Command:
    usual = {
        "consumer_group": GROUP, "topic": PARENT, "queue_id": 0, "extra_info": handle(rig, pop_time),
        "offset": offset_of(record), "invisible_time": invisible_ms, "lite_topic": record.props["__LITE_TOPIC"],
    }  # fmt: skip
    return rig.ask(CHANGE, ChangeInvisibleTimeRequest(**{**usual, **fields}))
