"""One tree of errors, the page that shows it, and that nothing else comes out of a public call."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import pkgutil
import re
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.pki import files

import perseid.client
from perseid.client import (
    Admin,
    BadSettings,
    ClientError,
    ClientTls,
    LiteConsumer,
    Message,
    MessageQueue,
    OrderedProducer,
    OrderedProducerOptions,
    PopConsumer,
    Producer,
    ProducerOptions,
    PullConsumer,
    PushConsumer,
    SendFailed,
    SendResult,
    SendStatus,
    ServerRefused,
    Session,
    TlsFailed,
    TransactionProducer,
    TransactionState,
)
from perseid.client.connection import Connections
from perseid.client.controller import ControllerClient
from perseid.client.dledger import DLedgerClient
from perseid.security.certificates import server_context
from perseid.wire.bodies import SubscriptionGroupConfig
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command

from .fake import BROKER, Answer, FakeServer, _Peer, hang_up, refuse, run, silence

PAGE = Path(__file__).parents[2] / "docs/reference/errors.md"
QUEUE = MessageQueue("t", BROKER, 0)
ID = "7F000001000000010000000000000010"
"""A message at port 1, where nothing listens."""


def tree(root: type[ClientError] = ClientError) -> list[type[ClientError]]:
    """All errors of the clients' modules."""
    for module in pkgutil.iter_modules(perseid.client.__path__):
        importlib.import_module(f"perseid.client.{module.name}")
    found = [root]
    for cls in root.__subclasses__():
        found += tree(cls)
    return [cls for cls in dict.fromkeys(found) if cls.__module__.startswith("perseid.client.")]


def fact(cls: type[ClientError], name: str, words: dict[bool, str]) -> str:
    """What the page has to say of a class: that its objects differ, or the value of all of them."""
    constructor = cls.__init__.__code__.co_names if "__init__" in vars(cls) else ()
    return "see the error" if name in constructor else words[getattr(cls, name)]


def test_the_page_has_each_error_with_its_facts() -> None:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.read_text().splitlines()]
    told = {row[0].strip("`"): row[1:] for row in rows if len(row) == 6 and re.fullmatch(r"`\w+`", row[0])}
    assert told.keys() == {cls.__name__ for cls in tree()}
    for cls in tree():
        parent, when, carried_out, retry, what_to_do = told[cls.__name__]
        assert parent == f"`{cls.__bases__[0].__name__}`", cls
        assert carried_out == fact(cls, "outcome_unknown", {True: "perhaps", False: "no"}), cls
        assert retry == fact(cls, "retryable", {True: "yes", False: "no"}), cls
        assert when and what_to_do, cls


def test_each_error_is_of_one_module_and_exported() -> None:
    for cls in tree():
        assert cls.__module__ == "perseid.client.errors" and getattr(perseid.client, cls.__name__) is cls


def test_what_a_refusal_means_depends_on_its_code() -> None:
    busy, unknown, denied = (ServerRefused(code, None, "h:1") for code in (2, 1, 16))
    assert (busy.retryable, busy.outcome_unknown) == (True, False)
    assert (unknown.retryable, unknown.outcome_unknown) == (True, True)
    assert (denied.retryable, denied.outcome_unknown) == (False, False)
    assert str(denied) == "h:1 answered NO_PERMISSION (16): no remark"
    assert str(ServerRefused(9999, "why", "h:1")) == "h:1 answered code 9999: why"


@pytest.mark.parametrize(
    ("script", "unknown"), [(hang_up, True), (silence, True), (refuse(ResponseCode.SYSTEM_BUSY), False)]
)
def test_a_failed_send_knows_whether_the_message_may_be_stored(script: Any, unknown: bool) -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server:
            server.script[RequestCode.SEND_MESSAGE_V2] += [script] * 50
            async with Producer(server.address) as producer:
                with pytest.raises(SendFailed) as caught:
                    await producer.send(Message("t", b"x"), timeout_ms=200)
                assert caught.value.outcome_unknown is unknown and caught.value.retryable
            options = OrderedProducerOptions(deadline_ms=200, timeout_ms=100, max_batch_messages=1)
            async with OrderedProducer(server.address, options=options) as ordered:
                sends = [ordered.send(Message("t", b"x"), "k"), ordered.send(Message("t", b"behind"), "k")]
                tried, behind = await asyncio.gather(*sends, return_exceptions=True)
                assert isinstance(tried, SendFailed) and tried.outcome_unknown is unknown
                assert isinstance(behind, SendFailed) and not behind.outcome_unknown and behind.attempts == 0

    run(test())


# ---- nothing else comes out ----

Call = Callable[[str, ClientTls | None], Awaitable[object]]
FEW = ProducerOptions(retries=1)


async def check(message: object) -> TransactionState:
    return TransactionState.COMMIT


async def commit(half: SendResult) -> TransactionState:
    return TransactionState.COMMIT


def producing(action: Callable[[TransactionProducer], Awaitable[object]]) -> Call:
    async def call(address: str, tls: ClientTls | None) -> object:
        async with TransactionProducer(address, "g", check, options=FEW, tls=tls) as producer:
            return await action(producer)

    return call


