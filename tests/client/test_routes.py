"""Routes: name servers in turn, what is cached, topics that are yet to be created."""

import asyncio
from random import Random

import pytest

from perseid.client.connection import Connection, Connections
from perseid.client.errors import ClientError, ConnectFailed, NoRoute
from perseid.client.model import MessageQueue
from perseid.client.pull import PullConsumer
from perseid.client.routes import BrokerQueues, NameServers, Routes, TopicRoute
from perseid.wire.codes import RequestCode
from perseid.wire.command import Command

from .fake import BROKER, FakeServer, run, serve_late, silence

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC


def ignore(connection: Connection, command: Command) -> None:
    raise AssertionError("the server asks nothing in this test")


def routes_of(addresses: str, connections: Connections) -> Routes:
    return Routes(NameServers(addresses, connections, Random(1)))


def test_a_route_is_asked_for_once_and_kept() -> None:
    async def test() -> None:
        async with FakeServer({"t": 2}) as server:
            connections = Connections(ignore)
            routes = routes_of(server.address, connections)
            found = await asyncio.gather(*(routes.get("t") for _ in range(5)))
            await routes.get("t")
            assert server.count(ROUTE) == 1
            assert found[0].write_queues() == [MessageQueue("t", BROKER, 0), MessageQueue("t", BROKER, 1)]
            assert routes.address(BROKER) == server.address
            await connections.close()

    run(test())


def test_an_unknown_topic_borrows_the_route_of_the_default_topic() -> None:
    async def test() -> None:
        async with FakeServer({"TBW102": 8}) as server:
            connections = Connections(ignore)
            routes = routes_of(server.address, connections)
            route = await routes.get_or_default("new", 4)
            assert route.write_queues() == [MessageQueue("new", BROKER, i) for i in range(4)]
            assert routes.known("new") is None, "it is asked for again, for it will be created soon"
            await connections.close()

    run(test())


def test_without_a_default_topic_the_error_says_what_to_do() -> None:
    async def test() -> None:
        async with FakeServer() as server:
            connections = Connections(ignore)
            routes = routes_of(server.address, connections)
            with pytest.raises(NoRoute, match="perseid topic create"):
                await routes.get_or_default("new", 4)
            await connections.close()

    run(test())


def test_the_next_name_server_is_asked_when_one_is_gone() -> None:
    async def test() -> None:
        async with FakeServer() as gone:
            dead = gone.address
        async with FakeServer({"t": 1}) as server:
            connections = Connections(ignore)
            for order in (f"{dead};{server.address}", f"{server.address}, {dead}"):
                routes = routes_of(order, connections)
                assert len((await routes.get("t")).queues) == 1
            await connections.close()
            routes = routes_of(dead, Connections(ignore))
            with pytest.raises(ClientError, match=f"no name server answered.*{dead}"):
                await routes.get("t")

    run(test())


def test_no_name_server_at_all() -> None:
    with pytest.raises(ClientError, match="namesrv="):
        NameServers(" ; ", Connections.__new__(Connections), Random(1))


def test_listeners_hear_of_changed_routes_only() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server:
            connections = Connections(ignore)
            routes = routes_of(server.address, connections)
            heard: list[str] = []
            routes.on_change.append(heard.append)
            await routes.get("t")
            await routes.refresh_all()
            assert heard == ["t"]
            server.queues_of["t"] = 2
            await routes.refresh_all()
            assert heard == ["t", "t"]
            await connections.close()

    run(test())


def test_refreshing_is_done_once_a_second_at_most_and_keeps_the_old_route_on_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("perseid.client.routes.MIN_REFRESH_INTERVAL_MS", 600_000)  # however long this machine stalls

    async def test() -> None:
        async with FakeServer({"t": 1}) as server:
            connections = Connections(ignore)
            routes = routes_of(server.address, connections)
            await routes.get("t")
            await routes.refresh("t")
            assert server.count(ROUTE) == 1
            del server.queues_of["t"]
            await routes.refresh("t", at_once=True)
            assert server.count(ROUTE) == 2
            assert routes.known("t") is not None
            await connections.close()

    run(test())


