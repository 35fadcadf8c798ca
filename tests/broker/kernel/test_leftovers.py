"""What connections that are gone leave behind: nothing, however many there were; and in which order a broker ends."""

from __future__ import annotations

import json
from collections import Counter, deque
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any

from tests.controller.harness import SET, Client, Group, register

from broker.harness import NOW, Rig
from broker.pops import POP, pop, pop_header
from broker.requests import SUBSCRIPTION, SUSPEND, pull_header
from perseid.base.machine import Closed, Flush, SaveState, Shutdown
from perseid.wire.codes import RequestCode as Code
from perseid.wire.headers.offsets import UpdateConsumerOffsetRequest

BOUNDED = {"_deadlines", "_free", "_due", "_samples"}
"""What leaves out what is stale, up to a limit of its own."""
LEAVES = (str, bytes, bytearray, memoryview, int, float, bool, type, FunctionType, MethodType, ModuleType)


def sizes(root: object) -> dict[str, int]:
    """How much each table, set and list holds that can be reached from a node, by the class and its name there."""
    found: Counter[str] = Counter()
    seen: set[int] = set()
    todo: list[tuple[str, Any]] = [(type(root).__name__, root)]
    while todo:
        name, one = todo.pop()
        if one is None or isinstance(one, LEAVES) or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, dict):
            found[name] += len(one)
            todo += [(name, value) for value in one.values()]
        elif isinstance(one, list | set | frozenset | tuple | deque):
            found[name] += len(one) if not isinstance(one, tuple) else 0
            todo += [(name, value) for value in one]
        elif type(one).__module__.startswith("perseid.") and not type(one).__module__.startswith("perseid.sim"):
            slots = [slot for kind in type(one).__mro__ for slot in getattr(kind, "__slots__", ())]
            fields = {**getattr(one, "__dict__", {}), **{s: getattr(one, s, None) for s in slots}}
            todo += [(f"{type(one).__name__}.{key}", v) for key, v in fields.items() if key not in BOUNDED]
    return dict(found)


def grown(before: dict[str, int], after: dict[str, int]) -> dict[str, tuple[int, int]]:
    """What holds more than it did."""
    return {name: (before.get(name, 0), size) for name, size in after.items() if size > before.get(name, 0)}


def churn(rig: Rig, first: int) -> None:
    """Producers and consumers come, do what they do, wait, and go."""
    for client in range(first, first + 5):
        beat = {"clientID": f"c{client}", "producerDataSet": [{"groupName": "p"}], "consumerDataSet": [{
            "groupName": "g", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False,
            "subscriptionDataSet": [{"topic": "T", "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1}],
        }]}  # fmt: skip
        assert rig.ask(Code.HEART_BEAT, None, json.dumps(beat).encode(), client=client).code == 0
        wait = {"sys_flag": SUBSCRIPTION | SUSPEND, "suspend_timeout_millis": 15_000}
        rig.tell(Code.PULL_MESSAGE, pull_header(topic="T", queue_id=0, queue_offset=1, **wait), client=client)
        rig.tell(POP, pop_header(rig, consumer_group="h", poll_time=15_000), client=client)
        lock = {
            "consumerGroup": "g",
            "clientId": f"c{client}",
            "mqSet": [{"topic": "T", "brokerName": "b", "queueId": 1}],
        }
        rig.ask(Code.LOCK_BATCH_MQ, None, json.dumps(lock).encode(), client=client)
        rig.ask(Code.UNLOCK_BATCH_MQ, None, json.dumps(lock).encode(), client=client)
    for client in range(first, first + 5):
        rig.leave(client)
        rig.sent.pop(client, None)
    rig.until(rig.now + 200_000)


def test_connections_that_are_gone_leave_nothing_at_a_broker(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.send("T", 0, b"m")
    assert pop(rig, consumer_group="h")
    rig.leave(1)
    rig.sent.clear()
    rig.until(NOW + 200_000)
    churn(rig, 10)
    before = sizes(rig.broker)
    for first in range(20, 120, 10):
        churn(rig, first)
    assert not (found := grown(before, sizes(rig.broker))), found


def test_connections_that_are_gone_leave_nothing_at_a_controller() -> None:
    group = Group()
    cell = group.start()

    def churn() -> None:
        clients = [Client(cell) for _ in range(5)]
        for number, client in enumerate(clients, 1):
            register(client, number)
            client.ask(Code.CONTROLLER_GET_REPLICA_INFO, {"brokerName": SET})
        for client in clients:
            cell.do(Closed(client.conn, "left"))
        group.pass_time(1_000)

    churn()
    before = sizes(cell.node)
    for _ in range(10):
        churn()
    found = {name: size for name, size in grown(before, sizes(cell.node)).items() if "Log." not in name}
    assert not found, found


def test_the_log_is_durable_before_what_was_read_of_it(tmp_path: Path) -> None:
    """A power cut while a broker ends: no group is ahead of the log that is left."""
    rig = Rig(tmp_path)
    rig.send("T", 0, b"m")
    rig.hold_io()
    header = UpdateConsumerOffsetRequest(consumer_group="g", topic="T", queue_id=0, commit_offset=1)
    rig.ask(Code.UPDATE_CONSUMER_OFFSET, header)
    rig.send("T", 0, b"n")
    rig.handle(Shutdown())
    order = [
        "log" if isinstance(one, Flush) and any(file.path.startswith("commitlog/") for file in one.files)
        else one.path if isinstance(one, SaveState) else ""
        for one in rig.io
    ]  # fmt: skip
    assert order.index("log") < order.index("config/consumerOffset.json"), order
