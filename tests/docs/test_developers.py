"""The how-to pages for application developers: their code, in virtual time."""

import asyncio
import runpy
import sqlite3
from collections.abc import Callable, Coroutine
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.docs.pages import DOCS, Reader

from perseid.broker.config import BrokerConfig
from perseid.client import (
    Consumer,
    InvalidMessage,
    Message,
    Producer,
    ReceivedMessage,
    TransactionState,
)
from perseid.testing.virtual import VirtualBroker

WITHIN_S = 600.0


def code(page: str) -> dict[str, Any]:
    """The functions of a page's code."""
    return runpy.run_path(str(DOCS / "how-to" / "code" / f"{page}.py"))


async def beside(background: Coroutine[Any, Any, Any], until: Callable[[], bool]) -> None:
    """Run something that has no end until a condition holds."""
    task = asyncio.ensure_future(background)
    try:
        async with asyncio.timeout(WITHIN_S):
            while not until():
                assert not task.done() or task.result() is not None
                await asyncio.sleep(0.1)
    finally:
        task.cancel()
        await asyncio.wait([task])


async def received(namesrv: str, topic: str, count: int) -> list[ReceivedMessage]:
    """So many messages of a topic."""
    found: list[ReceivedMessage] = []
    async with asyncio.timeout(WITHIN_S), Consumer(namesrv, "reader", {topic: "*"}, from_where="first") as consumer:
        async for message in consumer:
            found.append(message)
            if len(found) == count:
                break
    return found


def test_retries_and_dead_letters(perseid_virtual: VirtualBroker) -> None:
    page, namesrv = code("retries"), perseid_virtual.namesrv
    seen: list[bytes] = []

    async def charge(body: bytes) -> None:
        seen.append(body)
        await worst(body)

    worst = page["charge"]
    page["consume"].__globals__["charge"] = charge

    async def main() -> None:
        async with Producer(namesrv) as producer:
            for body in (b"fine", b"declined", b"down"):
                await producer.send(Message("orders", body, keys=body.decode()))
        dead: list[ReceivedMessage] = []

        async def look() -> None:
            dead.extend(await received(namesrv, "%DLQ%billing", 2))

        await beside(page["consume"](namesrv), lambda: seen.count(b"down") == 4)
        await look()
        assert sorted(m.body for m in dead) == [b"declined", b"down"]
        assert (seen.count(b"fine"), seen.count(b"declined"), seen.count(b"down")) == (1, 1, 4)
        assert await page["send_again"](namesrv, "billing") == 2
        assert await page["send_again"](namesrv, "billing") == 0, "each is given again once"
        seen.clear()
        await beside(page["consume"](namesrv), lambda: set(seen) == {b"declined", b"down"})

    perseid_virtual.run(main())


def test_messages_in_order(perseid_virtual: VirtualBroker) -> None:
    page, namesrv = code("ordered"), perseid_virtual.namesrv
    last: dict[str, list[int]] = {}

    async def main() -> None:
        await page["send"](namesrv, [(share, price) for price in range(100) for share in ("A", "B", "C")])
        await beside(page["consume"](namesrv, last), lambda: sum(map(len, last.values())) >= 300)

    perseid_virtual.run(main())
    assert last == {share: list(range(100)) for share in ("A", "B", "C")}


def test_transactions(perseid_virtual: VirtualBroker) -> None:
    transfers = code("transactions")["Transfers"](perseid_virtual.namesrv, sqlite3.connect(":memory:"))

    async def main() -> list[bytes]:
        async with transfers.producer:
            assert await transfers.transfer("1", 500) is TransactionState.COMMIT
            assert await transfers.transfer("2", -5) is TransactionState.ROLLBACK
            await transfers.producer.begin(Message("transfers", b"7", keys="1"))  # asked about: this id was saved
            await transfers.producer.begin(Message("transfers", b"8", keys="3"))  # asked about: this was not
            return [message.body for message in await received(perseid_virtual.namesrv, "transfers", 2)]

    assert perseid_virtual.run(main()) == [b"500", b"7"]