def test_a_question_that_is_under_way_is_waited_for() -> None:
    """Two first sends, each to a queue of the caller's choice: the second one knew no master of that name."""

    async def test() -> None:
        async with FakeServer({"t": 2}) as server:
            gate = asyncio.Event()
            server.script[ROUTE].append(serve_late(gate))
            connections = Connections(ignore)
            routes = routes_of(server.address, connections)
            first = asyncio.ensure_future(routes.refresh("t"))
            await server.until(lambda: server.count(ROUTE))
            second = asyncio.ensure_future(routes.refresh("t"))
            await asyncio.wait([second], timeout=0)
            assert not second.done() and routes.address(BROKER) is None
            gate.set()
            assert [await first, await second] == [None, None]
            assert routes.address(BROKER) is not None and server.count(ROUTE) == 1
            await connections.close()

    run(test())


def test_a_cancelled_caller_leaves_the_others_alone() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server:
            connections = Connections(ignore)
            routes = routes_of(server.address, connections)
            first, second = asyncio.ensure_future(routes.get("t")), asyncio.ensure_future(routes.get("t"))
            await server.until(lambda: server.count(ROUTE))
            first.cancel()
            assert len((await second).queues) == 1
            await connections.close()

    run(test())


def test_watched_topics_are_asked_for_before_they_exist() -> None:
    async def test() -> None:
        async with FakeServer() as server:
            connections = Connections(ignore)
            routes = routes_of(server.address, connections)
            routes.watched.add("later")
            await routes.refresh_all()
            assert routes.known("later") is None
            server.queues_of["later"] = 1
            await routes.refresh_all()
            assert routes.known("later") is not None
            await connections.close()

    run(test())


def test_only_writable_brokers_with_a_master_take_messages() -> None:
    route = TopicRoute(
        "t",
        brokers={"a": {0: "a:1"}, "b": {1: "b:1"}, "c": {0: "c:1"}},
        queues=(BrokerQueues("a", 1, 2, 6), BrokerQueues("b", 1, 1, 6), BrokerQueues("c", 1, 1, 4)),
    )
    assert [str(q) for q in route.write_queues()] == ["t/a/0", "t/a/1"]
    assert [str(q) for q in route.read_queues()] == ["t/a/0", "t/b/0", "t/c/0"]


def test_an_order_configuration_lists_the_queues() -> None:
    route = TopicRoute("t", order_conf="a:2;b:1")
    assert [str(q) for q in route.write_queues()] == ["t/a/0", "t/a/1", "t/b/0"]


def test_the_timeout_of_a_silent_name_server_is_named() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server:
            server.script[ROUTE].append(silence)
            connections = Connections(ignore)
            names = NameServers(server.address, connections, Random(1))
            with pytest.raises(ClientError, match="within 40 ms"):
                await names.call(ROUTE, timeout_ms=40)
            await connections.close()

    run(test())


def test_a_broker_whose_address_nobody_tells_is_an_error_that_says_why() -> None:
    """Name servers that don't answer are not name servers that don't know it."""

    async def test() -> None:
        async with FakeServer({"t": 1}) as server:
            address = server.address
        async with PullConsumer(address, "g") as consumer:
            with pytest.raises(ConnectFailed, match=f"the name servers don't tell its address: .*{address}"):
                await consumer.max_offset(MessageQueue("t", BROKER, 0))
        async with FakeServer({"t": 1}) as server, PullConsumer(server.address, "g") as consumer:
            with pytest.raises(ConnectFailed, match="no master of that name is known to the name servers"):
                await consumer.max_offset(MessageQueue("other", "elsewhere", 0))

    run(test())


def test_a_missing_topic_is_asked_for_by_the_second_and_less_often_the_longer_it_is_missing() -> None:
    class Names:
        def __init__(self) -> None:
            self.asked: list[float] = []

        async def call(self, *_: object) -> Command:
            self.asked.append(clock[0])
            return Command(code=17, opaque=1)

    clock = [1000.0]

    async def test() -> None:
        asyncio.get_running_loop().time = lambda: clock[0]  # type: ignore[method-assign]
        names = Names()
        routes = Routes(names)  # type: ignore[arg-type]
        routes.watched.add("soon")
        for _ in range(3600):
            await routes.ask_for_missing()
            clock[0] += 1
        pauses = [later - sooner for sooner, later in zip(names.asked, names.asked[1:], strict=False)]
        assert pauses[:10] == [1.0] * 10 and pauses == sorted(pauses) and 29 <= pauses[-1] <= 30
        assert len(names.asked) < 200

    asyncio.run(test())
