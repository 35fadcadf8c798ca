"""Durability: what is synced when, in which order, and what follows from it."""

import asyncio
import errno
import threading
from collections.abc import Callable
from typing import Any

from perseid.base.machine import (
    DiskFailed,
    Feed,
    Fetch,
    Flush,
    SaveState,
    Stop,
    Write,
)

from .world import DEADLINE, FRAME, MemoryDisk, MemoryFile, Node, Running

# ---- durability ----


def test_then_is_carried_out_after_the_sync(run: Any) -> None:
    async def main() -> None:
        file = MemoryFile()
        file.gate = threading.Event()
        node = Node(
            Frames=lambda e: [
                Flush([file], then=[Write(e.conn, b"durable"), Feed("flushed")]),
                Write(e.conn, b"at once, "),
            ]
        )
        async with Running(node) as it:
            reader, writer = await it.dial()
            writer.write(FRAME)
            assert await asyncio.wait_for(reader.readexactly(9), DEADLINE) == b"at once, "
            assert file.syncs == 0 and "flushed" not in node.events
            file.gate.set()
            assert await asyncio.wait_for(reader.readexactly(7), DEADLINE) == b"durable"
            assert file.syncs == 1 and node.events[-1] == "flushed"

    run(main())


def test_flushes_that_wait_share_one_sync(run: Any) -> None:
    async def main() -> None:
        file, other = MemoryFile("a"), MemoryFile("b")
        file.gate = threading.Event()
        node = Node(int=lambda n: [Flush([file] if n % 3 else [other, file], then=[Feed(str(n))])])
        async with Running(node) as it:
            it.driver.take(1)
            assert await asyncio.to_thread(file.entered.wait, DEADLINE)
            for n in range(2, 50):
                it.driver.take(n)
            file.gate.set()
            await node.until(lambda: "49" in node.events)
            assert [e for e in node.events if isinstance(e, str)] == [str(n) for n in range(1, 50)]
            assert (file.syncs, other.syncs) == (2, 1)

    run(main())


def test_what_can_not_be_opened_for_want_of_a_descriptor_is_tried_again(run: Any) -> None:
    """Nothing that waits for it is acknowledged before; and it is no failed fsync."""

    async def main() -> None:
        folder, disk = MemoryFile("queue/0"), MemoryDisk()
        write, tries = disk.write, {"sync": 0, "write": 0}

        def short(kind: str, work: Callable[..., None]) -> Callable[..., None]:
            def one(*args: Any) -> None:
                tries[kind] += 1
                if tries[kind] <= 3:
                    raise OSError(errno.EMFILE if tries[kind] % 2 else errno.ENFILE, "Too many open files")
                assert "durable" not in node.events or kind == "write"
                work(*args)

            return one

        folder.sync = short("sync", folder.sync)
        disk.write = short("write", write)
        flush, save = Flush([folder], then=[Feed("durable")]), SaveState("a", b"1", then=[Feed("saved")])
        node = Node(Start=lambda e: [flush, save])
        async with Running(node, disk=disk):
            await node.until(lambda: "saved" in node.events)
        assert tries == {"sync": 4, "write": 4}
        assert not node.of(DiskFailed)

    run(main())


def test_a_node_that_is_over_does_not_wait_for_a_descriptor(run: Any) -> None:
    async def main() -> None:
        folder = MemoryFile("queue/0")
        tried = threading.Event()

        def never() -> None:
            tried.set()
            raise OSError(errno.EMFILE, "Too many open files")

        folder.sync = never
        node = Node(Start=lambda e: [Flush([folder], then=[Feed("durable")])], str=lambda e: [Stop("broken")])
        async with Running(node) as it:
            assert await asyncio.to_thread(tried.wait, DEADLINE)
            it.driver.take("end")
            assert await asyncio.wait_for(asyncio.shield(it.driver.stopped), DEADLINE) == "broken"
        assert "durable" not in node.events

    run(main())


def test_states_and_flushes_become_durable_in_order(run: Any) -> None:
    async def main() -> None:
        disk, file = MemoryDisk(), MemoryFile()
        file.sync = lambda: disk.calls.append(("sync", "log"))
        node = Node(
            Start=lambda e: [
                SaveState("config/a.json", b"1", then=[Feed("one")]),
                Flush([file], then=[Feed("two")]),
                SaveState("b.json", b"2", then=[Feed("three")]),
            ]
        )
        async with Running(node, disk=disk):
            await node.until(lambda: "three" in node.events)
        assert [e for e in node.events if isinstance(e, str)] == ["one", "two", "three"]
        assert disk.calls == [
            ("write", "config/a.json.tmp", "1"),
            ("sync_file", "config/a.json.tmp"),
            ("rename", "config/a.json.tmp", "config/a.json"),
            ("sync_dir", "config"),
            ("sync_dir", ""),
            ("sync", "log"),
            ("write", "b.json.tmp", "2"),
            ("sync_file", "b.json.tmp"),
            ("rename", "b.json.tmp", "b.json"),
            ("sync_dir", ""),
        ]

    run(main())


def test_a_failed_sync_is_told_and_never_tried_again(run: Any) -> None:
    async def main() -> None:
        file = MemoryFile()
        file.broken = True
        node = Node(int=lambda n: [Flush([file], then=[Feed("never")])])
        async with Running(node) as it:
            it.driver.take(1)
            await node.until(lambda: len(node.of(DiskFailed)) == 1)
            assert "no more" in node.of(DiskFailed)[0].reason
            file.broken = False
            it.driver.take(2)
            await node.until(lambda: len(node.of(DiskFailed)) == 2)
            assert file.syncs == 1 and "never" not in node.events

    run(main())


def test_a_state_that_could_not_be_saved_may_be_saved_later(run: Any) -> None:
    async def main() -> None:
        disk = MemoryDisk()
        disk.full = True
        node = Node(int=lambda n: [SaveState("x", b"1", then=[Feed("saved")])])
        async with Running(node, disk=disk) as it:
            it.driver.take(1)
            await node.until(lambda: bool(node.of(DiskFailed)))
            assert node.of(DiskFailed)[0].path == "x"
            disk.full = False
            it.driver.take(2)
            await node.until(lambda: "saved" in node.events)

    run(main())


# ---- reading ----


def test_a_fetch_waits_for_no_flush_and_then_is_carried_out(run: Any) -> None:
    async def main() -> None:
        log, cold = MemoryFile("log"), MemoryFile("cold")
        log.gate = threading.Event()
        node = Node(int=lambda n: [Flush([log], then=[Feed("flushed")]), Fetch([(cold, 5, 7)], then=[Feed("fetched")])])
        async with Running(node) as it:
            it.driver.take(1)
            await node.until(lambda: "fetched" in node.events)
            assert cold.fetched == [(5, 7, False)] and "flushed" not in node.events
            log.gate.set()
            await node.until(lambda: "flushed" in node.events)

    run(main())


def test_a_fetch_that_fails_is_told(run: Any) -> None:
    async def main() -> None:
        cold = MemoryFile("cold")
        cold.broken = True
        node = Node(int=lambda n: [Fetch([(cold, 5, 7)], [Feed("fetched")], [Feed("failed")])])
        async with Running(node) as it:
            it.driver.take(1)
            await node.until(lambda: "failed" in node.events)
            assert "fetched" not in node.events

    run(main())
