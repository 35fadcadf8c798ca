"""A request for each row of a broker's route table, by the kinds of resources that it may be about.

The fields come from the header class that the row names, so a new row has its question at once; bodies, and what a
header can't say of itself, stand here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any, NamedTuple

import msgspec

from perseid.broker.config import BrokerConfig
from perseid.broker.kernel.route import Route
from perseid.broker.node import Broker
from perseid.sim.disk import SimDisk
from perseid.store.config import StoreConfig
from perseid.wire.codes import RequestCode as Code
from perseid.wire.pop import BatchAck, batch_ack_body

TOPIC, GROUP, VICTIM = "asked_topic", "asked_group", "asked_user"
OTHER = f"{GROUP}_2"
RETRY, DEAD = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"


class Question(NamedTuple):
    code: int
    about: str
    ext: dict[str, str]
    body: str = ""


NAMED: Mapping[str, object] = {
    "topic": TOPIC, "parentTopic": TOPIC, "originTopic": TOPIC, "liteTopic": "asked_lite", "defaultTopic": "TBW102",
    "group": GROUP, "consumerGroup": GROUP, "producerGroup": GROUP, "groupName": GROUP, "srcGroup": GROUP,
    "compareGroup": GROUP, "destGroup": OTHER, "subscription": "*", "expressionType": "TAG", "perm": 6,
    "topicFilterType": "SINGLE_TAG", "commitOrRollback": 8, "statsName": "TOPIC_PUT_NUMS", "statsKey": TOPIC,
    "extraInfo": "0 0 60000 0 0 broker 0 0", "clientId": "asked_client", "clientID": "asked_client",
    "username": VICTIM, "subject": f"User:{VICTIM}", "readQueueNums": 1, "writeQueueNums": 1, "isForce": "true",
    "a": GROUP, "b": TOPIC, "c": "TBW102",
}  # fmt: skip
"""What a field of this name says, whether a request has to have it or not, but `OPTIONAL` ones."""
OPTIONAL = {"liteTopic", "clientId", "isForce", "originTopic"}
USERS: Mapping[int, Mapping[str, object]] = {
    **{code: {"username": VICTIM} for code in range(3001, 3005)},
    3005: {"filter": VICTIM},
    **{code: {"subject": f"User:{VICTIM}"} for code in (3006, 3007, 3009)},
    3008: {"subject": f"User:{VICTIM}", "resource": f"Topic:{TOPIC}"},
    3010: {"subjectFilter": VICTIM, "resourceFilter": "Topic"},
}
_QUEUE = {"topic": TOPIC, "brokerName": "b", "queueId": 0}
_SUBSCRIPTION = {"topic": TOPIC, "subString": "*", "expressionType": "TAG", "tagsSet": [], "codeSet": []}
_RETRIED = {**_SUBSCRIPTION, "topic": RETRY}
_GROUP_CONFIG = {"groupName": GROUP, "consumeEnable": True}
_TOPIC_CONFIG = {
    "topicName": TOPIC, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0, "order": False,
}  # fmt: skip
_LOCK = {"consumerGroup": GROUP, "clientId": "asked_client", "mqSet": [_QUEUE, {**_QUEUE, "topic": RETRY}]}
_ACK = BatchAck(GROUP, TOPIC, "0", 0, 0, 0, 1, 60_000, (0, 1))
_POLICY = {"resource": f"Topic:{TOPIC}", "actions": ["Get"], "decision": "Allow"}
_ACL = {"subject": f"User:{VICTIM}", "policies": [{"policyType": "Custom", "entries": [_POLICY]}]}


def _consumer(*subscriptions: dict[str, Any]) -> dict[str, Any]:
    return {
        "groupName": GROUP, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING", "unitMode": False,
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [*subscriptions],
    }  # fmt: skip


def _heartbeat(producers: int, *consumers: dict[str, Any]) -> dict[str, Any]:
    names = [{"groupName": f"{GROUP}_{n}"} for n in range(producers)]
    return {"clientID": "asked_client", "producerDataSet": names, "consumerDataSet": [*consumers]}


BODIES: Mapping[int, Mapping[str, object]] = {
    Code.UPDATE_AND_CREATE_TOPIC_LIST: {"": {"topicConfigList": [_TOPIC_CONFIG]}},
    Code.UPDATE_BROKER_CONFIG: {"": "shortPollingTimeMills=1000"},
    Code.HEART_BEAT: {
        "a consumer": _heartbeat(0, _consumer(_SUBSCRIPTION, _RETRIED)),
        "a producer": _heartbeat(1),
        "nobody": _heartbeat(0),
    },
    Code.LOCK_BATCH_MQ: {"": _LOCK},
    Code.UNLOCK_BATCH_MQ: {"": _LOCK},
    Code.CHECK_CLIENT_CONFIG: {"": {"clientId": "c", "group": GROUP, "subscriptionData": _SUBSCRIPTION}},
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: {"": _GROUP_CONFIG},
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: {"": {"groupConfigList": [_GROUP_CONFIG]}},
    Code.QUERY_ASSIGNMENT: {
        "": {
            "topic": TOPIC, "consumerGroup": GROUP, "clientId": "asked_client", "strategyName": "AVG",
            "messageModel": "CLUSTERING",
        },
    },
    Code.SET_MESSAGE_REQUEST_MODE: {
        "": {"topic": TOPIC, "consumerGroup": GROUP, "mode": "PULL", "popShareQueueNum": 0},
    },
    Code.UPDATE_AND_CREATE_STATIC_TOPIC: {"": {}},
    Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: {"": f"{GROUP}=1000"},
    Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: {"": GROUP},
    Code.BATCH_ACK_MESSAGE: {"": batch_ack_body("b", [_ACK]).decode()},
    Code.LITE_SUBSCRIPTION_CTL: {
        "": {
            "subscriptionSet": [
                {"action": "PARTIAL_ADD", "clientId": "c", "group": GROUP, "topic": TOPIC, "liteTopicSet": ["l"]},
            ],
        },
    },
    3001: {"": {"password": "p"}},
    3002: {"": {"password": "p"}},
    3006: {"": _ACL},
    3007: {"": _ACL},
}  # fmt: skip


def rows() -> dict[int, Route]:
    """The rows of a broker."""
    broker = Broker(BrokerConfig(), StoreConfig(), SimDisk(Random(1)), Random(1))
    return {int(code): route for code, route in broker.parts.dispatch.routes.items()}


def _fields(code: int, route: Route | None) -> dict[str, str]:
    """The fields of a request that has all that it needs, and names a topic and a group where it can."""
    if code in USERS:
        return {name: str(value) for name, value in USERS[code].items()}
    if route is None or route.header is None:
        return {}
    made: dict[str, object] = {}
    for field in msgspec.structs.fields(route.header):
        name = field.encode_name
        if field.required or (name in NAMED and name not in OPTIONAL):
            number = "int" in str(field.type)
            made[name] = NAMED.get(name, 0 if number else "false" if "bool" in str(field.type) else "x")
    return {name: str(value) for name, value in made.items()}


def _ways(ext: dict[str, str], route: Route | None) -> Iterator[tuple[str, dict[str, str]]]:
    """The request as it is, about a retry topic, and without a topic where it may be so."""
    yield "", ext
    named = "b" if "b" in ext else "topic"
    if named not in ext:
        return
    yield "a retry topic", {**ext, named: RETRY}
    assert route is not None and route.header is not None
    needed = {f.encode_name for f in msgspec.structs.fields(route.header) if f.required}
    if named not in needed:
        yield "no topic", {name: value for name, value in ext.items() if name != named}


def questions() -> list[Question]:
    """All of them, by code."""
    table = rows()
    asked: list[Question] = []
    for code in sorted({*table, *USERS}):
        route = table.get(code)
        for way, ext in _ways(_fields(code, route), route):
            for body_way, body in BODIES.get(code, {"": ""}).items():
                about = ", ".join(filter(None, (way, body_way)))
                asked.append(Question(code, about, ext, body if isinstance(body, str) else json.dumps(body)))
        if code == Code.PULL_MESSAGE:
            for about, topic in (("a dead letter topic", DEAD), ("another group's retry topic", f"%RETRY%{OTHER}")):
                asked.append(Question(code, about, {**_fields(code, route), "topic": topic}))
    return asked
