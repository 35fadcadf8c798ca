"""`perseid send` and `perseid consume`: messages from and to the terminal, files and pipes."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from perseid.base.errors import PerseidError
from perseid.cli.flags import flattened
from perseid.cli.topics import DEFAULT_NAMESRV, AsJson, Namesrv, Topic, run
from perseid.client import (
    Message,
    MessageQueue,
    NoRoute,
    OrderedProducer,
    Producer,
    PullConsumer,
    ReceivedMessage,
    SendResult,
)

NOT_ALL = 3
"""Exit code when fewer messages came than `--count` asked for."""
POLL_MS = 200
IDLE_POLL_MS = 1000
MISSING_S = 1.0
"""Between two looks for a topic that does not exist yet."""


def register(app: typer.Typer) -> None:
    """Add the commands to the `perseid` command."""
    app.command()(send)
    app.command()(consume)


@dataclass(frozen=True, slots=True)
class MessageOptions:
    """Shared by all messages of one `perseid send`."""

    tag: Annotated[str | None, typer.Option(help="Tag of the messages.")] = None
    keys: Annotated[str | None, typer.Option(help="Index keys, separated by spaces.")] = None
    properties: Annotated[
        list[str] | None, typer.Option("--property", "-p", help="A property, name=value; may be repeated.")
    ] = None
    order_key: Annotated[str | None, typer.Option(help="Send all messages to one queue, chosen by this key.")] = None
    delay_level: Annotated[int, typer.Option(help="Deliver later: 1 = 1 s, 2 = 5 s, 3 = 10 s, … 18 = 2 h.")] = 0
    delay_ms: Annotated[int, typer.Option(help="Deliver later: after this number of milliseconds.")] = 0
    priority: Annotated[
        int | None, typer.Option(min=0, help="In topics with message.type=PRIORITY: the highest is popped first.")
    ] = None

    def own_properties(self) -> dict[str, str]:
        """The properties that were given; typer.BadParameter for what is none."""
        own: dict[str, str] = {}
        for text in self.properties or ():
            name, equals, value = text.partition("=")
            if not equals or not name or not value:
                raise typer.BadParameter(f"--property {text!r}: write name=value")
            own[name] = value
        return own


@flattened
def send(
    *,
    topic: Topic,
    bodies: Annotated[
        list[str] | None, typer.Argument(help="The messages' texts. Default: the lines of stdin.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", exists=True, dir_okay=False, readable=True, help="Each line is a message."),
    ] = None,
    options: MessageOptions,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: AsJson = False,
) -> None:
    """Send messages. Exit code 0: brokers have stored all of them."""
    own, order_key = options.own_properties(), options.order_key

    def message(body: bytes) -> Message:
        delay, keys = options.delay_level, options.keys or ()
        return Message(topic, body, options.tag, keys, own, delay, delay_ms=options.delay_ms, priority=options.priority)

    if bodies:
        results = run(_send_few(namesrv, [message(body.encode()) for body in bodies], order_key), namesrv)
        for result in results:
            plain = f"{result.msg_id} {result.queue}@{result.queue_offset}"
            typer.echo(json.dumps(_as_json(result)) if as_json else plain)
        return
    if file is None and sys.stdin.isatty():
        raise typer.BadParameter("give the messages as arguments, with --file, or pipe lines into stdin")
    sent = run(_send_lines(namesrv, (message(line) for line in _lines(file)), order_key, quiet=as_json), namesrv)
    typer.echo(json.dumps({"topic": topic, "sent": sent}) if as_json else f"{sent:,} messages are stored in {topic}")


async def _send_few(namesrv: str, messages: list[Message], order_key: str | None) -> list[SendResult]:
    async with Producer(namesrv) as producer:
        return [await producer.send(message, key=order_key) for message in messages]


async def _send_lines(namesrv: str, messages: Iterator[Message], order_key: str | None, *, quiet: bool) -> int:
    from rich.console import Console  # a single message has no bar
    from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as progress:
        bar = progress.add_task("stored", total=None)
        async with OrderedProducer(namesrv) as producer:
            for number, message in enumerate(messages):
                await producer.put(message, order_key if order_key is not None else str(number))
                if number % 512 == 0:
                    progress.update(bar, completed=producer.metrics.sent)
            await producer.flush()
            progress.update(bar, completed=producer.metrics.sent)
            return producer.metrics.sent


def _lines(file: Path | None) -> Iterator[bytes]:
    """Lines that are not empty, without their line ends."""
    with file.open("rb") if file is not None else nullcontext(sys.stdin.buffer) as source:
        for line in source:
            if text := line.rstrip(b"\r\n"):
                yield text


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Which messages `perseid consume` prints, and when it stops."""

    group: Annotated[
        str, typer.Option("--group", "-g", help="The consumer group, for --commit and --from committed.")
    ] = "PERSEID_CLI"
    tags: Annotated[str, typer.Option(help="Only messages with these tags: 'a || b'.")] = "*"
    start: Annotated[
        str, typer.Option("--from", help="first, last, committed, or a time in milliseconds since 1970.")
    ] = "first"
    count: Annotated[int | None, typer.Option("--count", "-c", min=1, help="Stop after this number of messages.")] = (
        None
    )
    follow: Annotated[bool, typer.Option("--follow", "-f", help="At the end wait for new messages, until Ctrl-C.")] = (
        False
    )
    timeout: Annotated[float | None, typer.Option(help="Stop after this number of seconds.")] = None
    commit: Annotated[
        bool, typer.Option("--commit", help="Commit the offsets of the printed messages for the group.")
    ] = False


