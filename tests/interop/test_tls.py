"""TLS between Java's parts and ours: its clients on our servers, our clients on its servers. (The Go client, 2.1.2, has
no TLS.) And between our own: master and slave, a DLedger group."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import rig

from perseid.client import Admin, ClientError, ClientTls, Message, Producer, PullConsumer
from perseid.client.blocking import BlockingAdmin, BlockingProducer
from perseid.testing.ports import free_port
from pki import PASSWORD, files

pytestmark = pytest.mark.interop

CA = files().ca
OURS = ClientTls(CA, files().path("client.pem"), files().path("client.key"))
MUTUAL = {
    "tls.server.mode": "enforcing",
    "tls.test.mode.enable": "false",
    "tls.server.certPath": files().path("encrypted.pem"),
    "tls.server.keyPath": files().path("encrypted.key"),
    "tls.server.keyPassword": PASSWORD,
    "tls.server.need.client.auth": "require",
    "tls.server.authClient": "true",
    "tls.server.trustCertPath": CA,
}
"""Only TLS, and a certificate of each client."""
DIALS = {
    "tls.client.certPath": files().path("client.pem"),
    "tls.client.keyPath": files().path("client.key"),
    "tls.client.authServer": "true",
    "tls.client.trustCertPath": CA,
}


def options(settings: Mapping[str, str]) -> list[str]:
    """Of a JVM."""
    return [f"-D{key}={value}" for key, value in settings.items()]


def registered(namesrv: str, name: str, tls: ClientTls | None, ids: Sequence[int] = (0,)) -> None:
    """Wait until the name server knows these members of a broker."""

    def known() -> bool:
        with BlockingAdmin(namesrv, tls=tls) as admin:
            return set(ids) <= set(admin.cluster_info().brokers.get(name, {}))

    rig.until(f"{name} registers at {namesrv}", known, rig.START_SECONDS)


@contextmanager
def running(impl: str, folder: Path, tls: ClientTls | None, *jvm: str, **settings: Any) -> Iterator[rig.Cluster]:
    """A name server and a broker with TLS; settings are the same for both."""
    names = rig.namesrv(impl, folder / f"{impl}-namesrv", **settings)
    names.options = jvm
    broker = rig.broker(impl, folder / f"{impl}-broker", names.address, **settings)
    broker.options = jvm
    try:
        names.start()
        broker.start()
        registered(names.address, broker.folder.name, tls)
        store = broker.folder / "store"
        yield rig.Cluster("tls", names.address, broker.address, broker.folder.name, store, names, broker)
        if impl == "perseid":
            assert (broker.stop(), names.stop()) == (0, 0)
    finally:
        broker.kill()
        names.kill()


@contextmanager
def java(folder: Path, cluster: rig.Cluster, settings: Mapping[str, str]) -> Iterator[rig.Client]:
    """Java's clients with TLS."""
    agent = rig.java_agent(folder, "-Dtls.enable=true", *options(settings))
    client = rig.Client(agent, cluster)
    try:
        yield client
        client.close()
    finally:
        agent.stop()


def both_ways(client: rig.Client, tls: ClientTls | None) -> None:
    """What Java's clients send, they and ours read; large messages too."""
    namesrv = client.cluster.namesrv
    with BlockingAdmin(namesrv, tls=tls) as admin:
        admin.create_topic("secured", 2)
    bodies = [*(f"m{number}" for number in range(5)), "large" * 20_000]
    sent = client("send", messages=[{"topic": "secured", "body": body} for body in bodies])
    assert [one["status"] for one in sent] == ["SEND_OK"] * len(bodies)
    got = client.consume("secured", "readers", len(bodies))
    assert sorted(filter(None, (one["body"] for one in got))) == bodies[:5], "the large one is not shown"
    assert len(got) == len(bodies)
    assert sorted(ours_read(namesrv, tls, len(bodies))) == sorted(bodies)


def ours_read(namesrv: str, tls: ClientTls | None, count: int) -> list[str]:
    async def main() -> list[str]:
        async with PullConsumer(namesrv, "ours", from_where="first", tls=tls) as consumer:
            consumer.assign(await consumer.queues("secured"))
            got: list[str] = []
            while len(got) < count:
                got += [message.body.decode() for message in await consumer.poll()]
            return got

    return rig.run(main())


def test_java_on_our_permissive_servers(workshop: Path, tmp_path: Path) -> None:
    """As both are by default: a certificate that is made when it is asked for, and nobody verifies."""
    with running("perseid", tmp_path, None) as cluster, java(workshop / "agent-tls", cluster, {}) as client:
        both_ways(client, None)
        assert "a certificate of our own making" in cluster.broker_process.tail()
        with BlockingProducer(cluster.namesrv, tls=ClientTls(verify=False)) as producer:
            producer.send(Message("secured", b"with TLS"))


