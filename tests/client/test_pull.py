"""Reading at one's own pace."""

import asyncio

import pytest

from perseid.client import (
    ClientError,
    MessageQueue,
    NoRoute,
    PullConsumer,
    PullOptions,
    PullStatus,
    ServerRefused,
    pull,
)
from perseid.wire.codes import RequestCode, ResponseCode

from .fake import BROKER, FakeServer, hang_up, refuse, run

PULL = RequestCode.PULL_MESSAGE
Q0, Q1 = MessageQueue("t", BROKER, 0), MessageQueue("t", BROKER, 1)


@pytest.fixture(autouse=True)
def quick_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull, "ERROR_PAUSE_MS", 1)


def filled(count: int = 5, queues: int = 2) -> FakeServer:
    server = FakeServer({"t": queues})
    for number in range(count):
        for queue in range(queues):
            server.store("t", queue, b"%d-%d" % (queue, number), {"TAGS": "ab"[number % 2], "UNIQ_KEY": "U"})
    return server


def test_poll_gives_each_queue_in_order() -> None:
    async def test() -> None:
        async with filled() as server, PullConsumer(server.address, "g", from_where="first") as consumer:
            assert await consumer.queues("t") == [Q0, Q1]
            consumer.assign([Q0, Q1])
            got: dict[int, list[bytes]] = {0: [], 1: []}
            while sum(map(len, got.values())) < 10:
                for message in await consumer.poll(3):
                    got[message.queue.queue_id].append(message.body)
            assert got == {q: [b"%d-%d" % (q, n) for n in range(5)] for q in (0, 1)}
            assert (consumer.position(Q0), consumer.position(Q1)) == (5, 5)

    run(test())


def test_poll_wakes_up_when_something_arrives_and_ends_when_nothing_does() -> None:
    async def test() -> None:
        async with filled(0) as server, PullConsumer(server.address, "g") as consumer:
            consumer.assign([Q0])
            assert await consumer.poll(timeout_ms=20) == []
            waiting = asyncio.ensure_future(consumer.poll(timeout_ms=10_000))
            await server.until(lambda: server.count(PULL) == 1)
            server.store("t", 0, b"new")
            assert [m.body for m in await waiting] == [b"new"]

    run(test())


def test_a_group_begins_where_it_committed_or_where_it_says() -> None:
    async def test() -> None:
        async with filled() as server:
            server.committed["g", "t", 0] = 3
            for where, expected in (("first", 0), ("last", 5)):
                async with PullConsumer(server.address, "g", from_where=where) as consumer:
                    consumer.assign([Q0, Q1])
                    await server.until(lambda c=consumer: c.position(Q1) is not None and c.position(Q0) is not None)
                    assert [consumer.position(q) for q in (Q0, Q1)] == [3, expected]
        with pytest.raises(ClientError, match="'first' or 'last'"):
            PullConsumer("h:1", from_where="middle")

    run(test())


def test_a_slave_without_its_master_is_read_and_keeps_what_groups_commit() -> None:
    async def test() -> None:
        async with filled() as server:
            server.broker_id = 2
            async with PullConsumer(server.address, "g", from_where="first") as consumer:
                consumer.assign([Q0])
                assert [m.body for m in await consumer.poll(3)] == [b"0-0", b"0-1", b"0-2"]
                await consumer.commit()
                with pytest.raises(ClientError, match="no master of that name"):
                    await consumer.max_offset(Q0)
            async with PullConsumer(server.address, "g") as consumer:
                consumer.assign([Q0])
                assert [m.body for m in await consumer.poll(3)] == [b"0-3", b"0-4"]

    run(test())


def test_seek_forgets_what_was_read_ahead() -> None:
    async def test() -> None:
        async with filled() as server, PullConsumer(server.address, "g", from_where="first") as consumer:
            consumer.assign([Q0])
            assert len(await consumer.poll(2)) == 2
            consumer.seek(Q0, 4)
            assert [m.body for m in await consumer.poll()] == [b"0-4"]
            consumer.seek(Q0, 1)
            assert [m.body for m in await consumer.poll(2)] == [b"0-1", b"0-2"]
            with pytest.raises(ClientError, match="not assigned"):
                consumer.seek(Q1, 0)

    run(test())


