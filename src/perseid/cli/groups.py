"""`perseid admin`'s commands for topics, consumer groups, their offsets and clients, and stored messages."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.table import Table

from perseid.cli.messages import received_as_json
from perseid.cli.topics import DEFAULT_NAMESRV, AsJson, Namesrv, Topic, names_of, run, show
from perseid.client import Admin, MessageQueue, QueueLag, ReceivedMessage, ServerRefused
from perseid.wire.bodies import Connection, ConsumerConnection, SubscriptionGroupConfig
from perseid.wire.codes import VERSION, ResponseCode
from perseid.wire.inspection import ConsumerRunningInfo
from perseid.wire.names import is_system_group

Group = Annotated[str, typer.Argument(help="The group's name.")]
NOT_FOUND = 4
"""Exit code when no message is there."""
BODY_CHARS = 60


def register(admin: typer.Typer) -> None:
    """Add the commands to `perseid admin`."""
    for command in (
        topics, groups, create_group, delete_group, lag, reset_offset, clone_offset, connections, consumer, message,
        messages,
    ):  # fmt: skip
        admin.command()(command)


# ---- topics ----


def topics(
    everything: Annotated[bool, typer.Option("--all", help="Also system topics.")] = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: AsJson = False,
) -> None:
    """All topics: their brokers, queues and messages."""

    async def work() -> list[dict[str, Any]]:
        async with Admin(namesrv) as admin:
            rows: list[dict[str, Any]] = []
            for name in await names_of(admin, everything=everything):
                queues = await admin.topic_stats(name)
                rows.append(
                    {
                        "topic": name,
                        "brokers": sorted({row.queue.broker_name for row in queues}),
                        "queues": len(queues),
                        "messages": sum(row.max_offset - row.min_offset for row in queues),
                        "lastUpdateMs": max((row.last_update_ms for row in queues), default=0),
                    }
                )
            return rows

    rows = run(work(), namesrv)
    if as_json:
        typer.echo(json.dumps(rows))
        return
    if not rows:
        typer.echo("no topics yet: perseid topic create NAME", err=True)
        return
    table = Table("topic", "brokers", "queues", "messages", "last message")
    for row in rows:
        last = _time(row["lastUpdateMs"])
        table.add_row(row["topic"], ", ".join(row["brokers"]), str(row["queues"]), f"{row['messages']:,}", last)
    show(table)


# ---- groups ----


@dataclass(slots=True)
class _GroupRow:
    name: str
    members: int
    kind: str
    model: str
    lag: int
    retries: int


async def _connections(admin: Admin, group: str) -> ConsumerConnection:
    """The consumers of a group, perhaps none."""
    try:
        return await admin.consumer_connections(group)
    except ServerRefused as error:
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        return ConsumerConnection()


def groups(
    everything: Annotated[bool, typer.Option("--all", help="Also system groups.")] = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: AsJson = False,
) -> None:
    """All consumer groups: their members, how they consume, and their lag."""

    async def work() -> list[_GroupRow]:
        async with Admin(namesrv) as admin:
            rows: list[_GroupRow] = []
            for name, config in (await admin.groups()).items():
                if not everything and is_system_group(name):
                    continue
                living = await _connections(admin, name)
                behind = sum(max(0, row.lag) for row in await admin.consume_stats(name))
                kind = {"CONSUME_PASSIVELY": "push", "CONSUME_ACTIVELY": "pull"}.get(living.consume_type or "", "")
                model = (living.message_model or "").lower()
                members = len(living.connection_set)
                rows.append(_GroupRow(name, members, kind, model, behind, config.retry_max_times))
            return rows

    rows = run(work(), namesrv)
    if as_json:
        names = ("group", "members", "kind", "model", "lag", "retries")
        values = ((r.name, r.members, r.kind, r.model, r.lag, r.retries) for r in rows)
        typer.echo(json.dumps([dict(zip(names, value, strict=True)) for value in values]))
        return
    if not rows:
        typer.echo("no groups yet: one comes to be when its first consumer starts", err=True)
        return
    table = Table("group", "members", "kind", "model", "lag", "retries")
    for row in rows:
        members = str(row.members) if row.members else "[red]0[/red]"
        table.add_row(row.name, members, row.kind, row.model, f"{row.lag:,}", str(row.retries))
    show(table)


def create_group(
    group: Group,
    retries: Annotated[int, typer.Option(min=-1, help="How often a message is retried.")] = 16,
    broadcast: Annotated[bool, typer.Option("--broadcast/--no-broadcast", help="Allow broadcast consumption.")] = True,
    disabled: Annotated[bool, typer.Option("--disabled", help="Refuse the group's pulls.")] = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
) -> None:
    """Create a consumer group, or change it, on all masters."""
    config = SubscriptionGroupConfig(
        group_name=group,
        retry_max_times=retries,
        consume_broadcast_enable=broadcast,
        consume_enable=not disabled,
    )

    async def work() -> None:
        async with Admin(namesrv) as admin:
            await admin.create_group(config)

    run(work(), namesrv)
    typer.echo(f"group {group} is ready")


def delete_group(
    group: Group,
    offsets: Annotated[bool, typer.Option("--offsets", help="Also delete its committed offsets.")] = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
) -> None:
    """Delete a consumer group's settings."""

    async def work() -> None:
        async with Admin(namesrv) as admin:
            await admin.delete_group(group, clean_offset=offsets)

    run(work(), namesrv)
    typer.echo(f"group {group} is deleted" + (" with its offsets" if offsets else "; its offsets stay"))


