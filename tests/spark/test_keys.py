"""Keys of the source and of the sink: from options, and in nothing that Spark shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.fake import BROKER, FakeServer, in_a_thread
from tests.spark.conftest import fill

from perseid.base.errors import ConfigError
from perseid.client import ClientError, Credentials, MessageQueue
from perseid.client.subscription import ALL, Subscription
from perseid.spark import plan
from perseid.spark.options import parse
from perseid.spark.pulls import Pulls
from perseid.spark.pushdown import Pushed
from perseid.spark.reading import QueueRange, read_range
from perseid.spark.sink_options import parse as parse_sink
from perseid.testing.embedded import EmbeddedBroker

PLANTED = "planted-7c-in-no-plan"
GIVEN = {"accessKey": "me", "secretKey": PLANTED}


def test_keys_are_options_or_in_a_file_that_is_read_when_it_is_needed(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    told = {"nameserver": "h:1", "subscribe": "t"}
    by_file = parse({**told, "credentialsFile": str(file)}, streaming=False)
    with pytest.raises(ClientError, match=f"credentials {file}: No such file"):
        by_file.link()
    for secret in ("first", "renewed"):
        file.write_text(f"accessKey: me\nsecretKey: {secret}\n")
        file.chmod(0o600)
        assert by_file.link()["credentials"] == Credentials("me", secret)
    sink = parse_sink({"nameserver": "h:1", "topic": "t", **GIVEN})
    assert sink.link()["credentials"] == Credentials("me", PLANTED)
    assert PLANTED not in repr(sink), "nobody is shown it by accident"
    assert parse(told, streaming=False).link()["credentials"] is None, "the environment's are looked up by clients"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"secretKey": PLANTED}, "accessKey and secretKey go together"),
        ({"accessKey": "me"}, "accessKey and secretKey go together"),
        ({**GIVEN, "credentialsFile": "f"}, "credentialsFile and accessKey: give one"),
        ({**GIVEN, "secretkeys": PLANTED}, "did you mean 'secretKey'"),
        ({**GIVEN, "SECRETKEY": "another"}, "secretkey"),
    ],
)
def test_what_does_not_fit_is_told_without_the_key(given: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse({"nameserver": "h:1", "subscribe": "t", **given}, streaming=False)
    assert told.lower() in str(error.value).lower() and PLANTED not in str(error.value)


def test_what_the_source_asks_is_signed_with_them() -> None:
    with in_a_thread(FakeServer({"t": 1})) as server:
        for number in range(3):
            server.store("t", 0, b"%d" % number)
        options = parse({"nameserver": server.address, "subscribe": "t", **GIVEN}, streaming=False)
        part = QueueRange(plan.Range(MessageQueue("t", BROKER, 0), 0, 3))
        assert sum(one.num_rows for one in read_range(options, ["value"], part, Pushed())) == 3
        asked = [command for command in server.seen if not command.is_response]
        assert asked and {command.ext.get("AccessKey") for command in asked} == {"me"}
        keys = Credentials("other", "key")
        with Pulls(
            server.address, "g", MessageQueue("t", BROKER, 0), Subscription.parse("t", ALL, 0), None, keys
        ) as pulls:
            assert list(pulls.read(0, 3))
        assert server.seen[-1].ext["AccessKey"] == "other"


@pytest.fixture
def shown(spark: Any, broker: EmbeddedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[str]:
    """All that Spark says of queries that were given keys: plans, progress, and what its pages are made of."""
    fill(broker, "planted", 20)
    where = {"nameserver": broker.namesrv, **GIVEN}
    read = spark.read.format("perseid").options(**where, subscribe="planted").load().filter("queueId >= 0")
    assert read.count() == 20
    told: list[str] = []
    for mode in ("simple", "extended", "formatted", "cost", "codegen"):
        read.explain(mode=mode)
    read.select("value").write.format("perseid").options(**where, topic="planted").mode("append").save()
    stream = spark.readStream.format("perseid").options(**where, subscribe="planted", startingOffsets="earliest").load()
    query = (
        stream.select("value").writeStream.format("perseid").options(**where, topic="planted")
        .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(120)
    query.explain(True)
    told += [json.dumps(query.lastProgress, default=str), str(query.status), str(query.exception())]
    with pytest.raises(Exception, match="no-such-topic") as error:
        spark.read.format("perseid").options(**where, subscribe="no-such-topic").load().count()
    told.append(str(error.value))
    store = spark._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    told += [executions.apply(number).toString() for number in range(executions.size())]
    told += [executions.apply(number).physicalPlanDescription() for number in range(executions.size())]
    told += [path.read_text(errors="replace") for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    yield "\n".join((*told, *capsys.readouterr()))


@pytest.mark.spark
def test_a_key_is_in_nothing_that_spark_shows(shown: str) -> None:
    assert "BatchScan" in shown and "numInputRows" in shown, "it looks where plans are"
    assert PLANTED not in shown
