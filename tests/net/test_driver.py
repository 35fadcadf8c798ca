"""The driver with small nodes over real sockets: framing, coalescing, bounds, durability, failures."""

import asyncio
import gc
import logging
import os
import random
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from perseid.base.errors import ConfigError, RemoteProtocolError, StoreLocked
from perseid.base.machine import (
    Close,
    Closed,
    Connect,
    ConnectFailed,
    Effect,
    Feed,
    Flush,
    Frames,
    Note,
    Opened,
    Reads,
    Start,
    Stop,
    Tick,
    Write,
)
from perseid.net import driver
from perseid.net.driver import Driver, Listener, bind
from perseid.net.limits import Limits
from perseid.wire.command import decode_all, encode_request

from .world import DEADLINE, FRAME, MemoryDisk, MemoryFile, Node, Running, echo, ended

CLOCKS = {"time_ns": time.time_ns, "monotonic_ns": time.monotonic_ns}

# ---- frames ----


def test_a_read_of_whole_frames_is_one_event(run: Any) -> None:
    async def main() -> None:
        node = Node(Frames=echo)
        async with Running(node) as it:
            reader, writer = await it.dial()
            writer.write(FRAME * 3)
            assert await asyncio.wait_for(reader.readexactly(3 * len(FRAME)), DEADLINE) == FRAME * 3
            assert [event.data for event in node.of(Frames)] == [FRAME * 3]
            opened = node.of(Opened)[0]
            assert opened.listener == "main" and opened.dialled == ""
            assert opened.peer == ":".join(map(str, writer.get_extra_info("sockname")))
            assert opened.local == f"127.0.0.1:{it.driver.ports['main']}"

    run(main())


@pytest.mark.parametrize("seed", range(5))
def test_frames_that_are_cut_anywhere_arrive_whole_and_in_order(run: Any, seed: int) -> None:
    async def main() -> None:
        draw = random.Random(seed)
        node = Node(Frames=echo)
        frames = [
            encode_request(10, n, {"a": "x" * draw.randrange(40)}, draw.randbytes(draw.randrange(300)))
            for n in range(200)
        ]
        stream = b"".join(frames)
        async with Running(node) as it:
            reader, writer = await it.dial()
            at = 0
            while at < len(stream):
                size = draw.choice((1, 2, 3, 5, 60, 700, 5000))
                writer.write(stream[at : at + size])
                await writer.drain()
                at += size
            assert await asyncio.wait_for(reader.readexactly(len(stream)), DEADLINE) == stream
            assert it.driver.partial_bytes == 0
        assert [c.opaque for e in node.of(Frames) for c in decode_all(e.data)] == list(range(200))

    run(main())


def test_a_large_frame_is_collected(run: Any) -> None:
    async def main() -> None:
        node = Node(Frames=echo)
        frame = encode_request(10, 1, None, bytes(5_000_000))
        async with Running(node) as it:
            reader, writer = await it.dial()
            writer.write(frame + FRAME[:9])
            got = await asyncio.wait_for(reader.readexactly(len(frame)), DEADLINE)
            assert got == frame
            assert it.driver.partial_bytes == 9
            writer.write(FRAME[9:])
            assert await asyncio.wait_for(reader.readexactly(len(FRAME)), DEADLINE) == FRAME

    run(main())


