"""A client belongs to the event loop that it was started in."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.client.fake import FakeServer, in_a_thread

from perseid.client import Admin, Message, NotStarted, PopConsumer, Producer, PullConsumer

USES: dict[str, tuple[Callable[[str], Any], Callable[[Any], Any]]] = {
    "Producer": (Producer, lambda client: client.send(Message("t", b"x"))),
    "PullConsumer": (lambda namesrv: PullConsumer(namesrv, "g"), lambda client: client.queues("t")),
    "PopConsumer": (lambda namesrv: PopConsumer(namesrv, "g", "t"), lambda client: client.receive()),
    "Admin": (Admin, lambda client: client.topic_list()),
}


async def use(call: Callable[[Any], Any], client: Any) -> None:
    await call(client)


@pytest.mark.parametrize("name", USES)
def test_a_client_outside_its_async_with_says_how_to_start_it(name: str) -> None:
    make, call = USES[name]
    with pytest.raises(NotStarted) as told:
        asyncio.run(use(call, make("127.0.0.1:1")))
    assert str(told.value) == f"this {name} is not running: use `async with {name}(…)`, or `await start()` first"


@pytest.mark.parametrize("name", USES)
def test_a_client_of_another_event_loop_is_told_at_once(name: str) -> None:
    make, call = USES[name]
    with in_a_thread(FakeServer({"t": 1})) as server:
        client = make(server.address)
        with asyncio.Runner() as first:
            first.run(client.start())
            another = f"this {name} was started in another event loop"
            with pytest.raises(NotStarted, match=another), asyncio.Runner() as second:
                second.run(use(call, client))
            first.run(client.stop())
