"""Bytes by asyncio's streams, to a broker in virtual time."""

import asyncio

import pytest

from perseid.testing.cluster import VirtualCluster
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command, decode_all, encode_request

CONFIG = encode_request(RequestCode.GET_BROKER_CONFIG, 7, None, b"")


async def dial(cluster: VirtualCluster) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(cluster.machines.brokers[0].ip, 10911)


async def answer(reader: asyncio.StreamReader) -> Command:
    size = await reader.readexactly(4)
    (command,) = decode_all(size + await reader.readexactly(int.from_bytes(size, "big")))
    return command


def test_a_request_and_its_answer() -> None:
    async def main() -> None:
        reader, writer = await dial(cluster)
        assert writer.get_extra_info("peername") == (cluster.machines.brokers[0].ip, 10911)
        assert writer.get_extra_info("sockname")[0] == cluster.loop.ip
        assert writer.get_extra_info("socket") is None and not writer.transport.is_closing()
        writer.write(CONFIG[:10])
        await writer.drain()
        writer.write(CONFIG[10:])
        command = await answer(reader)
        assert (command.opaque, command.code) == (7, ResponseCode.SUCCESS)
        writer.close()
        await writer.wait_closed()
        assert writer.transport.is_closing()

    with VirtualCluster() as cluster:
        cluster.run(main())


def test_what_comes_while_nothing_is_read_waits() -> None:
    async def main() -> None:
        reader, writer = await dial(cluster)
        transport = writer.transport
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()
        assert not transport.is_reading()
        writer.write(CONFIG)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(answer(reader), 60)
        transport.resume_reading()
        assert (await answer(reader)).opaque == 7

    with VirtualCluster() as cluster:
        cluster.run(main())


def test_the_other_side_dies() -> None:
    async def main() -> None:
        reader, writer = await dial(cluster)
        writer.write(CONFIG)
        await answer(reader)
        cluster.kill("broker-1")
        with pytest.raises(ConnectionResetError):
            await answer(reader)
        writer.write(CONFIG)  # is dropped

    with VirtualCluster() as cluster:
        cluster.run(main())


def test_one_that_is_no_longer_waited_for_is_closed() -> None:
    async def main() -> None:
        cluster.slow("broker-1", network_ms=50)
        cluster.partition("client", "broker-1")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await dial(cluster)
        with pytest.raises(OSError, match="timed out"):
            await dial(cluster)
        cluster.heal()
        await dial(cluster)

    with VirtualCluster() as cluster:
        cluster.run(main())