async def in_order(address: str, tls: ClientTls | None) -> object:
    options = OrderedProducerOptions(deadline_ms=200, timeout_ms=100)
    async with OrderedProducer(address, options=options, tls=tls) as producer:
        await producer.put(Message("t", b"x"), "k")
        await producer.flush()
        return await producer.send(Message("t", b"x"), "k")


def pulling(action: Callable[[PullConsumer], Awaitable[object]]) -> Call:
    async def call(address: str, tls: ClientTls | None) -> object:
        async with PullConsumer(address, "g", tls=tls) as consumer:
            return await action(consumer)

    return call


async def polling(consumer: PullConsumer) -> object:
    consumer.assign(await consumer.queues("t"))
    return await consumer.poll(timeout_ms=100)


async def reading(consumer: PullConsumer) -> object:
    return [found async for found in consumer.read(QUEUE, 0, 9)]


async def popping(address: str, tls: ClientTls | None) -> object:
    async with PopConsumer(address, "g", "t", session=Session(address, tls=tls)) as consumer:
        return await consumer.receive(timeout_ms=200)


async def lite(address: str, tls: ClientTls | None) -> object:
    async with LiteConsumer(address, "g", "t", ["a"], session=Session(address, tls=tls)) as consumer:
        await consumer.subscribe("b")
        return await consumer.receive(timeout_ms=200)


async def pushing(address: str, tls: ClientTls | None) -> object:
    async with PushConsumer(address, "g", {"t": "*"}, check, session=Session(address, tls=tls)) as consumer:
        return consumer.metrics


async def controlling(address: str, tls: ClientTls | None) -> object:
    async with ControllerClient(address, timeout_ms=100, tls=tls) as controllers:
        return await controllers.replica_sets(["b"])


async def appending(address: str, tls: ClientTls | None) -> object:
    async with DLedgerClient(f"n0-{address}", tls=tls) as log:
        return await log.append(b"x", timeout_ms=200)


HALF = SendResult(SendStatus.SEND_OK, "m", ID, QUEUE, 0, "tx")
CALLS: dict[str, Call] = {
    "send": producing(lambda producer: producer.send(Message("t", b"x"))),
    "send to a queue": producing(lambda producer: producer.send(Message("t", b"x"), queue=QUEUE)),
    "send_batch": producing(lambda producer: producer.send_batch([Message("t", b"x"), Message("t", b"y")])),
    "send_oneway": producing(lambda producer: producer.send_oneway(Message("t", b"x"))),
    "request": producing(lambda producer: producer.request(Message("t", b"x"))),
    "recall": producing(lambda producer: producer.recall("t", "djEgdCBmYWtlLWEgMSAxIDE=")),
    "queues": producing(lambda producer: producer.queues("t")),
    "in a transaction": producing(lambda producer: producer.send_in_transaction(Message("t", b"x"), commit)),
    "end": producing(lambda producer: producer.end(HALF, TransactionState.COMMIT)),
    "in order": in_order,
    "poll": pulling(polling),
    "pull": pulling(lambda consumer: consumer.pull(QUEUE, 0)),
    "read": pulling(reading),
    "min_offset": pulling(lambda consumer: consumer.min_offset(QUEUE)),
    "max_offset": pulling(lambda consumer: consumer.max_offset(QUEUE)),
    "search_offset": pulling(lambda consumer: consumer.search_offset(QUEUE, 0)),
    "committed": pulling(lambda consumer: consumer.committed(QUEUE)),
    "commit": pulling(lambda consumer: consumer.commit(QUEUE, 0)),
    "is_compacted": pulling(lambda consumer: consumer.is_compacted(QUEUE)),
    "pop": popping,
    "lite": lite,
    "push": pushing,
    "controllers": controlling,
    "append": appending,
}
SAMPLES: dict[str, Any] = {
    "action": "pub", "config": SubscriptionGroupConfig(group_name="g"), "count": 1, "group": "g", "client_id": "c",
    "key": "k", "max_count": 1, "offset": 0, "offset_msg_id": ID, "password": "p", "policies": [], "queue": QUEUE,
    "queues": 1, "settings": {"a": "b"}, "source": "g", "target": "h", "timestamp_ms": 0, "topic": "t", "user": "u",
    "username": "u",
}  # fmt: skip
"""Arguments for the methods of `Admin`, by their names."""


def administering(name: str) -> Call:
    async def call(address: str, tls: ClientTls | None) -> object:
        async with Admin(address, session=Session(address, tls=tls)) as admin:
            method = getattr(admin, name)
            wanted = [one.name for one in inspect.signature(method).parameters.values() if one.default is one.empty]
            return await method(**{one: address if one == "address" else SAMPLES[one] for one in wanted})

    return call


for _name, _method in inspect.getmembers(Admin, inspect.iscoroutinefunction):
    if not _name.startswith("_") and _name not in ("start", "stop"):
        CALLS[f"admin {_name}"] = administering(_name)