def test_messages_for_a_later_time() -> None:
    page = code("delayed")
    with VirtualBroker(broker=replace(BrokerConfig(), recall_message_enable=True)) as broker:

        async def main() -> list[tuple[str, int]]:
            await page["send_and_recall"](broker.namesrv)
            await page["send"](broker.namesrv, broker.now + 200_000)
            came = []
            async with Consumer(broker.namesrv, "r", {"reminders": "*"}, from_where="first") as consumer:
                async for message in consumer:
                    came.append((message.body.decode(), (broker.now - message.born_timestamp) // 1000))
                    if len(came) == 3:
                        return came
            raise AssertionError("the loop has ended")

        texts, seconds = zip(*broker.run(main()), strict=True)
    assert texts == ("level 3", "in 90 seconds", "at a time")
    assert all(due <= came <= due + 2 for due, came in zip((10, 90, 200), seconds, strict=True)), seconds


def test_request_and_reply(perseid_virtual: VirtualBroker) -> None:
    page, namesrv = code("request_reply"), perseid_virtual.namesrv

    async def main() -> None:
        assert await page["ask"](namesrv, 3) is None
        task = asyncio.ensure_future(page["serve"](namesrv))
        await asyncio.sleep(5)
        assert await page["ask"](namesrv, 12) == 144
        task.cancel()

    perseid_virtual.run(main())


def test_filters() -> None:
    page = code("filters")
    seen: dict[str, set[bytes]] = {"tag": set(), "sql": set()}
    with VirtualBroker(broker=replace(BrokerConfig(), enable_property_filter=True)) as broker:

        async def main() -> None:
            await page["send"](broker.namesrv)
            for which, count in (("tag", 2), ("sql", 1)):
                consuming = page["consume"](broker.namesrv, lambda which, body: seen[which].add(body), which)
                await beside(consuming, lambda which=which, count=count: len(seen[which]) == count)  # type: ignore[misc]

        broker.run(main())
    assert seen == {"tag": {b"desk", b"book"}, "sql": {b"desk"}}


def test_batches(perseid_virtual: VirtualBroker) -> None:
    page, namesrv = code("batching"), perseid_virtual.namesrv

    async def main() -> None:
        bodies = [b"%d" % number for number in range(1, 101)]
        assert len({result.msg_id for result in await page["send_many"](namesrv, bodies)}) == 100
        together = await page["send_together"](namesrv, bodies)
        assert len({result.queue for result in together}) == 1
        assert sorted(m.body for m in await received(namesrv, "readings", 200)) == sorted(bodies * 2)
        with pytest.raises(InvalidMessage):
            await page["send_together"](namesrv, [])

    perseid_virtual.run(main())


def test_pop(perseid_virtual: VirtualBroker) -> None:
    page, namesrv = code("pop"), perseid_virtual.namesrv
    done: list[bytes] = []

    async def main() -> None:
        async with Producer(namesrv) as producer:
            for number in range(20):
                await producer.send(Message("pictures", b"%d" % number))
        await beside(page["work"](namesrv, done), lambda: len(done) >= 20)
        await asyncio.sleep(60)  # what is not acknowledged comes again after 30 s

    perseid_virtual.run(main())
    assert len(done) == len(set(done)) == 20


def test_traces_and_metrics(perseid_virtual: VirtualBroker, capsys: pytest.CaptureFixture[str]) -> None:
    page, namesrv, exporter = code("tracing"), perseid_virtual.namesrv, InMemorySpanExporter()
    provider = page["set_up"](exporter)
    billed: list[bytes] = []

    async def main() -> None:
        await page["order"](namesrv, provider, b"4711")
        await beside(page["bill"](namesrv, provider, billed), lambda: billed)
        await page["send_and_measure"](namesrv, [b"1", b"2", b"3"])
        await page["send_as"](namesrv, "acme")
        (visit,) = await received(namesrv, "visits", 1)
        assert visit.properties["tenant"] == "acme"

    perseid_virtual.run(main())
    provider.shutdown()
    spans = {span.name: span for span in exporter.get_finished_spans()}
    chain = [spans[name] for name in ("order", "send orders", "process orders", "charge")]
    for parent, child in pairwise(chain):
        assert child.parent is not None and parent.context is not None
        assert (child.parent.trace_id, child.parent.span_id) == (parent.context.trace_id, parent.context.span_id)
    assert "3 stored, 0 failed, 0 retries\n99 of 100 within " in capsys.readouterr().out


def test_each_file_of_code_has_its_page_and_its_test() -> None:
    files = {path.stem for path in (DOCS / "how-to" / "code").glob("*.py")}
    text = "\n".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    shown = "\n".join(path.read_text() for path in (DOCS / "how-to").glob("*.md"))
    for name in files:  # run by its name, or saved and run as its page says
        is_run = f'code("{name}")' in text or f'"{name}.py"' in text or f'title="{name}.py"' in shown
        assert is_run and f"how-to/code/{name}.py" in shown, name


def test_reset_offsets(tmp_path: Path) -> None:
    with Reader("how-to/reset-offsets.md", tmp_path) as reader:
        reader.start_broker()
        assert reader.follow() >= 5
