"""Clients until a signal: what is finished, what is ended, and what the exit code says."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from perseid.client import (
    Consumer,
    Message,
    Producer,
    ProducerOptions,
    PushConsumer,
    ReceivedMessage,
    UsageError,
    run,
    run_until_signal,
)

from . import fake
from .fake import FakeServer


class Client:
    """An async context that notes what it is told, and may be slow to stop."""

    def __init__(
        self, name: str, notes: list[str], stop: Callable[[], Coroutine[Any, Any, object]] | None = None
    ) -> None:
        self.name, self.notes, self._stop = name, notes, stop
        self.started = asyncio.Event()

    async def __aenter__(self) -> None:
        self.notes.append(f"start {self.name}")
        self.started.set()

    async def __aexit__(self, *_: object) -> None:
        try:
            if self._stop is not None:
                await self._stop()
        finally:
            self.notes.append(f"stop {self.name}")


async def signalled(running: Coroutine[Any, Any, int], ready: asyncio.Event, *numbers: int) -> int:
    """What it returns, having got these signals once it was ready."""
    task = asyncio.create_task(running)
    await ready.wait()
    for number in numbers:
        signal.raise_signal(number)
    return await task


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_clients_are_stopped_in_the_opposite_order(number: int) -> None:
    notes: list[str] = []
    before = signal.getsignal(number)

    async def test() -> None:
        during = signal.getsignal(number)
        one, two = Client("one", notes), Client("two", notes)
        assert await signalled(run_until_signal(one, two), two.started, number) == 0
        assert signal.getsignal(number) is during, "what was there before is there again"

    fake.run(test())
    assert notes == ["start one", "start two", "stop two", "stop one"]
    assert signal.getsignal(number) is before


def test_a_handler_finishes_and_may_still_send() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1, "out": 1}) as server:
            server.store("t", 0, b"x")
            begun, finish = asyncio.Event(), asyncio.Event()
            producer = Producer(server.address, options=ProducerOptions(linger_ms=60_000))
            sends: list[asyncio.Task[object]] = []

            async def handle(message: ReceivedMessage) -> None:
                begun.set()
                await finish.wait()
                sends.append(asyncio.create_task(producer.send(Message("out", message.body))))

            consumer = PushConsumer(server.address, "g", {"t": "*"}, handle, from_where="first")
            task = asyncio.create_task(signalled(run_until_signal(producer, consumer), begun, signal.SIGTERM))
            await server.until(lambda: consumer.stopping)
            finish.set()
            assert await task == 0
            assert server.committed["g", "t", 0] == 1 and server.bodies("out") == [b"x"]

    fake.run(test())


def test_work_that_loops_over_the_last_client_ends_with_it() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server:
            for number in range(3):
                server.store("t", 0, b"%d" % number)
            consumer = Consumer(server.address, "g", {"t": "*"}, from_where="first")
            begun, finish, seen = asyncio.Event(), asyncio.Event(), []

            async def loop() -> None:
                async for message in consumer:
                    seen.append(message.body)
                    if len(seen) == 2:
                        begun.set()
                        await finish.wait()

            task = asyncio.create_task(
                signalled(run_until_signal(consumer, work=loop()), begun, signal.SIGTERM)
            )
            await server.until(lambda: consumer.stopping)
            finish.set()
            assert await task == 0
            assert seen == [b"0", b"1"] and server.committed["g", "t", 0] == 2

    fake.run(test())


def test_other_work_is_cancelled_between_the_last_client_and_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "WORK_PATIENCE_MS", 1)
    notes: list[str] = []

    async def test() -> None:
        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                notes.append("work ends")

        one, two = Client("one", notes), Client("two", notes)
        assert await signalled(run_until_signal(one, two, work=work()), two.started, signal.SIGINT) == 0

    fake.run(test())
    assert notes == ["start one", "start two", "stop two", "work ends", "stop one"]


def test_work_that_ends_by_itself_ends_the_run_and_its_exception_is_raised() -> None:
    notes: list[str] = []

    async def well() -> None:
        notes.append("work")

    async def badly() -> None:
        raise KeyError("mine")

    async def test() -> None:
        assert await run_until_signal(Client("one", notes), work=well()) == 0
        with pytest.raises(KeyError, match="mine"):
            await run_until_signal(Client("two", notes), work=badly())

    fake.run(test())
    assert notes == ["start one", "work", "stop one", "start two", "stop two"]


def test_a_client_that_does_not_start_stops_the_others_and_is_raised() -> None:
    notes: list[str] = []

    @asynccontextmanager
    async def broken() -> AsyncIterator[None]:
        raise ValueError("no such host")
        yield

    async def work() -> None:
        notes.append("never")

    async def test() -> None:
        with pytest.raises(ValueError, match="no such host"):
            await run_until_signal(Client("one", notes), broken(), work=work())

    fake.run(test())
    assert notes == ["start one", "stop one"]


@pytest.mark.parametrize(
    ("numbers", "drain_ms", "code"),
    [((signal.SIGTERM,), 10, 1), ((signal.SIGINT, signal.SIGTERM), 60_000, 128 + signal.SIGTERM)],
    ids=["deadline", "second signal"],
)
def test_what_does_not_end_is_ended(
    numbers: tuple[int, ...], drain_ms: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "CANCEL_PATIENCE_MS", 5)
    notes: list[str] = []

    async def test() -> None:
        clients: list[AbstractAsyncContextManager[object]] = [
            Client(name, notes, asyncio.Event().wait) for name in ("one", "two")
        ]
        last = Client("three", notes)
        assert await signalled(run_until_signal(*clients, last, drain_ms=drain_ms), last.started, *numbers) == code

    fake.run(test())
    assert notes[3:] == ["stop three", "stop two", "stop one"]


def test_a_run_that_is_cancelled_stops_its_clients() -> None:
    notes: list[str] = []

    async def test() -> None:
        client = Client("one", notes)
        task = asyncio.create_task(run_until_signal(client))
        await client.started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    fake.run(test())
    assert notes == ["start one", "stop one"]


def test_in_another_thread_it_says_why_it_can_not() -> None:
    async def work() -> None:
        pass

    async def test() -> None:
        with pytest.raises(UsageError, match="has to run in the main thread"):
            await asyncio.to_thread(asyncio.run, run_until_signal(work=work()))

    fake.run(test())
