"""Who may join: clusters of ours whose members show each other certificates and sign, and whose master is lost; and
strangers at each of their ports, who get nothing and change nothing."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import rig
from controllers import Controllers

from perseid.client import ClientTls, Credentials, Message, PullConsumer
from perseid.client.blocking import BlockingAdmin, BlockingProducer
from perseid.client.controller import ControllerClient, ReplicaSet
from perseid.client.dledger import DLedgerClient
from perseid.client.session import Session
from perseid.security.certificates import client_context
from perseid.testing.ports import free_port
from perseid.wire.command import encode_request
from perseid.wire.dledger import DLedgerRequest, MetadataRequest, VoteRequest
from perseid.wire.ha_auto import encode_slave_handshake
from perseid.wire.record import decode_all
from pki import files

pytestmark = pytest.mark.interop

MEMBER = ClientTls(files().ca, files().path("client.pem"), files().path("client.key"))
ROOT, NODES = Credentials("root", "root-secret"), Credentials("nodes", "nodes-secret")
TOLD: dict[str, object] = {
    "tls.server.certPath": files().path("server.pem"),
    "tls.server.keyPath": files().path("server.key"),
    "tls.server.need.client.auth": "optional",
    "tls.server.authClient": "true",
    "tls.server.trustCertPath": files().ca,
    "tls.client.certPath": files().path("client.pem"),
    "tls.client.keyPath": files().path("client.key"),
    "tls.client.authServer": "true",
    "tls.client.trustCertPath": files().ca,
    "useTLS": "true",
    "haTls": "true",
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ROOT.access_key, "password": ROOT.secret_key}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": NODES.access_key, "secretKey": NODES.secret_key}),
}
"""Of each node: TLS is taken and not demanded of clients; members show certificates, and requests are signed."""
COUNT, STRANGER_S = 20, 10
PULL = {
    "consumerGroup": "readers", "topic": "secured", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32",
    "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
}  # fmt: skip
STRANGERS = {"plain": None, "without a certificate": "", "of another CA": "stranger"}


# ---- strangers ----


def answered(port: int, said: bytes, own: str | None) -> bytes:
    """What somebody gets at a port who begins so, until it is closed; `own`: whose certificate; None: without TLS."""
    got = b""
    with socket.create_connection(("127.0.0.1", port), STRANGER_S) as raw, ExitStack() as opened:
        raw.settimeout(STRANGER_S)
        try:
            link: socket.socket = raw
            if own is not None:
                context = client_context(trust=files().ca, own=files().own(own) if own else None)
                link = opened.enter_context(context.wrap_socket(raw, server_hostname="localhost"))
            link.sendall(said)
            while part := link.recv(65_536):
                got += part
        except (ssl.SSLError, ConnectionError):
            pass
    return got


def strangers_get_nothing(ports: Sequence[int], said: Sequence[bytes], state: Callable[[], object]) -> None:
    """At none of these ports, whoever they are and whatever they say; and nothing is changed."""
    before = state()
    for port in ports:
        for words in said:
            for who, own in STRANGERS.items():
                assert answered(port, words, own) == b"", (port, who)
    assert state() == before


def raft_requests(group: str, member: str) -> list[bytes]:
    """A question, and the wish to lead."""
    base = {"group": group, "remote_id": member, "local_id": "n1", "leader_id": "n1", "term": 1_000}
    asked = {DLedgerRequest.METADATA: MetadataRequest(**base), DLedgerRequest.VOTE: VoteRequest(**base)}  # type: ignore[arg-type]
    return [encode_request(code, 1, None, message.to_json()) for code, message in asked.items()]


async def terms(peers: str) -> object:
    """What each member of a group says of it to whoever belongs to the cluster: who leads, in which term."""
    async with DLedgerClient(peers, group="group", credentials=NODES, tls=MEMBER) as client:
        told = (await client.status()).values()
    assert {one.role for one in told} == {"leader", "follower"}, told
    return [(one.id, one.leader, one.term) for one in told]


# ---- the cluster ----


@contextmanager
def running(names: rig.Process, *others: rig.Process) -> Iterator[None]:
    """All of them."""
    try:
        for process in (names, *others):
            process.start()
        yield
    finally:
        for process in (*others, names):
            process.kill()


def registered(namesrv: str, name: str, *ids: int) -> None:
    """Wait until the name server knows these members of a broker, or whoever is there as 0."""

    def known() -> bool:
        with BlockingAdmin(namesrv, credentials=ROOT) as admin:
            return set(ids or (0,)) <= set(admin.cluster_info().brokers.get(name, {}))

    rig.until(f"{name} registers at {namesrv}", known, rig.START_SECONDS)


def masters(namesrv: str, name: str) -> str:
    with BlockingAdmin(namesrv, credentials=ROOT) as admin:
        return admin.cluster_info().brokers.get(name, {}).get(0, "")


def send(namesrv: str, first: int, count: int = COUNT) -> None:
    """Numbers, each until it is acknowledged as every member in sync has it."""
    with BlockingProducer(namesrv, credentials=ROOT) as producer:
        for number in range(first, first + count):

            def sent(number: int = number) -> bool:
                return producer.send(Message("secured", b"%d" % number)).status.name == "SEND_OK"

            rig.until(f"message {number} is acknowledged", sent, 40)


def read(namesrv: str, count: int) -> set[int]:
    """All different numbers, once there are so many."""

    async def main() -> set[int]:
        session = Session(namesrv, credentials=ROOT)
        async with PullConsumer(namesrv, "readers", from_where="first", session=session) as consumer:
            consumer.assign(await consumer.queues("secured"))
            got: set[int] = set()
            while len(got) < count:
                got |= {int(message.body) for message in await consumer.poll()}
            return got

    return rig.run(main())


def make_topic(namesrv: str) -> None:
    def made() -> bool:
        with BlockingAdmin(namesrv, credentials=ROOT) as admin:
            admin.create_topic("secured", 1)
            return True

    rig.until("the topic is made", made)
    rig.until("its route", lambda: rig.call(namesrv, 105, {"topic": "secured"}).code == 0)


def names_refuse_strangers(namesrv: str) -> None:
    """Whoever is none of its brokers."""
    fields = {"clusterName": "InteropCluster", "brokerName": "false", "brokerAddr": "127.0.0.1:1", "brokerId": 0}
    for code in (103, 104, 205, 106, 318, 100):
        answer = rig.call(namesrv, code, fields)
        assert (answer.code, answer.remark, answer.body) == (16, "username cannot be null.", b""), code


def test_a_master_is_lost_and_its_slave_serves_and_strangers_copy_nothing(tmp_path: Path) -> None:
    names = rig.namesrv("perseid", tmp_path / "names", **TOLD)
    pair = {"brokerName": "pair", "slaveReadEnable": "true", **TOLD}
    master = rig.broker(
        "perseid", tmp_path / "master", names.address, **pair, brokerRole="SYNC_MASTER", inSyncReplicas=2
    )
    slave = rig.broker("perseid", tmp_path / "slave", names.address, **pair, brokerRole="SLAVE", brokerId=1)
    with running(names, master, slave):
        registered(names.address, "pair", 0, 1)
        make_topic(names.address)
        send(names.address, 0)

        def state() -> object:
            with BlockingAdmin(names.address, credentials=ROOT) as admin:
                return [(one.address, one.in_sync) for one in admin.ha_status()]

        strangers_get_nothing([master.port + 1, slave.port + 1], [bytes(8)], state)
        assert "only members of the cluster with a certificate are taken here" in master.tail()
        names_refuse_strangers(names.address)
        asked = ROOT.sign({"topic": "secured"}, b"")
        rig.until("the slave has the topic", lambda: rig.call(slave.address, 351, asked).code == 0, 40)
        master.kill()
        rig.until("the master is gone", lambda: not masters(names.address, "pair"))
        pulled = rig.call(slave.address, 11, ROOT.sign(PULL, b""))
        assert (pulled.code, pulled.ext["nextBeginOffset"]) == (0, str(COUNT)), pulled.remark
        assert [one.body for one in decode_all(pulled.body)] == [b"%d" % number for number in range(COUNT)]


def test_a_master_is_lost_and_controllers_elect_another_and_strangers_elect_nobody(tmp_path: Path) -> None:
    names = rig.namesrv("perseid", tmp_path / "names", **TOLD)
    controllers = Controllers(tmp_path / "group", ["perseid"] * 3, **TOLD)
    told = {
        **TOLD, "brokerName": "set", "enableControllerMode": "true", "controllerAddr": controllers.addresses,
        "allAckInSyncStateSet": "true", "inSyncReplicas": 2, "minInSyncReplicas": 1,
    }  # fmt: skip
    brokers = [rig.broker("perseid", tmp_path / f"b{number}", names.address, **told) for number in (1, 2)]
    ports = [broker.port + 1 for broker in brokers]
    with running(names, *controllers.members, *brokers):

        def replicas() -> ReplicaSet:
            async def main() -> ReplicaSet:
                async with ControllerClient(controllers.addresses, credentials=ROOT, timeout_ms=2_000) as client:
                    (found,) = await client.replica_sets(["set"])
                    return found

            return asyncio.run(main())

        def both_in_sync() -> bool:
            return [one.in_sync for one in replicas().replicas] == [True, True]

        rig.until("both brokers are in sync", both_in_sync, 60)
        registered(names.address, "set")
        make_topic(names.address)
        send(names.address, 0)
        strangers_get_nothing(ports, [encode_slave_handshake(1, from_last_file=False, learner=False)], replicas)
        at_controllers = [one.port for one in controllers.members]
        strangers_get_nothing(at_controllers, raft_requests("group", "n0"), replicas)
        for member in controllers.members:
            for code in (904, 1001, 1002, 1003, 1005, 1006, 1009, 1011, 1013):
                answer = rig.call(member.address, code, {"brokerName": "set", "clusterName": "InteropCluster"})
                assert (answer.code, answer.remark) == (16, "username cannot be null."), code
        lost = next(one for one in brokers if one.address == replicas().master_address)
        lost.kill()
        kept = next(one for one in brokers if one is not lost)
        rig.until("the other one is master", lambda: masters(names.address, "set") == kept.address, 60)
        send(names.address, COUNT)
        assert read(names.address, 2 * COUNT) == set(range(2 * COUNT))


def test_a_leader_is_lost_and_the_group_elects_another_and_strangers_have_no_vote(tmp_path: Path) -> None:
    names = rig.namesrv("perseid", tmp_path / "names", **TOLD)
    ports = [free_port() for _ in range(3)]
    peers = ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(ports))
    told = {
        **TOLD, "brokerName": "group", "enableDLegerCommitLog": "true", "dLegerGroup": "group", "dLegerPeers": peers,
    }  # fmt: skip
    members = [
        rig.broker("perseid", tmp_path / f"n{number}", names.address, **told, dLegerSelfId=f"n{number}")
        for number in range(3)
    ]
    with running(names, *members):
        registered(names.address, "group")
        make_topic(names.address)
        send(names.address, 0)
        rig.until("all follow", lambda: asyncio.run(terms(peers)))
        strangers_get_nothing(ports, raft_requests("group", "n0"), lambda: asyncio.run(terms(peers)))
        lost = next(one for one in members if one.address == masters(names.address, "group"))
        lost.kill()
        rig.until("another one leads", lambda: masters(names.address, "group") not in ("", lost.address), 60)
        send(names.address, COUNT)
        assert read(names.address, 2 * COUNT) == set(range(2 * COUNT))
