"""What the original's own tests of TLS demand (TlsTest of its remoting; TlsIT, TlsMixIT and TlsMix2IT), of our servers
with each of our clients. With its clients and servers: `tests/interop/test_upstream_tls.py`."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.badinput.rig import Up
from tests.net.world import DEADLINE, FRAME, MemoryDisk, Node

from perseid.app import namesrv
from perseid.app.tls import ProcessTls, load
from perseid.base.config import Setting
from perseid.base.machine import Closed, Connect, ConnectFailed, Frames, Write
from perseid.client import Admin, ClientError, ClientTls, Message
from perseid.client.blocking import BlockingAdmin, BlockingProducer, BlockingPullConsumer
from perseid.nameserver.config import NameServerConfig
from perseid.net.driver import Driver, Listener
from pki import PASSWORD, files
from upstream_tls import CASES, CLIENT, SERVER, Case

Ask = Callable[[str, Mapping[str, str]], Coroutine[Any, Any, str]]


def process_tls(settings: Mapping[str, str]) -> ProcessTls:
    return ProcessTls(load({key: Setting(key, value, "test") for key, value in settings.items()}))


def client_tls(settings: Mapping[str, str]) -> ClientTls | None:
    """The same for our clients, where a name server's address says which host it is."""
    if settings.get("tls.enable") != "true":
        return None
    told = {
        field: settings.get(f"tls.client.{key}", "")
        for field, key in {
            "ca": "trustCertPath", "cert": "certPath", "key": "keyPath", "key_password": "keyPassword",
        }.items()
    }  # fmt: skip
    return ClientTls(**told, verify=settings.get("tls.client.authServer") == "true")


@asynccontextmanager
async def serving(folder: Path, tls: ProcessTls) -> AsyncIterator[tuple[Driver, str]]:
    """A name server with TLS, and its address."""
    config = NameServerConfig(kv_config_path=str(folder / "kv.json"), config_store_path=str(folder / "names.conf"))
    _, driver = namesrv.build(config, Listener(), tls)
    await driver.start()
    try:
        yield driver, f"127.0.0.1:{driver.ports[namesrv.LISTENER]}"
    finally:
        assert await driver.stop() == ""


async def ask_as_a_node(address: str, settings: Mapping[str, str]) -> str:
    """Why there is no answer; nothing: there is one."""
    node = Node(Start=lambda _: [Connect(address, "")], Opened=lambda event: [Write(event.conn, FRAME)])
    driver = Driver(node, MemoryDisk(), {}, dials=process_tls(settings).dials())
    await driver.start()
    try:
        await node.until(lambda: any(map(node.of, (Frames, ConnectFailed, Closed))))
        if node.of(Frames):
            return ""
        failed = node.of(ConnectFailed)
        return failed[0].reason if failed else node.of(Closed)[0].reason or "it was closed"
    finally:
        await driver.stop()


async def ask_as_a_client(address: str, settings: Mapping[str, str]) -> str:
    async with Admin(address, tls=client_tls(settings)) as admin:
        try:
            await admin.topic_list()
        except ClientError as error:
            return str(error)
    return ""


async def ask_as_a_blocking_client(address: str, settings: Mapping[str, str]) -> str:
    def ask() -> str:
        with BlockingAdmin(address, tls=client_tls(settings)) as admin:
            try:
                admin.topic_list()
            except ClientError as error:
                return str(error)
        return ""

    return await asyncio.to_thread(ask)


ASKS = {"node": ask_as_a_node, "client": ask_as_a_client, "blocking": ask_as_a_blocking_client}