# ---- offsets ----


def lag(
    group: Group,
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="Only this topic.")] = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: AsJson = False,
) -> None:
    """The group's offset and lag in each queue."""

    async def work() -> list[QueueLag]:
        async with Admin(namesrv) as admin:
            return await admin.consume_stats(group, topic)

    rows = run(work(), namesrv)
    total = sum(max(0, row.lag) for row in rows)
    if as_json:
        queues = [
            {**_queue(row.queue), "maxOffset": row.broker_offset, "committed": row.consumer_offset, "lag": row.lag,
             "consumedUntilMs": row.last_ms}
            for row in rows
        ]  # fmt: skip
        typer.echo(json.dumps({"group": group, "lag": total, "queues": queues}))
        return
    if not rows:
        typer.echo(f"group {group} has committed nothing{f' in {topic}' if topic else ''}", err=True)
        return
    table = Table("topic", "broker", "queue", "max offset", "committed", "lag", "consumed until")
    for row in rows:
        queue, numbers = row.queue, (row.broker_offset, row.consumer_offset, row.lag)
        until = _time(row.last_ms)
        table.add_row(queue.topic, queue.broker_name, str(queue.queue_id), *(f"{n:,}" for n in numbers), until)
    show(table)
    typer.echo(f"{total:,} messages to consume")


def reset_offset(
    group: Group,
    topic: Topic,
    to: Annotated[str, typer.Option(help="first, last, an offset (with --queue), or a time: 2024-07-01T12:00 or ms.")],
    queue: Annotated[str | None, typer.Option("--queue", "-q", help="Only this queue: BROKER:NUMBER.")] = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: AsJson = False,
) -> None:
    """Set a group's offsets. Its consumers continue there with their next pull."""
    where = _broker_queue(topic, queue) if queue is not None else None
    if where is not None and not to.isdigit():
        raise typer.BadParameter(f"--to {to!r}: with --queue it is an offset")
    when = None if where is not None else _moment(to)

    async def work() -> dict[MessageQueue, int]:
        async with Admin(namesrv) as admin:
            if where is not None:
                return await admin.reset_queue_offset(group, where, int(to))
            assert when is not None
            return await admin.reset_offset(group, topic, when)

    offsets = run(work(), namesrv)
    if as_json:
        typer.echo(json.dumps([{**_queue(place), "offset": offset} for place, offset in sorted(offsets.items())]))
        return
    table = Table("broker", "queue", "goes on at")
    for place, offset in sorted(offsets.items()):
        table.add_row(place.broker_name, str(place.queue_id), f"{offset:,}")
    show(table)


