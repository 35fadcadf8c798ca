"""The sender that never gives up."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.fake import BROKER, Answer, FakeServer, hang_up, refuse, run

from perseid.client import PullConsumer, ServerRefused, Session
from perseid.verify import Entry, Ledger, OutageMonitor, SteadySender, compare, read_back, steady
from perseid.verify.outage import FIRST_ACK
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.send import SendMessageRequestV2, SendMessageResponse


@pytest.fixture(autouse=True)
def no_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine is no outage."""
    monkeypatch.setattr(steady, "STALL_MS", 15_000)


async def sent(server: FakeServer, ledger: Ledger, wanted: int) -> tuple[SteadySender, OutageMonitor]:
    """A sender that has `wanted` messages acknowledged, watched."""
    session = Session(server.address)
    async with OutageMonitor(session, poll_ms=1) as monitor:
        await session.routes.fetch(ledger.topic)

        def count(entry: Entry) -> None:
            if len(ledger.entries) >= wanted:
                sender.stop.set()

        sender = SteadySender(session, ledger, rate=5000, poll_ms=1, observer=monitor, on_ack=count)
        await sender.run()
    return sender, monitor


def test_all_queues_are_used_in_turn_and_read_back() -> None:
    async def test() -> None:
        async with FakeServer({"t": 2}) as server:
            ledger = Ledger("t", "r")
            sender, monitor = await sent(server, ledger, 40)
            assert sender.stats.acknowledged >= 40 and sender.stats.failures == 0 and not monitor.outages
            assert {entry.queue.queue_id for entry in ledger.entries} == {0, 1}
            async with PullConsumer(server.address) as consumer:
                findings = compare(ledger.entries, await read_back(consumer, ledger, settle_ms=0))
            assert findings.kept and findings.acknowledged == len(ledger.entries)

    run(test())


def test_each_message_is_tried_until_it_is_acknowledged() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server:
            script = server.script[RequestCode.SEND_MESSAGE_V2]
            script += [refuse(ResponseCode.SYSTEM_ERROR), hang_up, refuse(ResponseCode.SERVICE_NOT_AVAILABLE)]
            ledger = Ledger("t", "r")
            sender, monitor = await sent(server, ledger, 5)
            assert ledger.entries[0].sends == 4 and {entry.sends for entry in ledger.entries[1:]} == {1}
            assert sender.stats.failures == 3
            (outage,) = monitor.outages
            assert outage.broker_name == BROKER and sum(outage.errors.values()) >= 3
            assert outage.length_ms is not None and outage.phases()[-1].name == FIRST_ACK

    run(test())


def test_stored_and_not_safe_is_no_acknowledgement() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server:

            def unsafe(command: Command) -> Answer:
                header = command.header(SendMessageRequestV2)
                at = server.store("t", header.queue_id, bytes(command.body), {"UNIQ_KEY": "U", "KEYS": "r-0-0"})
                return Answer(
                    ResponseCode.FLUSH_SLAVE_TIMEOUT,
                    SendMessageResponse(msg_id="0" * 32, queue_id=header.queue_id, queue_offset=at),
                )

            server.script[RequestCode.SEND_MESSAGE_V2].append(unsafe)
            ledger = Ledger("t", "r")
            sender, _ = await sent(server, ledger, 3)
            assert (ledger.entries[0].sends, ledger.entries[0].offset, sender.stats.stored_only) == (2, 1, 1)
            async with PullConsumer(server.address) as consumer:
                findings = compare(ledger.entries, await read_back(consumer, ledger, settle_ms=0))
            assert (findings.kept, findings.doubled) == (True, 1)

    run(test())


def test_a_send_that_hangs_is_given_up_when_the_route_names_another_master(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steady, "STALL_MS", 50)

    async def test() -> None:
        async with FakeServer({"t": 1}) as old, FakeServer({"t": 1}) as new:
            gate = asyncio.Event()

            def hang(command: Command) -> Answer:
                old.address, gate_address = new.address, old.address  # from now on the route names the other one
                assert gate_address != new.address
                gate.set()
                return Answer(silent=True)

            old.script[RequestCode.SEND_MESSAGE_V2].append(hang)
            first = old.address
            ledger = Ledger("t", "r")
            _, monitor = await sent(old, ledger, 3)
            old.address = first
            assert gate.is_set() and len(new.bodies("t")) >= 3 and not old.bodies("t")
            assert ledger.entries[0].sends >= 2
            outage = monitor.outages[0]
            assert (outage.old_master, outage.new_master) == (first, new.address)
            assert outage.seen["route"].what == f"the name server names {new.address}"

    run(test())


def test_what_no_broker_would_take_ends_the_run() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server:
            server.script[RequestCode.SEND_MESSAGE_V2].append(refuse(ResponseCode.MESSAGE_ILLEGAL, "too odd"))
            with pytest.raises(ServerRefused, match="too odd"):
                await sent(server, Ledger("t", "r"), 1)

    run(test())