@flattened
def consume(*, topic: Topic, options: ReadOptions, namesrv: Namesrv = DEFAULT_NAMESRV, as_json: AsJson = False) -> None:
    """Print the messages that a topic has now, queue by queue, in order.

    Exit code 3: fewer messages came than --count.
    """
    start, count = options.start, options.count
    if start not in ("first", "last", "committed") and not start.isdigit():
        raise typer.BadParameter(f"--from {start!r}: write first, last, committed, or a time in milliseconds")
    reader = _Reader(namesrv, topic, options, as_json=as_json)
    try:
        printed = run(reader.run(), namesrv)
    except KeyboardInterrupt:
        printed = reader.printed
    if count is not None and printed < count:
        typer.echo(f"perseid: {printed} of {count} messages came", err=True)
        raise typer.Exit(NOT_ALL)


class _Reader:
    """The work of `perseid consume`."""

    def __init__(self, namesrv: str, topic: str, options: ReadOptions, *, as_json: bool) -> None:
        self._consumer = PullConsumer(namesrv, options.group, expression=options.tags, from_where="first")
        self._topic = topic
        self._options = options
        self._as_json = as_json
        self.printed = 0

    async def run(self) -> int:
        """Print messages until the end, the count or the time is reached; gives back how many."""
        async with self._consumer:
            try:
                async with asyncio.timeout(self._options.timeout):
                    queues = await self._queues()
                    ends = {queue: await self._consumer.max_offset(queue) for queue in queues}
                    self._consumer.assign(queues)
                    for queue in queues:
                        await self._place(queue, ends[queue])
                    await self._print_all(ends)
            except TimeoutError:
                pass
            finally:
                if self._options.commit:
                    await self._consumer.commit()
        return self.printed

    async def _queues(self) -> list[MessageQueue]:
        """The topic's queues; with --follow, a topic that does not exist yet is waited for."""
        told = False
        while True:
            try:
                return await self._consumer.queues(self._topic)
            except NoRoute:
                if not self._options.follow:
                    raise
            if not told:
                typer.echo(f"perseid: topic {self._topic} does not exist yet; it is looked for each second", err=True)
                told = True
            await asyncio.sleep(MISSING_S)

    async def _place(self, queue: MessageQueue, end: int) -> None:
        if self._options.start == "first":
            self._consumer.seek(queue, await self._consumer.min_offset(queue))
        elif self._options.start == "last":
            self._consumer.seek(queue, end)
        elif self._options.start != "committed":
            self._consumer.seek(queue, await self._consumer.search_offset(queue, int(self._options.start)))

    async def _print_all(self, ends: dict[MessageQueue, int]) -> None:
        count = self._options.count
        while True:
            left = 500 if count is None else count - self.printed
            for message in await self._consumer.poll(min(left, 500), IDLE_POLL_MS if self._options.follow else POLL_MS):
                self._print(message)
            if self.printed == count:
                return
            if not self._options.follow and all((self._consumer.position(q) or 0) >= end for q, end in ends.items()):
                return

    def _print(self, message: ReceivedMessage) -> None:
        self.printed += 1
        if self._as_json:
            typer.echo(json.dumps(received_as_json(message), ensure_ascii=False))
        else:
            typer.echo(message.body.decode("utf-8", "replace"))


def _as_json(result: SendResult) -> dict[str, Any]:
    return {
        "topic": result.queue.topic,
        "broker": result.queue.broker_name,
        "queue": result.queue.queue_id,
        "offset": result.queue_offset,
        "msgId": result.msg_id,
        **({"recallHandle": result.recall_handle} if result.recall_handle else {}),
        "offsetMsgId": result.offset_msg_id,
        "status": result.status.name,
    }


def received_as_json(message: ReceivedMessage) -> dict[str, Any]:
    """A message as the commands print it with --json; a body that is no text is in hex."""
    try:
        body = {"body": message.body.decode()}
    except UnicodeDecodeError:
        body = {"bodyHex": message.body.hex()}
    except PerseidError as error:
        body = {"bodyError": str(error)}
    return {
        "topic": message.topic,
        "broker": message.queue.broker_name,
        "queue": message.queue.queue_id,
        "offset": message.queue_offset,
        "msgId": message.msg_id,
        "tag": message.tag,
        "keys": message.keys,
        "properties": message.properties,
        "bornMs": message.born_timestamp,
        "storedMs": message.store_timestamp,
        **body,
    }
