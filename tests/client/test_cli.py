"""`perseid send`, `consume` and `topic`: output, exit codes, and errors that say what to do next."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from perseid.cli import messages, topics

from .fake import FakeServer, in_a_thread, refuse

app = typer.Typer()
messages.register(app)
topics.register(app)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with in_a_thread(FakeServer({"t": 2})) as fake:
        yield fake


def call(server: FakeServer, *args: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, [*args, "-n", server.address], input=stdin)


def test_what_is_sent_can_be_consumed(server: FakeServer) -> None:
    sent = call(server, "send", "t", "one", "two", "--tag", "a", "--keys", "k1 k2", "-p", "x=1", "--json")
    assert sent.exit_code == 0, sent.output
    rows = [json.loads(line) for line in sent.stdout.splitlines()]
    assert [row["status"] for row in rows] == ["SEND_OK", "SEND_OK"]
    got = call(server, "consume", "t", "--json")
    assert got.exit_code == 0, got.output
    found = [json.loads(line) for line in got.stdout.splitlines()]
    assert sorted(row["body"] for row in found) == ["one", "two"]
    assert {row["msgId"] for row in found} == {row["msgId"] for row in rows}
    assert (found[0]["tag"], found[0]["keys"], found[0]["properties"]["x"]) == ("a", ["k1", "k2"], "1")


def test_a_priority_travels(server: FakeServer) -> None:
    assert call(server, "send", "t", "one", "--priority", "2").exit_code == 0
    (row,) = (json.loads(line) for line in call(server, "consume", "t", "--json").stdout.splitlines())
    assert row["properties"]["_SYS_MSG_PRIORITY_"] == "2"
    assert call(server, "send", "t", "one", "--priority", "-1").exit_code == 2


def test_lines_are_messages(server: FakeServer, tmp_path: Path) -> None:
    lines = [f"line {n}" for n in range(1000)]
    sent = call(server, "send", "t", "--order-key", "k", "--json", stdin="\n".join(lines))
    assert json.loads(sent.stdout) == {"topic": "t", "sent": 1000}
    assert call(server, "consume", "t").stdout.splitlines() == lines
    path = tmp_path / "more"
    path.write_text("a\r\n\nb\n")
    assert call(server, "send", "t", "--file", str(path)).stdout == "2 messages are stored in t\n"
    assert sum(len(q.records) for q in server.queues.values()) == 1002


def test_a_topic_that_does_not_exist_yet_is_waited_for(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = call(server, "consume", "later")
    assert missing.exit_code == 1 and missing.stdout == ""
    assert missing.stderr == (
        "perseid: no route for topic 'later': it does not exist; create it: perseid topic create later"
        f" (what there is: perseid topic list -n {server.address})\n"
    )
    assert call(server, "send", "t", "x").exit_code == 0
    looks = 0

    def look(*_: object) -> float:
        """Between two looks: at the third one, the topic is there, with a message."""
        nonlocal looks
        looks += 1
        if looks == 3:
            server.queues_of["later"] = 1
            server.queues["later", 0] = next(queue for queue in server.queues.values() if queue.records)
        return 0.0

    real = asyncio.sleep
    monkeypatch.setattr(messages.asyncio, "sleep", lambda s: real(look() if s == messages.MISSING_S else s))
    got = call(server, "consume", "later", "--follow", "--count", "1")
    assert (got.exit_code, got.stdout, looks) == (0, "x\n", 3)
    assert got.stderr == "perseid: topic later does not exist yet; it is looked for each second\n"


def test_consume_begins_and_ends_where_it_is_told(server: FakeServer) -> None:
    for number in range(5):
        server.store("t", 0, b"%d" % number)
    assert call(server, "consume", "t", "--count", "2", "-g", "g", "--commit").stdout == "0\n1\n"
    assert server.committed["g", "t", 0] == 2
    assert call(server, "consume", "t", "-g", "g", "--from", "committed").stdout == "2\n3\n4\n"
    assert call(server, "consume", "t", "--from", "1700000000003", "--count", "2").stdout == "3\n4\n"
    assert call(server, "consume", "t", "--from", "last").stdout == ""
    short = call(server, "consume", "t", "--count", "6")
    assert short.exit_code == messages.NOT_ALL
    assert "5 of 6 messages came" in short.stderr
    waited = call(server, "consume", "t", "--follow", "--timeout", "0.05")
    assert (waited.exit_code, waited.stdout) == (0, "0\n1\n2\n3\n4\n")


def test_bodies_that_are_no_text_are_shown_in_hex(server: FakeServer) -> None:
    server.store("t", 0, b"\xff\x00")
    assert json.loads(call(server, "consume", "t", "--json").stdout)["bodyHex"] == "ff00"


def test_topics_are_made_listed_shown_and_deleted(server: FakeServer) -> None:
    made = call(server, "topic", "create", "orders", "--queues", "3")
    assert made.stdout == "topic orders is ready on fake-a (3 queues)\n"
    assert call(server, "topic", "list").stdout == "orders\nt\n"
    for name in ("%RETRY%g", "SCHEDULE_TOPIC_XXXX", "TRANS_CHECK_MAX_TIME_TOPIC", "BenchmarkTest", "fake-a"):
        server.queues_of[name] = 1
    assert json.loads(call(server, "topic", "list", "--json").stdout) == ["orders", "t"]
    assert "%RETRY%g" in call(server, "topic", "list", "--all").stdout
    route = json.loads(call(server, "topic", "route", "orders", "--json").stdout)
    assert route["queues"] == [{"broker": "fake-a", "readQueues": 3, "writeQueues": 3, "perm": 6}]
    assert server.address in call(server, "topic", "route", "orders").stdout
    server.store("t", 1, b"x")
    stats = json.loads(call(server, "topic", "stats", "t", "--json").stdout)
    assert (stats["messages"], [row["maxOffset"] for row in stats["queues"]]) == (1, [0, 1])
    assert "1 messages" in call(server, "topic", "stats", "t").stdout
    refused = call(server, "topic", "delete", "orders")
    assert (refused.exit_code, "--yes" in refused.stderr) == (2, True)
    assert call(server, "topic", "delete", "orders", "--yes").exit_code == 0
    assert call(server, "topic", "list").stdout == "t\n"


def test_errors_say_what_to_do_next(server: FakeServer) -> None:
    unknown = call(server, "consume", "nowhere")
    assert unknown.exit_code == 1
    assert "perseid topic list" in unknown.stderr
    nobody = CliRunner().invoke(app, ["topic", "list", "-n", "127.0.0.1:1"])
    assert nobody.exit_code == 1
    assert "perseid up" in nobody.stderr
    server.script[310] += [refuse(13, "too odd")]
    assert "MESSAGE_ILLEGAL (13): too odd" in call(server, "send", "t", "x").stderr
    empty = call(server, "send", "t", "")
    assert "the body is empty" in empty.stderr
    for args in (("send", "t", "x", "-p", "novalue"), ("consume", "t", "--from", "yesterday")):
        assert call(server, *args).exit_code == 2


def test_the_name_server_can_come_from_the_environment(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", server.address)
    assert CliRunner().invoke(app, ["topic", "list"]).stdout == "t\n"
