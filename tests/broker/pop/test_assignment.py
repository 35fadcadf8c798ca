"""Which queues are a client's, where name servers know the brokers; what was learnt holds while they are gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.harness import NOW, Rig
from perseid.base.machine import ConnectFailed, Frames, Opened
from perseid.broker.pop import topic_routes as assignment
from perseid.broker.pop.topic_routes import ROUTE_MS
from perseid.wire import command, fastjson
from perseid.wire.bodies import BrokerData, QueueData, TopicConfig, TopicRouteData
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode
from perseid.wire.command import Command

A, B = "10.0.0.71:9876", "10.0.0.72:9876"
ROUTE = TopicRouteData(
    queue_datas=[
        QueueData(broker_name=name, read_queue_nums=2, write_queue_nums=2, perm=perm)
        for name, perm in (("b", 6), ("other", 6), ("closed", 2))
    ],
    broker_datas=[
        BrokerData(cluster="C", broker_name=name, broker_addrs={0: f"{name}:1"}) for name in ("b", "other", "closed")
    ],
).to_json()
OWN = [("b", 0), ("b", 1), ("b", 2)]
ALL = [("b", 0), ("b", 1), ("other", 0), ("other", 1)]


class World:
    """A broker, and two name servers that are this test."""

    def __init__(self, root: Path, namesrv: str = f"{A};{B}") -> None:
        self.rig = Rig(root, namesrv_addr=namesrv)
        self.rig.parts.topics.update(TopicConfig(topic_name="T", read_queue_nums=3, write_queue_nums=3), NOW)
        self.alive = {A: True, B: True}
        self.code, self.body = 0, ROUTE
        self.asked: list[str] = []
        self.conns: dict[int, str] = {}

    def serve(self) -> None:
        """Whoever is dialled answers, or is gone; all that is asked is answered."""
        for _ in range(20):
            dialled, self.rig.dialled = self.rig.dialled, []
            for address in dialled:
                if self.alive[address]:
                    conn = 500 + len(self.conns)
                    self.conns[conn] = address
                    self.rig.handle(Opened(conn, address, "10.0.0.9:5", "", address))
                else:
                    self.rig.handle(ConnectFailed(address, "nobody is there"))
            for conn, address in self.conns.items():
                asked, self.rig.sent[conn] = self.rig.sent.get(conn, []), []
                for one in asked:
                    if one.code == Code.GET_ROUTEINFO_BY_TOPIC:
                        self.asked.append(address)
                        self.rig.handle(Frames(conn, command.encode_response(one.opaque, self.code, None, self.body)))

    def tell(self, **fields: Any) -> int:
        said = {"topic": "T", "consumerGroup": "g", "clientId": "c", "strategyName": "AVG"} | fields
        body = {**said, "messageModel": "BROADCASTING"}
        return self.rig.tell(Code.QUERY_ASSIGNMENT, None, fastjson.dumps(body))

    def queues(self) -> list[tuple[str, int]]:
        """Those that the broker names for somebody who reads all."""
        opaque = self.tell()
        self.serve()
        answer = self.rig.answer(opaque)
        assert answer is not None and answer.code == 0, answer
        return found(answer)

    def later(self) -> None:
        """What was learnt is no longer fresh."""
        self.rig.now += ROUTE_MS + 1


def found(answer: Command) -> list[tuple[str, int]]:
    rows = fastjson.loads(answer.body)["messageQueueAssignments"]
    return sorted((row["messageQueue"]["brokerName"], row["messageQueue"]["queueId"]) for row in rows)


def test_without_name_servers_the_brokers_own_queues_count(tmp_path: Path) -> None:
    assert World(tmp_path, namesrv="").queues() == OWN


def test_queues_that_can_be_read_of_all_brokers(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert world.queues() == ALL == world.queues()
    assert world.asked == [A], "what was learnt a moment ago counts"
    world.later()
    assert world.queues() == ALL and world.asked == [A, A]


def test_the_next_name_server_is_asked_where_one_is_gone(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.alive[A] = False
    assert world.queues() == ALL and world.asked == [B]


@pytest.mark.parametrize("trouble", ["gone", "refused", "nonsense"])
def test_what_was_learnt_holds_while_nobody_says_more(tmp_path: Path, trouble: str) -> None:
    """Else all members of a group would take other queues whenever a name server has trouble."""
    world = World(tmp_path)
    if trouble != "refused":
        assert world.queues() == ALL
    world.later()
    if trouble == "gone":
        world.alive = {A: False, B: False}
        for conn in list(world.conns):
            world.rig.leave(conn)
        world.conns.clear()
    elif trouble == "refused":
        world.code, world.body = ResponseCode.TOPIC_NOT_EXIST, b""
        assert world.queues() == OWN, "nobody ever said more than the broker knows"
        world.code, world.body = 0, ROUTE
        assert world.queues() == ALL
        world.later()
        world.code, world.body = ResponseCode.SYSTEM_ERROR, b""
    else:
        world.body = b"{nonsense"
    assert world.queues() == ALL
    assert ("can't be read" in "".join(note.text for note in world.rig.notes)) == (trouble == "nonsense")


def test_so_many_wait_for_one_route(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment, "MAX_WAITING", 2)
    world = World(tmp_path)
    first = [world.tell() for _ in range(3)]
    refused = world.rig.answer(first.pop())
    assert refused is not None and refused.code == ResponseCode.SYSTEM_BUSY
    world.serve()
    answers = [world.rig.answer(opaque) for opaque in first]
    assert [found(one) for one in answers if one is not None] == [ALL, ALL] and world.asked == [A]


def test_routes_that_nobody_waits_for_go_when_there_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assignment, "MAX_ROUTES", 2)
    world = World(tmp_path)
    for topic in ("T", "T2", "T", "T3"):
        world.rig.parts.topics.update(TopicConfig(topic_name=topic, read_queue_nums=3, write_queue_nums=3), NOW)
        opaque = world.tell(topic=topic)
        world.serve()
        answer = world.rig.answer(opaque)
        assert answer is not None and found(answer) == ALL
    assert len(world.asked) == 3, "the second time that of T was still known"
    assert len(world.rig.parts.pop.routes._routes) <= 2