@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
@pytest.mark.parametrize("given", CASES.values(), ids=CASES)
def test_who_is_served(given: Case, ask: Ask, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with serving(tmp_path, process_tls(given.server)) as (driver, address):
            why = await ask(address, given.client)
            assert (why == "") == given.served, why
            assert given.refuses in why
            await driver.until(lambda: not driver.connections)

    with caplog.at_level(logging.INFO):
        asyncio.run(asyncio.wait_for(main(), DEADLINE * 3))
    assert given.refused in "\n".join(record.getMessage() for record in caplog.records)


def test_reload_ssl_context_for_server(tmp_path: Path) -> None:
    """Connections go on, and the next client is shown the new certificate."""

    def put(name: str) -> None:
        for ending in ("pem", "key"):
            shutil.copy(files().path(f"{name}.{ending}"), tmp_path / "next")
            os.replace(tmp_path / "next", tmp_path / f"own.{ending}")

    put("server")
    own = {"tls.server.certPath": str(tmp_path / "own.pem"), "tls.server.keyPath": str(tmp_path / "own.key")}
    tls = process_tls({**SERVER, **own, "tls.server.need.client.auth": "none"})
    trusting = client_tls({**CLIENT, "tls.client.authServer": "false"})
    verifying = client_tls(CLIENT)

    async def main() -> None:
        async with serving(tmp_path, tls) as (_, address), Admin(address, tls=verifying) as before:
            await before.topic_list()
            put("other_server")
            tls.look()
            await before.topic_list()
            async with Admin(address, tls=trusting) as after:
                await after.topic_list()
            async with Admin(address, tls=verifying) as after:
                with pytest.raises(ClientError, match="is refused: unable to get local issuer certificate"):
                    await after.topic_list()

    asyncio.run(asyncio.wait_for(main(), DEADLINE * 3))


def test_tls_config_through_file(tmp_path: Path) -> None:
    """Its eleven keys, over what is said elsewhere."""
    told = {
        "tls.server.need.client.auth": "require", "tls.server.keyPath": "/server.key",
        "tls.server.certPath": "/server.pem", "tls.server.keyPassword": "2345", "tls.server.authClient": "true",
        "tls.server.trustCertPath": "/ca.pem", "tls.client.keyPath": "/client.key", "tls.client.keyPassword": "1234",
        "tls.client.certPath": "/client.pem", "tls.client.authServer": "false", "tls.client.trustCertPath": "/ca.pem",
    }  # fmt: skip
    (tmp_path / "tls.config").write_text("".join(f"{key}={value}\n" for key, value in told.items()))
    own = {**SERVER, **CLIENT, "tls.test.mode.enable": "true", "tls.config.file": str(tmp_path / "tls.config")}
    keys = load({key: Setting(key, value, "test") for key, value in own.items()}).keys
    assert (keys.need_client_auth, keys.server_key, keys.server_certificate) == (
        "require",
        "/server.key",
        "/server.pem",
    )
    assert (keys.server_key_password, keys.auth_client, keys.server_trust) == ("2345", True, "/ca.pem")
    assert (keys.client_key, keys.client_key_password, keys.client_certificate) == (
        "/client.key",
        "1234",
        "/client.pem",
    )
    assert (keys.auth_server, keys.client_trust) == (False, "/ca.pem")
    assert PASSWORD not in repr(keys)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A name server and a broker, with TLS as they have it when nobody says anything."""
    with Up(tmp_path_factory.mktemp("up")) as running:
        yield running
        assert running.end() == 0


ANYBODY = ClientTls(verify=False)
MIXES = {"TlsIT": (ANYBODY, ANYBODY), "TlsMixIT": (None, ANYBODY), "TlsMix2IT": (ANYBODY, None)}


@pytest.mark.parametrize(("sends", "reads"), MIXES.values(), ids=MIXES)
def test_what_is_sent_with_tls_or_without_is_read_with_it_or_without(
    up: Up, sends: ClientTls | None, reads: ClientTls | None, request: pytest.FixtureRequest
) -> None:
    topic = request.node.callspec.id
    bodies = [b"%d" % number for number in range(16)]
    with BlockingProducer(up.namesrv, tls=sends) as producer:
        for body in bodies:
            producer.send(Message(topic, body))
    with BlockingPullConsumer(up.namesrv, "readers", from_where="first", tls=reads) as consumer:
        consumer.assign(consumer.queues(topic))
        read: list[bytes] = []
        deadline = time.monotonic() + DEADLINE * 3
        while len(read) < len(bodies) and time.monotonic() < deadline:
            read += [message.body for message in consumer.poll()]
        assert sorted(read) == sorted(bodies)
