"""Offsets in a file, and at brokers."""

import asyncio
from pathlib import Path

import pytest

from perseid.client import ClientError, MessageQueue, PushConsumer
from perseid.client.offsets import FileOffsets, only
from perseid.testing.virtual import VirtualBroker

A, B = MessageQueue("t", "b", 0), MessageQueue("t", "b", 1)


def test_what_is_saved_is_read_again_by_another(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "deep" / "g.json"
        store = FileOffsets(path)
        assert await store.read(A) is None
        await store.save({A: 5, B: 7})
        await store.save({A: 6})
        other = FileOffsets(path)
        assert [await other.read(queue) for queue in (A, B)] == [6, 7]
        assert list(path.parent.iterdir()) == [path], "no temporary file is left"

    asyncio.run(test())


@pytest.mark.parametrize("text", ["", "{}", '{"offsets": 5}', '{"offsets": [{"topic": "t"}]}'])
def test_a_broken_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "g.json"
    path.write_text(text)
    with pytest.raises(ClientError, match=r"g\.json: not a file of offsets"):
        asyncio.run(FileOffsets(path).read(A))


def test_only() -> None:
    assert only({A: 1, B: 2}, [B]) == {B: 2}


def test_offsets_that_a_broker_keeps_are_not_committed_again_until_it_may_have_lost_them() -> None:
    with VirtualBroker() as broker:
        commits: list[int] = []
        broker.network.tap = lambda end, data: commits.append(broker.now) if b'"code":15,' in data else None
        broker.create_topic("orders", queues=1)
        consumer = PushConsumer(broker.namesrv, "billing", {"orders": "*"}, lambda message: None, from_where="first")
        broker.run(consumer.start())
        broker.send("orders", b"1")
        broker.advance(seconds=3)
        assert commits and broker.committed("billing", "orders", 0) == 1
        commits.clear()
        broker.crash()  # within flushConsumerOffsetInterval: the offset was in memory alone
        broker.start()
        assert broker.committed("billing", "orders", 0) == 0
        broker.advance(seconds=30)
        assert broker.committed("billing", "orders", 0) == 1
        commits.clear()
        broker.advance(hours=1)
        assert not commits
        broker.run(consumer.stop())