PATIENCE_MS = 15_000
CALLS_AT_A_TIME = 20
GOES_ON = {"end", "poll", "push"}
"""Calls that raise nothing when no server is there: they say so in their result, or try again until it is."""
ROUTES = (RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO)


class Faulty(FakeServer):
    """Tells routes, and has one fault in all else; `everywhere`: in routes, too."""

    def __init__(self, fault: Callable[[Command], Answer | bytes], everywhere: bool) -> None:
        super().__init__({"t": 1})
        self.fault, self.everywhere = fault, everywhere

    async def _serve(self, peer: _Peer, command: Command) -> None:
        if command.code in ROUTES and not self.everywhere:
            await super()._serve(peer, command)
            return
        answer = self.fault(command)
        if isinstance(answer, bytes):
            assert peer.transport is not None
            peer.transport.write(answer)
            return
        self.script[command.code].append(lambda _: answer)
        await super()._serve(peer, command)


FAULTS: dict[str, Callable[[Command], Answer | bytes]] = {
    "a reset in the middle": hang_up,
    "a broken frame": lambda command: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "half a frame, then the end": lambda command: Answer(hang_up=True),
    "an answer without its header": lambda command: Answer(0),
    "a body that is none": lambda command: Answer(0, body=b"\xff{[\x00 no such thing"),
    "a body of another kind": lambda command: Answer(0, body=b"[1, 2]"),
    "permission refused": refuse(ResponseCode.NO_PERMISSION),  # type: ignore[dict-item]
    "an unknown code": refuse(9999),  # type: ignore[dict-item]
}


async def only_client_errors(address: str, tls: ClientTls | None = None) -> dict[str, ClientError]:
    """What each call raised: nothing but errors of the tree."""
    raised: dict[str, ClientError] = {}
    wrong: dict[str, BaseException] = {}

    async def one(name: str, call: Call) -> None:
        try:
            await call(address, tls)
        except ClientError as error:
            raised[name] = error
        except Exception as error:
            wrong[name] = error

    at_a_time = asyncio.Semaphore(CALLS_AT_A_TIME)

    async def in_turn(name: str, call: Call) -> None:
        async with at_a_time:
            await one(name, call)

    await asyncio.gather(*(in_turn(name, call) for name, call in CALLS.items()))
    assert not wrong, "\n".join(f"{name}: {error!r}" for name, error in wrong.items())
    return raised


@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
def test_only_errors_of_the_tree_come_out_of_a_faulty_server(fault: str, everywhere: bool) -> None:
    async def test() -> dict[str, ClientError]:
        async with Faulty(FAULTS[fault], everywhere) as server:
            return await only_client_errors(server.address)

    raised = run(test())
    assert {"send", "in order", "max_offset", "admin topic_config", "append"} <= raised.keys()


def test_a_send_that_is_refused_names_the_refusal_as_its_cause() -> None:
    async def test() -> None:
        async with Faulty(FAULTS["permission refused"], everywhere=False) as server:
            with pytest.raises(SendFailed) as failed:
                await CALLS["send to a queue"](server.address, None)
        assert isinstance(failed.value.__cause__, ServerRefused), failed.value

    run(test())


def test_only_errors_of_the_tree_come_out_when_nothing_listens() -> None:
    with socket.socket() as held:  # so that no other test listens there
        held.bind(("127.0.0.1", 0))
        raised = run(only_client_errors(f"127.0.0.1:{held.getsockname()[1]}"))
    assert raised.keys() >= CALLS.keys() - GOES_ON
    unknown = {name: error for name, error in raised.items() if error.outcome_unknown and name != "controllers"}
    assert not unknown, unknown


def test_only_errors_of_the_tree_come_out_when_the_servers_ca_is_another() -> None:
    pki = files()
    server_side = server_context(pki.own("server"))

    async def test() -> dict[str, ClientError]:
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0, ssl=server_side)
        async with server:
            address, tls = f"127.0.0.1:{server.sockets[0].getsockname()[1]}", ClientTls(ca=pki.path("other_ca.pem"))
            connections = Connections(lambda connection, command: None, connect_timeout_ms=PATIENCE_MS, tls=tls)
            with pytest.raises(TlsFailed, match=r"the certificate of .* is refused"):
                await connections.get(address)
            return await only_client_errors(address, tls)

    raised = run(test())
    assert raised.keys() >= CALLS.keys() - GOES_ON


def test_a_stop_while_a_client_dials_is_an_error_and_no_cancellation() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server:
            producer = Producer(server.address)
            await producer.start()
            sending = asyncio.ensure_future(producer.send(Message("t", b"x")))
            await asyncio.wait([sending], timeout=0)
            await producer.stop()
            with pytest.raises(ClientError):
                await sending

    run(test())


def test_files_of_tls_that_can_not_be_used_are_an_error_of_the_tree(tmp_path: Path) -> None:
    async def test() -> None:
        for tls in (ClientTls(ca=str(tmp_path / "none.pem")), ClientTls(key="k")):
            async with Producer("127.0.0.1:9", tls=tls) as producer:
                with pytest.raises(BadSettings):
                    await producer.send(Message("t", b"x"))

    run(test())