def clone_offset(
    source: Annotated[str, typer.Argument(help="The group whose offsets are copied.")],
    target: Annotated[str, typer.Argument(help="The group that gets them.")],
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="Only in this topic.")] = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
) -> None:
    """Copy the offsets of one group to another."""

    async def work() -> list[QueueLag]:
        async with Admin(namesrv) as admin:
            await admin.clone_offset(source, target, topic)
            return await admin.consume_stats(target, topic)

    rows = run(work(), namesrv)
    typer.echo(f"{target} goes on where {source} is: {len(rows)} queues, {sum(r.lag for r in rows):,} messages behind")


# ---- clients ----


def connections(group: Group, namesrv: Namesrv = DEFAULT_NAMESRV, as_json: AsJson = False) -> None:
    """Consumers and producers of a group, and its subscriptions."""

    async def work() -> tuple[ConsumerConnection, list[Connection]]:
        async with Admin(namesrv) as admin:
            return await _connections(admin, group), await admin.producer_connections(group)

    consumers, producers = run(work(), namesrv)
    members = [("consumer", one) for one in consumers.connection_set] + [("producer", one) for one in producers]
    wanted = {topic: sub.sub_string for topic, sub in sorted(consumers.subscription_table.items())}
    if as_json:
        rows = [
            {"kind": kind, "clientId": one.client_id, "address": one.client_addr, "language": one.language,
             "version": one.version}
            for kind, one in members
        ]  # fmt: skip
        typer.echo(json.dumps({"group": group, "members": rows, "subscriptions": wanted}))
        return
    if not members:
        typer.echo(f"nobody is connected for group {group}", err=True)
        return
    table = Table("kind", "client", "address", "language", "version")
    for kind, one in members:
        table.add_row(kind, one.client_id, one.client_addr, one.language, _version(one.version))
    show(table)
    for topic, expression in wanted.items():
        typer.echo(f"subscribes to {topic}: {expression}")


def consumer(
    group: Group,
    client: Annotated[
        str | None, typer.Option("--client", help="A client id. Default: all consumers of the group.")
    ] = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: AsJson = False,
) -> None:
    """The state that a group's consumers report: queues, buffered messages, rates."""

    async def work() -> dict[str, ConsumerRunningInfo]:
        async with Admin(namesrv) as admin:
            ids = [client] if client else [c.client_id for c in (await _connections(admin, group)).connection_set]
            return {one: await admin.running_info(group, one) for one in ids}

    infos = run(work(), namesrv)
    if as_json:
        typer.echo(json.dumps({name: _running(info) for name, info in infos.items()}))
        return
    if not infos:
        typer.echo(f"nobody is connected for group {group}", err=True)
        return
    table = Table("client", "topic", "broker", "queue", "committed", "in memory", "locked", "last pull")
    for name, info in infos.items():
        for row in _running(info)["queues"]:
            locked = "yes" if row["locked"] else ""
            table.add_row(
                name, row["topic"], row["broker"], str(row["queue"]), f"{row['committed']:,}", f"{row['inMemory']:,}",
                locked, _time(row["lastPullMs"]),
            )  # fmt: skip
    show(table)


def _running(info: ConsumerRunningInfo) -> dict[str, Any]:
    queues: list[dict[str, Any]] = []
    for text, row in info.mq_table.items():
        queue = json.loads(text)
        queues.append(
            {
                "topic": queue["topic"],
                "broker": queue["brokerName"],
                "queue": queue["queueId"],
                "committed": row.get("commitOffset", 0),
                "inMemory": row.get("cachedMsgCount", 0),
                "locked": bool(row.get("locked")),
                "lastPullMs": row.get("lastPullTimestamp", 0),
            }
        )
    queues.sort(key=lambda row: (row["topic"], row["broker"], row["queue"]))
    return {"properties": info.properties, "queues": queues, "rates": info.status_table}


# ---- messages ----


