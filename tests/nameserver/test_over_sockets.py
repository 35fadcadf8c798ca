"""The name server as it runs: a real disk, real sockets, a restart."""

import asyncio
from pathlib import Path

from perseid.app import namesrv
from perseid.nameserver.config import NameServerConfig
from perseid.net.driver import Listener
from perseid.wire.codes import RequestCode as Code
from perseid.wire.command import Command, decode, encode_request
from perseid.wire.frame import complete

DEADLINE = 10.0


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, code: int, ext: dict[str, str | None] | None = None, body: bytes = b"") -> Command:
        self.writer.write(encode_request(code, 1, ext, body))
        head = await asyncio.wait_for(self.reader.readexactly(4), DEADLINE)
        frame = head + await asyncio.wait_for(self.reader.readexactly(int.from_bytes(head, "big")), DEADLINE)
        assert complete(frame) == len(frame)
        return decode(frame)


def test_registration_settings_and_restart(tmp_path: Path) -> None:
    config = NameServerConfig(
        kv_config_path=str(tmp_path / "kv" / "kvConfig.json"), config_store_path=str(tmp_path / "conf" / "ns.conf")
    )
    broker = {"brokerName": "a", "brokerAddr": "1:1", "clusterName": "C", "haServerAddr": "1:2", "brokerId": "0"}
    body = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"topicName":"T"},"U":{"topicName":"U"}}}}'

    async def main() -> None:
        _, driver = namesrv.build(config, Listener())
        await driver.start()
        port = driver.ports[namesrv.LISTENER]
        own, other = [Peer(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(2)]
        assert (await own.ask(Code.REGISTER_BROKER, broker, body)).code == 0
        assert (await other.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})).code == 0
        assert (await other.ask(Code.PUT_KV_CONFIG, {"namespace": "n", "key": "k", "value": "v"})).code == 0
        assert (await other.ask(Code.UPDATE_NAMESRV_CONFIG, None, b"orderMessageEnable=true")).code == 0
        own.writer.close()
        await driver.until(lambda: len(driver.connections) == 1)
        assert (await other.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})).code == 17
        assert await driver.stop() == ""
        assert await asyncio.wait_for(other.reader.read(-1), DEADLINE) == b""
        other.writer.close()

        _, driver = namesrv.build(namesrv.load(tmp_path / "conf" / "ns.conf"), Listener())
        await driver.start()
        peer = Peer(*await asyncio.open_connection("127.0.0.1", driver.ports[namesrv.LISTENER]))
        assert (await peer.ask(Code.GET_KV_CONFIG, {"namespace": "n", "key": "k"})).ext == {"value": "v"}
        assert b"orderMessageEnable=true" in bytes((await peer.ask(Code.GET_NAMESRV_CONFIG)).body)
        assert await driver.stop() == ""
        peer.writer.close()

    asyncio.run(asyncio.wait_for(main(), 3 * DEADLINE))