def test_java_on_our_servers_with_certificates_on_both_sides(workshop: Path, tmp_path: Path) -> None:
    told = {**MUTUAL, **DIALS}
    with running("perseid", tmp_path, OURS, **told) as cluster:
        with java(workshop / "agent-mtls", cluster, {"tls.test.mode.enable": "false", **DIALS}) as client:
            both_ways(client, OURS)
        with pytest.raises(ClientError), BlockingAdmin(cluster.namesrv) as admin:
            admin.topic_list()
        assert "bytes without TLS, which is required here" in cluster.namesrv_process.tail()


def test_ours_on_javas_servers_as_they_are_by_default(tmp_path: Path) -> None:
    with running("java", tmp_path, ClientTls(verify=False), "-Dtls.server.mode=permissive") as cluster:

        async def main() -> None:
            tls = ClientTls(verify=False)
            async with Admin(cluster.namesrv, tls=tls) as admin, Producer(cluster.namesrv, tls=tls) as producer:
                await admin.create_topic("secured", 1)
                for body in (b"small", b"l" * 100_000):
                    await producer.send(Message("secured", body))
            async with Admin(cluster.namesrv, tls=ClientTls(CA)) as admin:
                with pytest.raises(ClientError, match="is refused: self-signed certificate"):
                    await admin.topic_list()

        rig.run(main())
        assert sorted(map(len, ours_read(cluster.namesrv, ClientTls(verify=False), 2))) == [5, 100_000]


def test_ours_on_javas_servers_with_certificates_on_both_sides(tmp_path: Path) -> None:
    told = options({**MUTUAL, **DIALS, "tls.enable": "true"})
    with running("java", tmp_path, OURS, *told) as cluster:
        with BlockingAdmin(cluster.namesrv, tls=OURS) as admin, BlockingProducer(cluster.namesrv, tls=OURS) as producer:
            admin.create_topic("secured", 1)
            producer.send(Message("secured", b"hello"))
        assert ours_read(cluster.namesrv, OURS, 1) == ["hello"]
        with pytest.raises(ClientError), BlockingAdmin(cluster.namesrv, tls=ClientTls(CA)) as admin:
            admin.topic_list()


def test_a_master_and_its_slave_replicate_over_tls(tmp_path: Path) -> None:
    told = {**MUTUAL, **DIALS, "haTls": "true"}
    names = rig.namesrv("perseid", tmp_path / "names", **told)
    pair = {"brokerName": "pair", "slaveReadEnable": "true", **told}
    master = rig.broker("perseid", tmp_path / "master", names.address, **pair, brokerRole="SYNC_MASTER")
    slave = rig.broker("perseid", tmp_path / "slave", names.address, **pair, brokerRole="SLAVE", brokerId=1)
    try:
        for process in (names, master, slave):
            process.start()
        registered(names.address, "pair", OURS, (0, 1))
        with BlockingAdmin(names.address, tls=OURS) as admin, BlockingProducer(names.address, tls=OURS) as producer:
            admin.create_topic("secured", 1)
            rig.until("the slave follows", lambda: [one.in_sync for one in admin.ha_status()] == [True])
            status = {producer.send(Message("secured", b"%d" % number)).status.name for number in range(20)}
            assert status == {"SEND_OK"}, "the slave has each of them"
        assert (slave.stop(), master.stop(), names.stop()) == (0, 0, 0)
    finally:
        for process in (slave, master, names):
            process.kill()


def test_a_slave_without_tls_learns_nothing(tmp_path: Path) -> None:
    names = rig.namesrv("perseid", tmp_path / "names")
    both = {"brokerName": "pair", "tls.server.certPath": files().path("server.pem")}
    both["tls.server.keyPath"] = files().path("server.key")
    master = rig.broker("perseid", tmp_path / "master", names.address, **both, haTls="true")
    slave = rig.broker("perseid", tmp_path / "slave", names.address, **both, brokerRole="SLAVE", brokerId=1)
    try:
        for process in (names, master, slave):
            process.start()
        wanted = "bytes without TLS, which is required here"
        rig.until("the master refuses the slave", lambda: wanted in master.tail())
        with BlockingAdmin(names.address) as admin:
            assert admin.ha_status() == []
    finally:
        for process in (slave, master, names):
            process.kill()


def test_a_dledger_group_over_tls(tmp_path: Path) -> None:
    told = {**MUTUAL, **DIALS}
    names = rig.namesrv("perseid", tmp_path / "names", **told)
    peers = ";".join(f"n{number}-127.0.0.1:{free_port()}" for number in range(3))
    group = {"brokerName": "group", "enableDLegerCommitLog": "true", "dLegerGroup": "group", "dLegerPeers": peers}
    members = [
        rig.broker("perseid", tmp_path / f"n{number}", names.address, **told, **group, dLegerSelfId=f"n{number}")
        for number in range(3)
    ]
    try:
        for process in (names, *members):
            process.start()
        registered(names.address, "group", OURS)

        async def main() -> None:
            async with Admin(names.address, tls=OURS) as admin, Producer(names.address, tls=OURS) as producer:
                await admin.create_topic("secured", 1)
                assert (await producer.send(Message("secured", b"in a quorum"))).status.name == "SEND_OK"

        asyncio.run(main())
        assert ours_read(names.address, OURS, 1) == ["in a quorum"]
    finally:
        for process in (*members, names):
            process.kill()