def message(
    msg_id: Annotated[str, typer.Argument(help="The broker's message id (32 or 56 hex digits), or the client's.")],
    topic: Annotated[str, typer.Option("--topic", "-t", help="The topic; needed with the client's id.")] = "",
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: AsJson = False,
) -> None:
    """Show one message by its id, with its properties and body."""

    async def work() -> list[ReceivedMessage]:
        async with Admin(namesrv) as admin:
            if topic:
                found = await admin.query_messages(topic, msg_id)
                if found:
                    return found
            return [await admin.view_message(msg_id, topic)]

    _print(run(work(), namesrv), as_json, whole=True)


def messages(
    topic: Topic,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Messages with this key, from the index.")] = None,
    queue: Annotated[str | None, typer.Option("--queue", "-q", help="Messages of this queue: BROKER:NUMBER.")] = None,
    offset: Annotated[int, typer.Option("--offset", "-o", min=0, help="With --queue: the first offset.")] = 0,
    count: Annotated[int, typer.Option("--count", "-c", min=1, max=10_000, help="At most so many.")] = 32,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: AsJson = False,
) -> None:
    """Show messages of a topic by key, or by queue and offset. Exit code 4: there are none."""
    if (key is None) == (queue is None):
        raise typer.BadParameter("say --key, or --queue with --offset")
    where = _broker_queue(topic, queue) if queue is not None else None

    async def work() -> list[ReceivedMessage]:
        async with Admin(namesrv) as admin:
            if where is not None:
                return await admin.messages_at(where, offset, count)
            return await admin.query_messages(topic, key or "", count)

    _print(run(work(), namesrv), as_json, whole=False)


def _print(found: list[ReceivedMessage], as_json: bool, *, whole: bool) -> None:
    if as_json:
        typer.echo(json.dumps([received_as_json(one) for one in found], ensure_ascii=False))
    elif whole:
        for one in found:
            _print_whole(one)
    elif found:
        table = Table("broker", "queue", "offset", "stored", "tag", "keys", "id", "body")
        for one in found:
            place = one.queue
            table.add_row(
                place.broker_name, str(place.queue_id), str(one.queue_offset), _time(one.store_timestamp),
                one.tag or "", " ".join(one.keys), one.msg_id, _text(one)[:BODY_CHARS],
            )  # fmt: skip
        show(table)
    if not found:
        typer.echo("there is no such message", err=True)
        raise typer.Exit(NOT_FOUND)


def _print_whole(one: ReceivedMessage) -> None:
    table = Table(show_header=False)
    for name, value in received_as_json(one).items():
        if name == "properties":
            for key, text in value.items():
                table.add_row(f"property {key}", text)
        elif name.endswith("Ms"):
            table.add_row(name.removesuffix("Ms"), _time(value))
        elif value not in (None, [], ""):
            table.add_row(name, " ".join(value) if isinstance(value, list) else str(value))
    show(table)


# ---- words ----


def _text(one: ReceivedMessage) -> str:
    shown = received_as_json(one)
    return str(shown.get("body") or shown.get("bodyHex") or shown.get("bodyError") or "")


def _queue(queue: MessageQueue) -> dict[str, Any]:
    return {"topic": queue.topic, "broker": queue.broker_name, "queue": queue.queue_id}


def _time(timestamp_ms: int) -> str:
    """In the terminal's own time."""
    if timestamp_ms <= 0:
        return ""
    return datetime.fromtimestamp(timestamp_ms / 1000).strftime("%Y-%m-%d %H:%M:%S")


def _version(number: int) -> str:
    return "5.5.0" if number == VERSION else str(number)


def _moment(text: str) -> int:
    """A time in milliseconds; 0: the first message, -1: behind the last one."""
    if text in ("first", "last"):
        return 0 if text == "first" else -1
    if text.isdigit():
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"--to {text!r}: write first, last, a time like 2024-07-01T12:00, or milliseconds since 1970"
        ) from None
    return int(when.timestamp() * 1000) if when >= datetime(1970, 1, 2, tzinfo=when.tzinfo) else 0


def _broker_queue(topic: str, text: str) -> MessageQueue:
    broker, _, number = text.rpartition(":")
    if not broker or not number.isdigit():
        raise typer.BadParameter(f"--queue {text!r}: write BROKER:NUMBER, like broker-a:0")
    return MessageQueue(topic, broker, int(number))
