"""`perseid up --shards N`: one name for operators, a process for each core, and messages in all of them."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.output import Output

from perseid.app import sharded
from perseid.client import Admin, Message, Producer, PullConsumer

pytestmark = pytest.mark.timeout(300)
DEADLINE = 120.0
PERSEID = [sys.executable, "-c", "from perseid.cli.main import main; main()"]


def test_ports_that_are_given_are_kept(tmp_path: Path) -> None:
    planned = sharded.plan(tmp_path, 2, namesrv_port=19876, broker_port=20911)
    assert (planned.namesrv, planned.brokers[0].address) == ("127.0.0.1:19876", "127.0.0.1:20911")
    assert planned.brokers[0].args == ("--shards", "2")
    assert sharded.names(2) == ["broker-a-0", "broker-a-1"]


async def _use(namesrv: str) -> tuple[set[str], int]:
    """The brokers that took messages, and how many were read again."""
    async with Admin(namesrv) as admin:
        await admin.create_topic("orders", queues=2, brokers=["broker-a"])
    async with Producer(namesrv) as producer:
        sent = [await producer.send(Message("orders", b"one")) for _ in range(8)]
    read = 0
    async with PullConsumer(namesrv, "readers") as consumer:
        for queue in await consumer.queues("orders"):
            read += len((await consumer.pull(queue, 0)).messages)
    return {result.queue.broker_name for result in sent}, read


def test_all_shards_take_messages_and_end_together(tmp_path: Path) -> None:
    ports = ["--namesrv-port", "0", "--broker-port", "0"]
    command = [*PERSEID, "up", "--shards", "2", "--json", "--data", str(tmp_path / "data"), *ports]
    log = tmp_path / "stderr"
    with log.open("wb") as errors, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as up:
        try:
            told = json.loads(Output(up, log).line(DEADLINE))
            assert list(told["brokers"]) == sharded.names(2)
            assert asyncio.run(_use(told["namesrv"])) == (set(sharded.names(2)), 8)
            up.send_signal(signal.SIGTERM)
            assert up.wait(DEADLINE) == 0, log.read_text()
        finally:
            up.kill()