LIES = {
    "2 GB claim": b"\x7f\xff\xff\xff\0\0\0\x10",
    "negative length": b"\xff\xff\xff\xff",
    "too short": b"\0\0\0\x03",
    "header beyond the frame": b"\0\0\0\x08\0\0\0\x05",
    "unknown serializer": b"\0\0\0\x08\x07\0\0\x02",
    "TLS": b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_a_lying_frame_closes_its_connection_and_no_other(run: Any, lie: bytes) -> None:
    async def main() -> None:
        node = Node(Frames=echo)
        async with Running(node) as it:
            other_reader, other_writer = await it.dial()
            reader, writer = await it.dial()
            writer.write(lie)
            assert await ended(reader) == b""
            await node.until(lambda: len(node.of(Closed)) == 1)
            assert node.of(Closed)[0].conn == node.of(Opened)[1].conn
            other_writer.write(FRAME)
            assert await asyncio.wait_for(other_reader.readexactly(len(FRAME)), DEADLINE) == FRAME
        assert len(node.of(Frames)) == 1

    run(main())


def test_a_node_that_finds_the_protocol_broken_loses_only_that_connection(run: Any) -> None:
    def refuse(event: Frames) -> list[Effect]:
        if b"bad" in event.data:
            raise RemoteProtocolError("bad")
        return echo(event)

    async def main() -> None:
        node = Node(Frames=refuse)
        async with Running(node) as it:
            reader, writer = await it.dial()
            writer.write(encode_request(1, 1, None, b"bad"))
            assert await ended(reader) == b""
            reader, writer = await it.dial()
            writer.write(FRAME)
            assert await asyncio.wait_for(reader.readexactly(len(FRAME)), DEADLINE) == FRAME

    run(main())


# ---- writes ----


def test_a_node_that_gathers_hears_of_what_came_meanwhile_in_one_turn(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its pause others send: all of it is one event."""
    pauses: list[float] = []
    peers: list[socket.socket] = []
    wanted = [70_000_000]

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        for peer in peers:
            peer.sendall(FRAME)

    async def main() -> None:
        node = Node(Frames=echo)
        monkeypatch.setattr(driver, "time", SimpleNamespace(sleep=pause, **CLOCKS))
        gathers = lambda: wanted.pop() if wanted and node.of(Frames) else 0  # noqa: E731
        async with Running(node, Limits(gather_us=25), gathers=gathers) as it:
            peers.extend(socket.create_connection(("127.0.0.1", it.driver.ports["main"])) for _ in range(3))
            reader, writer = await it.dial()
            await node.until(lambda: len(node.of(Opened)) == 4)
            writer.write(FRAME)
            assert await asyncio.wait_for(reader.readexactly(len(FRAME)), DEADLINE) == FRAME
            await node.until(lambda: bool(node.of(Reads)))
            assert len(node.of(Reads)[0].frames) == 3
            for peer in peers:
                peer.close()
        assert pauses == [25e-6], "no longer than the limit, and only when the node wants it"

    run(main())


def test_each_turn_tells_how_long_it_took(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that needs 25 ms for a frame: the clock is moved on, nobody waits."""
    turns_ns: list[int] = []
    moved_ns = [0]

    def slow(event: Frames) -> list[Effect]:
        moved_ns[0] += 25_000_000
        return echo(event)

    async def main() -> None:
        clocks = CLOCKS | {"monotonic_ns": lambda: time.monotonic_ns() + moved_ns[0]}
        monkeypatch.setattr(driver, "time", SimpleNamespace(sleep=time.sleep, **clocks))
        async with Running(Node(Frames=slow)) as it:
            it.driver.took = turns_ns.append
            reader, writer = await it.dial()
            before = len(turns_ns)
            writer.write(FRAME)
            assert await asyncio.wait_for(reader.readexactly(len(FRAME)), DEADLINE) == FRAME
        assert max(turns_ns[before:]) >= 25_000_000 and min(turns_ns) >= 0

    run(main())


def test_writes_of_one_turn_leave_as_one_write(run: Any) -> None:
    """Two effects and what a feed adds: the connection's transport is written to once."""

    async def main() -> None:
        node = Node()
        node.on["Frames"] = lambda e: [
            Write(e.conn, b"1"),
            Write(e.conn, [b"2", memoryview(b"3")]),
            Feed("more"),
        ]
        node.on["str"] = lambda e: [Write(node.of(Frames)[0].conn, b"4")]
        async with Running(node) as it:
            reader, writer = await it.dial()
            await node.until(lambda: bool(node.of(Opened)))
            connection = it.driver.connections[node.of(Opened)[0].conn]
            written: list[bytes] = []
            real = connection._transport

            class Spy:
                def __getattr__(self, name: str) -> Any:
                    return getattr(real, name)

                def write(self, data: bytes) -> None:
                    written.append(bytes(data))
                    real.write(data)

            connection._transport = Spy()
            writer.write(FRAME)
            assert await asyncio.wait_for(reader.readexactly(4), DEADLINE) == b"1234"
            assert written == [b"1234"]

    run(main())


def test_a_write_in_many_large_parts_arrives_in_order(run: Any) -> None:
    async def main() -> None:
        parts = [memoryview(bytes([n]) * 70_000) for n in range(20)]
        node = Node(Frames=lambda e: [Write(e.conn, b"head"), Write(e.conn, parts), Write(e.conn, b"tail")])
        async with Running(node) as it:
            reader, writer = await it.dial()
            writer.write(FRAME)
            wanted = b"head" + b"".join(parts) + b"tail"
            assert await asyncio.wait_for(reader.readexactly(len(wanted)), DEADLINE) == wanted

    run(main())


def test_a_close_comes_after_what_was_written(run: Any) -> None:
    async def main() -> None:
        big = bytes(3_000_000)
        node = Node(Frames=lambda e: [Write(e.conn, big), Close(e.conn, "done"), Write(e.conn, b"never")])
        async with Running(node) as it:
            reader, writer = await it.dial()
            writer.write(FRAME)
            assert len(await ended(reader)) == len(big)
            await node.until(lambda: bool(node.of(Closed)))
            assert node.of(Closed)[0].reason == "done"
            assert not it.driver.connections

    run(main())


def test_a_peer_that_does_not_take_its_answers_is_not_read_from(run: Any) -> None:
    async def main() -> None:
        answer = bytes(200_000)
        node = Node(Frames=lambda e: [Write(e.conn, answer)] * (len(e.data) // len(FRAME)))
        limits = Limits(pause_reading_above=100_000, idle_ms=60_000)
        async with Running(node, limits) as it:
            sock = socket.create_connection(("127.0.0.1", it.driver.ports["main"]))
            sock.setblocking(False)
            loop = asyncio.get_running_loop()
            asked = 0
            # Ask, one read at a time, until the node's end stops taking requests in.
            await node.until(lambda: bool(node.of(Opened)))
            connection = it.driver.connections[node.of(Opened)[0].conn]
            while not connection._paused:
                await loop.sock_sendall(sock, FRAME)
                asked += 1
                heard = asked
                await node.until(lambda heard=heard: sum(len(e.data) for e in node.of(Frames)) >= heard * len(FRAME))
            assert not connection._transport.is_reading()
            await loop.sock_sendall(sock, FRAME)
            asked += 1
            # The peer reads: everything that it asked for comes.
            left = asked * len(answer)
            while left:
                left -= len(await asyncio.wait_for(loop.sock_recv(sock, 1 << 20), DEADLINE))
            assert sum(len(e.data) for e in node.of(Frames)) == asked * len(FRAME)
            sock.close()

    run(main())


def test_a_write_buffer_beyond_its_limit_closes_the_connection(run: Any) -> None:
    async def main() -> None:
        node = Node(Frames=lambda e: [Write(e.conn, bytes(30_000_000))])
        async with Running(node, Limits(write_buffer=1_000_000)) as it:
            _, writer = await it.dial()
            writer.write(FRAME)
            await writer.drain()
            writer.transport.pause_reading()
            await node.until(lambda: len(node.of(Frames)) == 1)
            it.driver.post("again")
            node.on["str"] = lambda e: [Write(node.of(Opened)[0].conn, b"x")]
            await node.until(lambda: bool(node.of(Closed)))
            assert "doesn't read" in node.of(Closed)[0].reason

    run(main())


# ---- bounds in time and number ----


def test_an_idle_connection_is_closed(run: Any) -> None:
    async def main() -> None:
        node = Node()
        async with Running(node, Limits(idle_ms=50, sweep_ms=10)) as it:
            reader, _ = await it.dial()
            assert await ended(reader) == b""
            await node.until(lambda: bool(node.of(Closed)))
            assert node.of(Closed)[0].reason == "idle for 50 ms"

    run(main())


def test_a_frame_that_never_ends_is_given_up(run: Any) -> None:
    async def main() -> None:
        node = Node(Frames=echo)
        async with Running(node, Limits(partial_frame_ms=60, sweep_ms=10)) as it:
            reader, writer = await it.dial()
            writer.write(FRAME + FRAME[:20])
            assert await ended(reader) == FRAME
            await node.until(lambda: bool(node.of(Closed)))
            assert "not whole" in node.of(Closed)[0].reason
            assert it.driver.partial_bytes == 0

    run(main())


def test_unfinished_frames_have_a_bound_in_memory(run: Any) -> None:
    async def main() -> None:
        node = Node()
        async with Running(node, Limits(partial_bytes=200_000)) as it:
            reader, writer = await it.dial()
            writer.write((1_000_000).to_bytes(4, "big") + bytes(300_000))
            assert await ended(reader) == b""
            await node.until(lambda: bool(node.of(Closed)))
            assert it.driver.partial_bytes == 0

    run(main())


async def _answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.write(FRAME)
    return await asyncio.wait_for(reader.readexactly(len(FRAME)), DEADLINE) == FRAME


def test_connections_have_a_bound(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        node = Node(Frames=echo)
        async with Running(node, Limits(connections=2)) as it:
            first, second = await it.dial(), await it.dial()
            await node.until(lambda: len(node.of(Opened)) == 2)
            third, fourth = await it.dial(), await it.dial()
            assert await _answered(*second) and await _answered(*first)
            assert len(node.of(Opened)) == 2, "who comes now waits"
            first[1].close()
            assert await _answered(*third) and await _answered(*second)
            assert len(node.of(Opened)) == 3
            second[1].close()
            assert await _answered(*fourth)
            third[1].close()
            while not any("again" in record.message for record in caplog.records):
                assert await _answered(*fourth)

    caplog.set_level("INFO")
    run(main())
    said = [record.message for record in caplog.records if "connections are accepted" in record.message]
    assert ["no more" in line for line in said] == [True, False], said
    assert "there are 2 of them" in said[0]


@contextmanager
def _no_gaps() -> Iterator[int]:
    """The number that the next descriptor has; what tests before this one left free below it is taken meanwhile."""
    gc.collect()
    most = max(int(name) for name in os.listdir("/proc/self/fd"))
    taken = [os.dup(0)]
    while taken[-1] <= most:
        taken.append(os.dup(0))
    os.close(taken[-1])
    try:
        yield taken.pop()
    finally:
        for descriptor in taken:
            os.close(descriptor)


def test_descriptors_are_kept_for_files(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def main(free: int) -> None:
        node = Node(Frames=echo)
        reserved = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - free - 60
        async with Running(node, Limits(reserved_files=reserved, reserved_share=1, sweep_ms=20)) as it:
            dialled = [await it.dial() for _ in range(100)]  # each has both its ends in this process
            while not any("file descriptors" in record.message for record in caplog.records):
                assert await _answered(*dialled[0])
            assert await _answered(*dialled[0]) and len(node.of(Opened)) < 100
            for _, writer in dialled[:-1]:
                writer.close()
            assert await _answered(*dialled[-1])

    with _no_gaps() as free:
        run(main(free))


# ---- dialling ----


def test_a_dialled_connection(run: Any) -> None:
    async def main() -> None:
        there = Node(Frames=echo)
        async with Running(there) as it:
            address = f"127.0.0.1:{it.driver.ports['main']}"
            here = Node(Start=lambda e: [Connect(address)], Opened=lambda e: [Write(e.conn, FRAME)])
            async with Running(here):
                await here.until(lambda: bool(here.of(Frames)))
                assert here.of(Opened)[0].dialled == address
                assert here.of(Frames)[0].data == FRAME
            await there.until(lambda: bool(there.of(Closed)))

    run(main())


def test_a_dial_that_fails(run: Any) -> None:
    async def main() -> None:
        with bind("127.0.0.1", 0) as nobody:
            address = f"127.0.0.1:{nobody.getsockname()[1]}"
            node = Node(Start=lambda e: [Connect(address), Connect("127.0.0.1:nonsense")])
            async with Running(node):
                await node.until(lambda: len(node.of(ConnectFailed)) == 2)
                assert {event.address for event in node.of(ConnectFailed)} == {address, "127.0.0.1:nonsense"}

    run(main())


# ---- time, start, stop, failure ----


def test_a_tick_comes_when_the_deadline_is_reached(run: Any) -> None:
    async def main() -> None:
        node = Node()

        def start(event: Any) -> list[Effect]:
            node.deadline = node.times[0] + 30
            return []

        def tick(event: Any) -> list[Effect]:
            node.deadline = None
            return []

        node.on.update(Start=start, Tick=tick)
        async with Running(node) as it:
            await node.until(lambda: bool(node.of(Tick)))
            ticked = node.times[node.events.index(node.of(Tick)[0])]
            assert ticked >= node.times[0] + 30
            node.deadline = ticked + 60_000
            it.driver.take("later")
            node.deadline = ticked + 40
            it.driver.take("sooner")
            await node.until(lambda: len(node.of(Tick)) == 2)
            assert node.times[-1] >= ticked + 40

    run(main())


def test_start_is_first_and_shutdown_waits_for_the_disk(run: Any) -> None:
    async def main() -> None:
        file = MemoryFile()
        node = Node(Shutdown=lambda e: [Flush([file], then=[Write(1, b"bye"), Stop("")])])
        it = Running(node)
        await it.driver.start()
        reader, _ = await it.dial()
        await node.until(lambda: bool(node.of(Opened)))
        assert await asyncio.wait_for(it.driver.stop(), DEADLINE) == ""
        assert isinstance(node.events[0], Start) and file.syncs == 1
        assert await ended(reader) == b"bye"
        with pytest.raises(OSError):
            await it.dial()

    run(main())


def test_a_broken_invariant_ends_the_node_before_anything_leaves(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    def broken(event: Any) -> list[Effect]:
        raise AssertionError("the sum is wrong")

    async def main() -> None:
        node = Node(Frames=lambda e: [Write(e.conn, b"x"), Feed("next")], str=broken)
        it = Running(node)
        await it.driver.start()
        reader, writer = await it.dial()
        writer.write(FRAME)
        assert "the sum is wrong" in await asyncio.wait_for(it.driver.stopped, DEADLINE)
        assert await ended(reader) == b""
        assert "the sum is wrong" in await it.driver.stop()
        writer.close()

    with caplog.at_level(logging.CRITICAL):
        run(main())
    assert "Traceback" in caplog.text and "broken" in caplog.text


def test_a_node_that_refuses_to_start_says_why(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    def locked(event: Any) -> list[Effect]:
        raise StoreLocked("another process holds it")

    async def main() -> None:
        it = Running(Node(Start=locked))
        await it.driver.start()
        assert it.driver.stopped.result() == "another process holds it"
        await it.driver.stop()

    run(main())
    assert "Traceback" not in caplog.text


def test_a_stop_with_a_reason_is_a_failure(run: Any) -> None:
    async def main() -> None:
        node = Node(str=lambda e: [Stop("the disk failed")])
        it = Running(node)
        await it.driver.start()
        it.driver.post("go")
        assert await asyncio.wait_for(it.driver.stopped, DEADLINE) == "the disk failed"
        assert await it.driver.stop() == "the disk failed"

    run(main())


def test_a_shutdown_that_never_ends_is_cut_off(run: Any) -> None:
    async def main() -> None:
        it = Running(Node(Shutdown=lambda e: []), Limits(shutdown_ms=20))
        await it.driver.start()
        assert "no end of the shutdown" in await it.driver.stop()

    run(main())


def test_an_address_in_use_is_a_configuration_error(run: Any) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            driver = Driver(Node(), MemoryDisk(), {"main": Listener(port=port)})
            with pytest.raises(ConfigError, match=f"can't listen on 127.0.0.1:{port}"):
                await driver.start()

    run(main())


def test_notes_are_logged_on_one_line(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Running(Node(Start=lambda e: [Note("warning", "100 % of\nwhat a peer said")])):
            pass

    run(main())
    assert "100 % of\\x0awhat a peer said" in caplog.text
