"""`perseid admin` on a Java cluster, and on ours: what operators read and change with it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import rig
from typer.testing import CliRunner

from perseid.cli.main import app

pytestmark = pytest.mark.interop


def call(cluster: rig.Cluster, *args: str) -> Any:
    result = CliRunner().invoke(app, ["admin", *args, "-n", cluster.namesrv, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def say(cluster: rig.Cluster, *args: str) -> str:
    result = CliRunner().invoke(app, ["admin", *args, "-n", cluster.namesrv])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_topics_groups_clients_and_messages(java: rig.Client, cluster: rig.Cluster, topic: str, name: str) -> None:
    handle = java("push.start", topic=topic, group=name)
    [sent] = java.send(topic, ["find me"], keys="rare", tags="T")
    java.collect(handle, 1)
    client = java("push.clientId", handle=handle)
    rig.until("committed", lambda: call(cluster, "lag", name, "--topic", topic)["lag"] == 0)
    [row] = [row for row in call(cluster, "topics") if row["topic"] == topic]
    assert (row["brokers"], row["queues"], row["messages"]) == ([cluster.broker_name], 4, 1)
    [row] = [row for row in call(cluster, "groups") if row["group"] == name]
    assert (row["members"], row["kind"], row["model"], row["lag"]) == (1, "push", "clustering", 0)
    told = call(cluster, "connections", name)
    assert [(one["clientId"], one["language"]) for one in told["members"] if one["kind"] == "consumer"] == [
        (client, "JAVA")
    ]
    assert told["subscriptions"][topic] == "*"
    queues = call(cluster, "consumer", name)[client]["queues"]
    assert {row["queue"] for row in queues if row["topic"] == topic} == {0, 1, 2, 3}
    rig.until("indexed", lambda: java.admin("queryMessage", topic, "rare", 32, 0, 1 << 50))
    place = ("--queue", f"{cluster.broker_name}:{sent['queueId']}", "--offset", str(sent["queueOffset"]))
    for found in (
        call(cluster, "messages", topic, "--key", "rare"),
        call(cluster, "messages", topic, *place),
        call(cluster, "message", sent["offsetMsgId"]),
        call(cluster, "message", sent["msgId"], "--topic", topic),
    ):
        assert [(one["body"], one["tag"], one["keys"]) for one in found] == [("find me", "T", ["rare"])]


def test_offsets_of_groups(java: rig.Client, cluster: rig.Cluster, topic: str, name: str) -> None:
    queue = {"topic": topic, "broker": cluster.broker_name, "queueId": 1}
    java.send(topic, [f"m{n}" for n in range(5)], queue=queue)
    java.consume(topic, name, 5)
    rig.until("committed", lambda: call(cluster, "lag", name, "--topic", topic)["lag"] == 0)

    def lag(group: str) -> int:
        return int(call(cluster, "lag", group, "--topic", topic)["lag"])

    place = f"{cluster.broker_name}:1"
    assert [row["offset"] for row in call(cluster, "reset-offset", name, topic, "--to", "2", "--queue", place)] == [2]
    assert lag(name) == 3
    call(cluster, "reset-offset", name, topic, "--to", "first")
    assert lag(name) == 5
    other = f"{name}_other"
    assert "is ready" in say(cluster, "create-group", other, "--retries", "2")
    assert "goes on where" in say(cluster, "clone-offset", name, other, "--topic", topic)
    assert lag(other) == 5
    call(cluster, "reset-offset", other, topic, "--to", "last")
    assert lag(other) == 0
    assert "with its offsets" in say(cluster, "delete-group", other, "--offsets")
    assert not [row for row in call(cluster, "groups") if row["group"] == other]
