"""Administration."""

import pytest

from perseid.client import Admin, ClientError, MessageQueue, NoRoute, NotStarted, ServerRefused, admin
from perseid.wire import bodies
from perseid.wire.codes import RequestCode, ResponseCode

from .fake import BROKER, Answer, FakeServer, refuse, run


def test_a_topic_is_ready_when_create_returns() -> None:
    async def test() -> None:
        async with FakeServer() as server, Admin(server.address) as client:
            route = await client.create_topic("orders", 3, attributes={"message.type": "NORMAL"})
            assert (route.queues[0].write_queues, route.brokers) == (3, {BROKER: {0: server.address}})
            command = next(c for c in server.seen if c.code == RequestCode.UPDATE_AND_CREATE_TOPIC)
            assert (command.ext["attributes"], command.ext["perm"]) == ("+message.type=NORMAL", "6")
            assert await client.topic_list() == ["orders"]
            await client.delete_topic("orders")
            with pytest.raises(NoRoute):
                await client.topic_route("orders")

    run(test())


def test_a_route_that_does_not_come_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setattr(admin, "ROUTE_DEADLINE_MS", 10)
        monkeypatch.setattr(admin, "ROUTE_PAUSE_MS", 1)
        async with FakeServer() as server, Admin(server.address) as client:
            server.script[RequestCode.UPDATE_AND_CREATE_TOPIC].append(lambda command: Answer())
            with pytest.raises(ClientError, match="did not learn of it"):
                await client.create_topic("orders")

    run(test())


def test_brokers_and_clusters_can_be_named() -> None:
    async def test() -> None:
        async with FakeServer() as server, Admin(server.address) as client:
            assert (await client.cluster_info()).clusters == {"fake": [BROKER]}
            assert await client.masters(cluster="fake", brokers=[BROKER]) == {BROKER: server.address}
            with pytest.raises(ClientError, match=f"no broker called x; known are: {BROKER}"):
                await client.create_topic("t", brokers=["x"])
            with pytest.raises(ClientError, match="no cluster called y; known are: fake"):
                await client.create_topic("t", cluster="y")
            empty = bodies.ClusterInfo({}, {}).to_json()
            server.script[RequestCode.GET_BROKER_CLUSTER_INFO].append(lambda command: Answer(body=empty))
            with pytest.raises(ClientError, match="no broker that is a master"):
                await client.masters()

    run(test())


def test_the_name_of_a_broker_in_shards_means_all_of_them() -> None:
    known = admin.Cluster({}, {name: {0: "h:1"} for name in ("a-0", "a-1", "a-10", "a-b", "a-1-2", "b", "b-0")})
    assert known.named(["a"]) == ["a-0", "a-1", "a-10"]
    assert known.named(["b", "x"]) == ["b", "x"]
    assert known.named(["a-1"]) == ["a-1"]


def test_stats_and_lag() -> None:
    async def test() -> None:
        async with FakeServer({"t": 2}) as server, Admin(server.address) as client:
            server.store("t", 1, b"x")
            rows = await client.topic_stats("t")
            assert [(row.queue.queue_id, row.min_offset, row.max_offset) for row in rows] == [(0, 0, 0), (1, 0, 1)]
            table = {bodies.MessageQueue("t", BROKER, 0): bodies.OffsetWrapper(10, 7, 8, 5)}
            body = bodies.ConsumeStats(table).to_json()
            server.script[RequestCode.GET_CONSUME_STATS].append(lambda command: Answer(body=body))
            (lag,) = await client.consume_stats("g", "t")
            assert (lag.queue, lag.lag) == (MessageQueue("t", BROKER, 0), 3)
            assert (await client.broker_runtime_info(server.address))["brokerVersion"] == "513"

    run(test())


def test_groups_and_settings() -> None:
    async def test() -> None:
        async with FakeServer() as server, Admin(server.address) as client:
            config = bodies.SubscriptionGroupConfig(group_name="g", retry_max_times=3)
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            server.script[code].append(lambda command: Answer())
            await client.create_group(config)
            sent = next(c for c in server.seen if c.code == code)
            assert bodies.SubscriptionGroupConfig.from_json(sent.body) == config
            server.script[RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG].append(lambda c: Answer(body=config.to_json()))
            assert await client.group_config("g", server.address) == config
            server.script[RequestCode.GET_BROKER_CONFIG].append(lambda c: Answer(body=b"a=1\n#no\nb = x=y\n"))
            assert await client.broker_config(server.address) == {"a": "1", "b": "x=y"}
            server.script[RequestCode.UPDATE_BROKER_CONFIG].append(lambda c: Answer())
            await client.update_broker_config(server.address, {"a": "2"})
            assert bytes(server.seen[-1].body) == b"a=2\n"
            code = RequestCode.GET_CONSUMER_CONNECTION_LIST
            server.script[code].append(refuse(ResponseCode.CONSUMER_NOT_ONLINE, "not online"))
            with pytest.raises(ServerRefused, match=r"CONSUMER_NOT_ONLINE \(206\)"):
                await client.consumer_connections("g")

    run(test())


def test_messages_are_found_by_key_but_not_by_a_key_with_the_same_hash() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server, Admin(server.address) as client:
            assert await client.query_messages("t", "Aa") == []
            server.store("t", 0, b"right", {"KEYS": "x Aa"})
            server.store("t", 0, b"wrong", {"KEYS": "BB"})
            assert [m.body for m in await client.query_messages("t", "Aa")] == [b"right"]

    run(test())


def test_an_admin_outside_of_its_life_says_so() -> None:
    async def test() -> None:
        with pytest.raises(NotStarted, match="async with Admin"):
            await Admin("h:1").topic_list()

    run(test())
