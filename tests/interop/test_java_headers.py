"""Stock Java clients whose headers are JSON, and binary: sends, batches and pulls that come again and again.

A broker of ours answers the first of a kind by its handlers, and the others by the core.
"""

from __future__ import annotations

from typing import Any

import pytest
import rig

pytestmark = pytest.mark.interop

ROUNDS = 40
"""Enough for several pulls of 32 behind one another, of which the first is the one that is learnt."""


def _sends(java: rig.Client, topic: str) -> list[dict[str, Any]]:
    """What each round of one send and one batch of three to the same queue was answered: a row a message."""
    queue = {"topic": topic, "broker": java.cluster.broker_name, "queueId": 1}
    rows = []
    for number in range(ROUNDS):
        words = {"topic": topic, "keys": f"k{number}"}
        given = [{**words, "body": f"{number}-{i} ü", "tags": f"T{i % 2}"} for i in range(4)]
        [alone] = java("send", messages=[{**given[0], "queue": queue}])
        batch = java("send", mode="batch", queue=queue, messages=given[1:])
        assert (alone["status"], batch["status"]) == ("SEND_OK", "SEND_OK")
        ids = [alone["msgId"], *batch["msgId"].split(",")]
        offset_ids = [alone["offsetMsgId"], *batch["offsetMsgId"].split(",")]
        assert (alone["queueOffset"], batch["queueOffset"]) == (4 * number, 4 * number + 1)
        rows += [
            {"msgId": ids[i], "offsetMsgId": offset_ids[i], "queueId": 1, "queueOffset": 4 * number + i,
             "body": m["body"], "tags": m["tags"], "keys": m["keys"]}
            for i, m in enumerate(given)
        ]  # fmt: skip
    return rows


def _as_sent(got: list[dict[str, Any]], sent: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(({key: m[key] for key in sent[0]} for m in got), key=lambda m: m["queueOffset"])


def test_answers_say_where_messages_are(either_java: rig.Client, topic: str, name: str) -> None:
    sent = _sends(either_java, topic)
    assert _as_sent(either_java.consume(topic, name, len(sent)), sent) == sent


def test_consumers_are_given_what_comes_while_they_pull(either_java: rig.Client, topic: str, name: str) -> None:
    everything = either_java("push.start", topic=topic, group=f"{name}_1")
    some = either_java("push.start", topic=topic, group=f"{name}_2", expr="T1")
    sent = _sends(either_java, topic)
    assert _as_sent(either_java.collect(everything, len(sent)), sent) == sent
    wanted = [m for m in sent if m["tags"] == "T1"]
    assert _as_sent(either_java.collect(some, len(wanted)), sent) == wanted