def test_commit_keeps_what_poll_gave_out() -> None:
    async def test() -> None:
        async with filled() as server, PullConsumer(server.address, "g", from_where="first") as consumer:
            assert await consumer.committed(Q0) is None
            consumer.assign([Q0])
            await consumer.poll(2)
            await consumer.commit()
            assert await consumer.committed(Q0) == 2
            await consumer.commit(Q1, 4)
            assert await consumer.committed(Q1) == 4

    run(test())


def test_tags_are_looked_at_again_and_the_position_moves_past_what_is_not_wanted() -> None:
    async def test() -> None:
        async with (
            filled() as server,
            PullConsumer(server.address, "g", expression="b", from_where="first") as consumer,
        ):
            consumer.assign([Q0])
            assert [m.body for m in await consumer.poll()] == [b"0-1", b"0-3"]
            assert consumer.position(Q0) == 5

    run(test())


def test_offsets_that_are_gone_are_jumped_over() -> None:
    async def test() -> None:
        async with filled() as server, PullConsumer(server.address, "g") as consumer:
            server.queues["t", 0].first = 100
            consumer.assign([Q0])
            consumer.seek(Q0, 7)
            assert [m.queue_offset for m in await consumer.poll()] == [100, 101, 102, 103, 104]
            assert (await consumer.pull(Q0, 7)).status is PullStatus.MOVED

    run(test())


def test_offsets_can_be_asked_for() -> None:
    async def test() -> None:
        async with filled() as server, PullConsumer(server.address, "g") as consumer:
            assert (await consumer.min_offset(Q0), await consumer.max_offset(Q0)) == (0, 5)
            assert await consumer.search_offset(Q0, 1_700_000_000_003) == 3

    run(test())


def test_read_gives_exactly_a_range() -> None:
    async def test() -> None:
        async with filled(600, 1) as server, PullConsumer(server.address, "g") as consumer:
            for start, end in ((0, 600), (10, 300), (599, 600), (5, 5), (590, 1000), (700, 800)):
                found = [m.queue_offset async for part in _parts(consumer.read(Q0, start, end)) for m in part]
                assert found == list(range(start, min(end, 600)))

    run(test())


async def _parts(lists):  # type: ignore[no-untyped-def]
    async for part in lists:
        for message in part:
            yield [message]


def test_short_trouble_is_waited_out() -> None:
    async def test() -> None:
        async with filled() as server, PullConsumer(server.address, "g", from_where="first") as consumer:
            server.script[PULL] += [refuse(ResponseCode.SYSTEM_BUSY), hang_up, refuse(ResponseCode.FLOW_CONTROL)]
            consumer.assign([Q0])
            assert len(await consumer.poll(timeout_ms=10_000)) == 5

    run(test())


def test_what_will_not_get_better_is_raised_by_poll() -> None:
    async def test() -> None:
        async with filled() as server, PullConsumer(server.address, "g", from_where="first") as consumer:
            server.script[PULL] += [refuse(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "no such group")]
            consumer.assign([Q0])
            for _ in range(2):
                with pytest.raises(ServerRefused, match="no such group"):
                    await consumer.poll(timeout_ms=10_000)
            consumer.seek(Q0, 0)
            assert len(await consumer.poll(timeout_ms=10_000)) == 5

    run(test())


def test_reading_ahead_is_bounded() -> None:
    async def test() -> None:
        async with (
            filled(100, 1) as server,
            PullConsumer(server.address, "g", from_where="first", options=PullOptions(buffer_messages=10)) as consumer,
        ):
            consumer.assign([Q0])
            first = await consumer.poll(1)
            pulls = server.count(PULL)
            assert pulls <= 2, "ten are at hand, so no more is asked for"
            while len(first) < 100:
                first += await consumer.poll(7)
            assert [m.queue_offset for m in first] == list(range(100))

    run(test())


def test_assign_keeps_the_position_of_queues_that_stay() -> None:
    async def test() -> None:
        async with filled() as server, PullConsumer(server.address, "g", from_where="first") as consumer:
            consumer.assign([Q0])
            await consumer.poll(2)
            consumer.assign([Q0, Q1])
            assert consumer.position(Q0) == 2
            consumer.assign([])
            with pytest.raises(ClientError, match="no queue is assigned"):
                await consumer.poll()

    run(test())


def test_a_topic_that_does_not_exist() -> None:
    async def test() -> None:
        async with FakeServer() as server, PullConsumer(server.address) as consumer:
            with pytest.raises(NoRoute):
                await consumer.queues("nowhere")

    run(test())
