"""Latencies and failures from traces: those that a Java client wrote, and some whose percentiles are known."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.spark.log.logs import T0, record, written

from perseid.base.errors import ConfigError
from perseid.client import Message
from perseid.client.blocking import BlockingProducer
from perseid.spark.jobs.trace import CONSUME, END_TO_END, SEND, UNKNOWN, Latency, Traced, trace
from perseid.testing.embedded import EmbeddedBroker
from perseid.wire.host import host_from
from perseid.wire.names import TRACE_TOPIC

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

RECORDED = Path(__file__).parents[2] / "wire" / "traces.json"
SENDER, TAKER = "10.1.0.1", "10.1.0.2"
COUNT = 100


def body(traces: Iterable[Iterable[object]]) -> bytes:
    return "".join("\x01".join(map(str, fields)) + "\x02" for fields in traces).encode()


def sends() -> list[bytes]:
    """Of topic orders: costs of 1 to 100 ms; two did not end well."""
    return [
        body([("Pub", T0 + i * 1000, "r", "p", "orders", f"ID{i}", "t", "k", "b:10911", 5, i + 1, 0, "O",
               "false" if i in (3, 4) else "true")])
        for i in range(COUNT)
    ]  # fmt: skip


def taken() -> list[bytes]:
    """The first ones were handed out 20 ms after they were sent, number 50 a second before; 60 failed once; an unknown
    one as well."""
    found = []
    for i in range(COUNT):
        at = T0 + i * 1000 + (-1000 if i == 50 else 20)
        found.append(body([
            ("SubBefore", at, "r", "g", f"R{i}", f"ID{i}", 0, "k"),
            ("SubAfter", f"R{i}", f"ID{i}", 7, "false" if i == 60 else "true", "k", 2 if i == 60 else 0, at + 7, "g"),
        ]))  # fmt: skip
    again = T0 + 70_000
    found.append(
        body(
            [
                ("SubBefore", again, "r", "g", "R60b", "ID60", 1, "k"),
                ("SubAfter", "R60b", "ID60", 9, "true", "k", 0, again, "g"),
                ("SubBefore", again, "r", "g", "Rx", "IDx", 0, "k"),
                ("SubAfter", "Rx", "IDx", 9, "true", "k", 0, again, "g"),
            ]
        )
    )
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = bytearray()
    for client, bodies in ((SENDER, sends()), (TAKER, taken()), (TAKER, [b"hello"])):
        for number, one in enumerate(bodies):
            host = host_from(f"{client}:{4000 + number}")
            data += record(len(data), topic=TRACE_TOPIC, body=one, born_host=host)
    data += record(len(data), topic="orders", body=b"no trace")
    return written(tmp_path_factory.mktemp("store") / "commitlog", [(0, bytes(data) + bytes(1000))]).parent


def found_in(found: Traced) -> dict[tuple[str, str, str], Latency]:
    return {(one.kind, one.topic, one.client): one for one in found.latencies}


def test_percentiles_and_failures_are_those_of_the_traces(spark: Any, folder: Path) -> None:
    found = trace(spark, folders=[str(folder)])
    assert found.kinds == {"Pub": COUNT, "SubBefore": COUNT + 2, "SubAfter": COUNT + 2}
    assert (found.traces, found.undecodable) == (3 * COUNT + 4, 1) and "no kind of trace: 'hello'" in found.why
    latencies = found_in(found)
    assert latencies.keys() == {
        (SEND, "orders", SENDER), (END_TO_END, "orders", TAKER), (CONSUME, "orders", TAKER), (CONSUME, UNKNOWN, TAKER),
    }  # fmt: skip
    send = latencies[SEND, "orders", SENDER]
    assert (send.count, send.p50, send.p99, send.most, send.failures) == (100, 50.5, 99.01, 100.0, 2)
    ends = latencies[END_TO_END, "orders", TAKER]
    assert (ends.count, ends.p50, ends.most, ends.negative) == (100, 20.0, 20.0, 1), "a retry is not a first hand-out"
    consumed = latencies[CONSUME, "orders", TAKER]
    assert (consumed.count, consumed.p50, consumed.most, consumed.failures) == (101, 7.0, 9.0, 1)
    assert found.untraced == 1
    failures = {(one.kind, one.group, one.how): one.count for one in found.failures}
    assert failures == {(SEND, "p", "not SEND_OK"): 2, (CONSUME, "g", "EXCEPTION"): 1}
    curve = next(values for kind, topic, values in found.curves if (kind, topic) == (SEND, "orders"))
    assert list(curve) == sorted(curve) and curve[-1] == 100.0
    assert {kind for kind, *_ in found.over_time} == {SEND, END_TO_END, CONSUME} and found.bucket_s == 2


def test_what_a_java_client_traced_is_read_from_a_broker(spark: Any, broker: EmbeddedBroker) -> None:
    """The recorded bodies of a real trace topic, in a topic of ours."""
    broker.create_topic("java-traces", 1)
    with BlockingProducer(broker.namesrv) as producer:
        for one in json.loads(RECORDED.read_text()):
            producer.send(Message("java-traces", base64.b64decode(one)))
    found = trace(spark, nameserver=broker.namesrv, topic="java-traces")
    kinds = (SEND, END_TO_END, CONSUME)
    counts = {kind: sum(one.count for one in found.latencies if one.kind == kind) for kind in kinds}
    assert counts == {SEND: 7, END_TO_END: 6, CONSUME: 12} and (found.undecodable, found.untraced) == (0, 0)
    assert sum(one.count for one in found.failures) == 6 and {one.how for one in found.failures} == {"FAILED"}
    assert {one.client for one in found.latencies} == {"127.0.0.1"}


@pytest.mark.slow
def test_the_command_makes_a_report(command: Callable[..., Any], folder: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    done = command("trace", "--folder", folder, "--report", report, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["traces"] == 304 and told["latencies"][0]["kind"] == SEND
    text = report.read_text()
    assert text.count("<picture>") == 3 and "From send to hand-out" in text and "99.0" in text


def test_wrong_input_is_said(spark: Any, broker: EmbeddedBroker, folder: Path) -> None:
    with pytest.raises(ConfigError, match="knows no topic 'java-tracez'"):
        trace(spark, nameserver=broker.namesrv, topic="java-tracez")
    with pytest.raises(ConfigError, match="either a name server"):
        trace(spark)
    assert trace(spark, folders=[str(folder)], topic="nothing").traces == 0
