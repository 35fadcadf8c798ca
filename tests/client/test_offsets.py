"""Offsets in a file."""

import asyncio
from pathlib import Path

import pytest

from perseid.client import ClientError, MessageQueue
from perseid.client.offsets import FileOffsets, only

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
