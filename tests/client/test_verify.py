"""The ledger, the comparison, the sender that never gives up, and the parts of an outage."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from perseid.base.errors import PerseidError
from perseid.client import MessageQueue, PullConsumer, ServerRefused, Session
from perseid.client.admin import BrokerEpochs
from perseid.client.controller import ControllerClient, ReplicaSet
from perseid.client.routes import MASTER_ID
from perseid.client.verify import Entry, Ledger, Outage, SteadySender, Watch, compare, read_back, steady
from perseid.client.verify.outage import CONTROLLER, FIRST
from perseid.client.verify.watch import _Known
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.send import SendMessageRequestV2, SendMessageResponse

from .fake import BROKER, Answer, FakeServer, hang_up, refuse, run

Q0, Q1 = MessageQueue("t", "a", 0), MessageQueue("t", "a", 1)


@pytest.fixture(autouse=True)
def no_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine is no outage."""
    monkeypatch.setattr(steady, "STALL_MS", 15_000)


def entries(*rows: tuple[str, MessageQueue, int, int]) -> list[Entry]:
    return [Entry(key, queue, offset, 1_700_000_000_000, sends, "") for key, queue, offset, sends in rows]


def numbers(findings: object) -> dict[str, int]:
    names = ("lost", "moved", "invented", "reordered", "doubled", "unacknowledged")
    return {name: getattr(findings, name) for name in names if getattr(findings, name)}


# ---- comparing ----


def test_nothing_is_wrong_when_all_is_where_it_was_acknowledged() -> None:
    book = entries(("r-0-0", Q0, 0, 1), ("r-1-0", Q1, 5, 1), ("r-0-1", Q0, 1, 1))
    found = compare(book, {Q0: [(0, "r-0-0"), (1, "r-0-1")], Q1: [(5, "r-1-0")]})
    assert (found.kept, found.acknowledged, found.stored, numbers(found)) == (True, 3, 3, {})


@pytest.mark.parametrize(
    ("found", "wrong", "kept"),
    [
        ({Q0: [(0, "r-0-0")]}, {"lost": 1}, False),
        ({Q0: [(0, "r-0-0"), (2, "r-0-1")]}, {"moved": 1}, False),
        ({Q0: [(0, "r-0-0"), (1, "r-0-1"), (2, "r-0-0")]}, {"invented": 1}, False),
        ({Q0: [(0, "r-0-0"), (1, "r-0-1"), (2, "r-0-1")]}, {"doubled": 1}, True),
        ({Q0: [(0, "r-0-0"), (1, "r-0-1"), (2, "r-0-1"), (3, "r-0-1")]}, {"doubled": 1, "invented": 1}, False),
        ({Q0: [(0, "r-0-0"), (1, "r-0-1"), (2, "r-0-2")]}, {"unacknowledged": 1}, True),
        ({Q0: [(0, "r-0-1"), (1, "r-0-0")]}, {"moved": 2, "reordered": 1}, False),
        ({Q0: [(0, "r-0-0")], Q1: [(1, "r-0-1")]}, {"moved": 1}, False),
    ],
    ids=["lost", "moved", "invented", "doubled", "more copies than sends", "not heard of", "reordered", "other queue"],
)
def test_what_is_wrong_is_counted_and_named(
    found: dict[MessageQueue, list[tuple[int, str]]], wrong: dict[str, int], kept: bool
) -> None:
    findings = compare(entries(("r-0-0", Q0, 0, 1), ("r-0-1", Q0, 1, 2)), found)
    assert (numbers(findings), findings.kept) == (wrong, kept)
    for kind in wrong.keys() - {"doubled", "unacknowledged"}:
        assert "r-0-" in findings.named[kind][0]


# ---- the file ----


