"""Options as keywords: they are the options' own names and types, a wrong one is named, by mypy too."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from perseid.client import (
    Consumer,
    LiteConsumer,
    Message,
    OrderedProducer,
    OrderedProducerOptions,
    PopConsumer,
    PopOptions,
    Producer,
    ProducerOptions,
    PullConsumer,
    PullOptions,
    PushConsumer,
    PushOptions,
    TransactionProducer,
    TransactionState,
    keywords,
)
from perseid.client.blocking import BlockingProducer

from .fake import FakeServer, in_a_thread, run

ROOT = Path(__file__).parents[2]
NAMESRV = "127.0.0.1:1"


async def handle(message: object) -> None:
    """A handler that is not called."""


async def check(message: object) -> TransactionState:
    """A checker that is not called."""
    return TransactionState.UNKNOWN


@pytest.mark.parametrize(
    ("options", "typed"),
    [
        (PushOptions, keywords.PushKeywords),
        (PullOptions, keywords.PullKeywords),
        (PopOptions, keywords.PopKeywords),
        (ProducerOptions, keywords.ProducerKeywords),
        (OrderedProducerOptions, keywords.OrderedProducerKeywords),
    ],
)
def test_keywords_are_the_fields_of_the_options(options: type, typed: type) -> None:
    hints = get_type_hints(options)
    assert list(get_type_hints(typed).items()) == [(field.name, hints[field.name]) for field in fields(options)]


def test_each_client_takes_its_options_as_keywords() -> None:
    async def test() -> None:
        subscriptions = {"t": "*"}
        made: list[tuple[Any, Any]] = [
            (Producer(NAMESRV, linger_ms=5), ProducerOptions(linger_ms=5)),
            (TransactionProducer(NAMESRV, "g", check, retries=1), ProducerOptions(retries=1)),
            (OrderedProducer(NAMESRV, deadline_ms=9), OrderedProducerOptions(deadline_ms=9)),
            (PushConsumer(NAMESRV, "g", subscriptions, handle, concurrency=3), PushOptions(concurrency=3)),
            (Consumer(NAMESRV, "g", subscriptions, dedupe=True), PushOptions(dedupe=True)),
            (PullConsumer(NAMESRV, hold_ms=7), PullOptions(hold_ms=7)),
            (PopConsumer(NAMESRV, "g", "t", ordered=True), PopOptions(ordered=True)),
            (LiteConsumer(NAMESRV, "g", "t", ordered=True), PopOptions(ordered=True)),
        ]
        for client, options in made:
            assert client.options == options
        both = Producer(NAMESRV, options=ProducerOptions(retries=7, linger_ms=1), linger_ms=2)
        assert both.options == ProducerOptions(retries=7, linger_ms=2), "a keyword goes before the options"

    asyncio.run(test())


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("linger", "did you mean 'linger_ms'?"),
        ("sesion", "did you mean 'session'?"),
        ("colour", "it takes avoid_slow_brokers, buffer_bytes, "),
    ],
)
def test_a_wrong_keyword_is_a_type_error_that_names_the_right_one(wrong: str, hint: str) -> None:
    given: dict[str, Any] = {wrong: 5}
    with pytest.raises(TypeError) as caught:
        Producer(NAMESRV, **given)
    text = str(caught.value)
    assert text.startswith(f"Producer() got an unexpected keyword argument {wrong!r}: {hint}")
    with pytest.raises(TypeError, match=rf"Producer\(\) got an unexpected keyword argument '{wrong}'"):
        BlockingProducer(NAMESRV, **given).start()


def test_a_blocking_client_takes_them_too() -> None:
    with in_a_thread(FakeServer({"t": 1})) as server, BlockingProducer(server.address, linger_ms=1) as producer:
        assert producer.send(Message("t", b"x")).queue_offset == 0
        assert producer.metrics.batches == 1


def test_a_keyword_does_what_the_option_does() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server, Producer(server.address, linger_ms=1) as producer:
            await asyncio.gather(*(producer.send(Message("t", b"x")) for _ in range(3)))
            assert producer.metrics.batches == 1

    run(test())


def test_mypy_names_a_wrong_keyword_and_a_wrong_type(tmp_path: Path) -> None:
    """With the settings and the cache of `make check`."""
    program = tmp_path / "program.py"
    program.write_text(
        "from dataclasses import dataclass\n"
        "from perseid.client import Consumer, Json, Producer, ReceivedMessage\n"
        "Producer('h:1', linger_ms=5)\n"
        "Producer('h:1', linger=5)\n"
        "Producer('h:1', retries='two')\n"
        "Consumer('h:1', 'g', {'t': '*'}, concurency=3)\n"
        "@dataclass\n"
        "class Order:\n"
        "    number: int\n"
        "def read(message: ReceivedMessage) -> None:\n"
        "    order = message.decode(Json(Order))\n"
        "    reveal_type(order)\n"
        "    Json(Order).message('t', 7)\n"
        "    Json(Order).message('t', order, tags='x')\n"
    )
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", "--no-error-summary", str(program)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    told = [line.split("program.py:")[1] for line in done.stdout.splitlines() if "program.py:" in line]
    assert [line.split("  [")[0] for line in told if ": note: \"" not in line] == [
        '4: error: Unexpected keyword argument "linger" for "Producer"; did you mean "linger_ms"?',
        '5: error: Argument "retries" to "Producer" has incompatible type "str"; expected "int"',
        '6: error: Unexpected keyword argument "concurency" for "Consumer"; did you mean "concurrency"?',
        '12: note: Revealed type is "program.Order"',
        '13: error: Argument 2 to "message" of "Serializer" has incompatible type "int"; expected "Order"',
        '14: error: Unexpected keyword argument "tags" for "message" of "Serializer"; did you mean "tag"?',
    ], done.stdout + done.stderr