def test_a_ledger_comes_back_from_its_file_without_its_torn_end(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    book = entries(("r-0-0", Q0, 0, 1), ("r-1-0", Q1, 5, 3))
    with Ledger("t", "r", path) as ledger:
        for entry in book:
            ledger.add(entry)
        assert Ledger.load(path).entries == book, "each line is in the file at once"
    with path.open("a") as file:
        file.write("r-0-1 a/0 1")
    loaded = Ledger.load(path)
    assert (loaded.topic, loaded.run, loaded.entries) == ("t", "r", book)


def test_what_is_no_ledger_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with pytest.raises(PerseidError, match="can't be read"):
        Ledger.load(path)
    for text in ("", "hello\n", "# perseid ledger 1 topic=t\n"):
        path.write_text(text)
        with pytest.raises(PerseidError, match="is no ledger"):
            Ledger.load(path)
    for line in ("r-0-0 a/0 0 1", "r-0-0 a 0 1 1 -", "r-0-0 a/x 0 1 1 -"):
        path.write_text(f"# perseid ledger 1 topic=t run=r\n{line}\n")
        with pytest.raises(PerseidError, match=r"ledger:2: is no line"):
            Ledger.load(path)
    with pytest.raises(PerseidError, match="is there already"):
        Ledger("t", "r", path)


# ---- sending ----


async def sent(server: FakeServer, ledger: Ledger, wanted: int, watch_poll_ms: float = 1) -> tuple[SteadySender, Watch]:
    """A sender that has `wanted` messages acknowledged, watched."""
    session = Session(server.address)
    async with Watch(session, poll_ms=watch_poll_ms) as watch:
        await session.routes.fetch(ledger.topic)

        def count(entry: Entry) -> None:
            if len(ledger.entries) >= wanted:
                sender.stop.set()

        sender = SteadySender(session, ledger, rate=5000, poll_ms=1, observer=watch, on_ack=count)
        await sender.run()
    return sender, watch


def test_all_queues_are_used_in_turn_and_read_back() -> None:
    async def test() -> None:
        async with FakeServer({"t": 2}) as server:
            ledger = Ledger("t", "r")
            sender, watch = await sent(server, ledger, 40)
            assert sender.counts.acknowledged >= 40 and sender.counts.failures == 0 and not watch.outages
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
            sender, watch = await sent(server, ledger, 5)
            assert ledger.entries[0].sends == 4 and {entry.sends for entry in ledger.entries[1:]} == {1}
            assert sender.counts.failures == 3
            (outage,) = watch.outages
            assert outage.broker_name == BROKER and sum(outage.errors.values()) >= 3
            assert outage.length_ms is not None and outage.parts()[-1].name == FIRST

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
            assert (ledger.entries[0].sends, ledger.entries[0].offset, sender.counts.stored_only) == (2, 1, 1)
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
            _, watch = await sent(old, ledger, 3)
            old.address = first
            assert gate.is_set() and len(new.bodies("t")) >= 3 and not old.bodies("t")
            assert ledger.entries[0].sends >= 2
            outage = watch.outages[0]
            assert (outage.old_master, outage.new_master) == (first, new.address)
            assert outage.seen["route"].what == f"the name server names {new.address}"

    run(test())


class Slow:
    """Controllers and a broker that answer once they are let; the new master is broker 2, in epoch 2."""

    active = "c"

    def __init__(self) -> None:
        self.asked, self.told = asyncio.Event(), asyncio.Event()

    async def replica_sets(self, names: Sequence[str]) -> list[ReplicaSet]:
        self.asked.set()
        await self.told.wait()
        return [ReplicaSet(BROKER, 2, "new", 2, 2, ())]

    async def broker_epochs(self, address: str) -> BrokerEpochs:
        return BrokerEpochs(BROKER, address, MASTER_ID, ((2, 5),), 7)

    def attach(self, watch: Watch) -> None:
        watch._known[BROKER] = _Known(BROKER, controllers="c", epoch=1, master_id=1)
        watch._controllers["c"] = cast(ControllerClient, self)
        cast(Any, watch._admin).broker_epochs = self.broker_epochs


def test_an_acknowledgement_may_overtake_the_news_of_the_election() -> None:
    async def test() -> None:
        slow, ended = Slow(), list[Outage]()
        async with Watch(Session("127.0.0.1:1"), poll_ms=1, on_end=ended.append) as watch:
            slow.attach(watch)
            watch.trouble(BROKER, "old", watch._now(), 0)
            watch.acknowledged(BROKER, "new")
            await slow.asked.wait()
            assert not ended
            slow.told.set()
        (outage,) = ended
        assert outage.epochs == (1, 2) and watch._known[BROKER].epoch == 2
        seen = {part.name: part.seen for part in outage.parts()}
        assert seen["election"] and seen["role change"] and seen[FIRST]
        assert outage.length_ms == pytest.approx(sum(part.length_ms for part in outage.parts()))

    run(test())


def test_the_next_outage_does_not_wait_for_news_of_the_one_before() -> None:
    async def test() -> None:
        slow, ended = Slow(), list[Outage]()
        async with Watch(Session("127.0.0.1:1"), poll_ms=1, on_end=ended.append) as watch:
            slow.attach(watch)
            watch.trouble(BROKER, "old", watch._now(), 0)
            watch.acknowledged(BROKER, "new")
            watch.trouble(BROKER, "new", watch._now(), 0)
            assert [one.old_master for one in ended] == ["old"]
            watch.acknowledged(BROKER, "new")
            assert [one.old_master for one in ended] == ["old", "new"]

    run(test())


def test_what_no_broker_would_take_ends_the_run() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server:
            server.script[RequestCode.SEND_MESSAGE_V2].append(refuse(ResponseCode.MESSAGE_ILLEGAL, "too odd"))
            with pytest.raises(ServerRefused, match="too odd"):
                await sent(server, Ledger("t", "r"), 1)

    run(test())


# ---- the parts ----


def outage(**seen: float) -> Outage:
    one = Outage("a", "h:1", CONTROLLER, last_ack=10.0, noticed=10.01, time_ms=0)
    for name, at in seen.items():
        one.note(name.replace("_", " "), at, name)
    return one


def lengths(one: Outage) -> dict[str, float]:
    return {part.name: round(part.length_ms, 3) for part in one.parts() if part.seen}


def test_parts_follow_one_another_and_fill_the_window() -> None:
    one = outage(detection=10.003, election=10.020, role_change=10.030, route=10.041)
    assert one.parts() == [] and one.length_ms is None
    one.first_ack = 10.050
    assert lengths(one) == {"detection": 3, "election": 17, "role change": 10, "route": 11, FIRST: 9}
    assert one.length_ms == pytest.approx(50) == sum(lengths(one).values())


def test_what_was_seen_late_ended_before_what_followed_from_it() -> None:
    one = outage(election=10.020, role_change=10.045, route=10.030)
    one.first_ack = 10.040
    assert lengths(one) == {"election": 20, "role change": 10, "route": 0, FIRST: 10}
    assert [part.name for part in one.parts() if not part.seen] == ["detection"]


def test_a_known_cause_begins_the_window() -> None:
    one = outage(election=10.020)
    one.cause = type(one.seen["election"])(9.995, "SIGKILL")
    one.first_ack = 10.030
    told = one.to_json()
    assert (told["lengthMs"], told["from"], told["parts"][1]["ms"]) == (35.0, "SIGKILL", 25.0)
