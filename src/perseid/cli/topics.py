"""`perseid topic create|update|delete|list|route|stats`: topics of any RocketMQ-compatible cluster."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Collection, Coroutine
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from perseid.client import Admin, ClientError, NoRoute, QueueStats, TopicRoute
from perseid.client.blocking import new_event_loop
from perseid.client.errors import NoNameServer
from perseid.wire.mapping import LogicQueueMappingItem

if TYPE_CHECKING:
    from rich.table import Table  # imported where a table is printed: it takes longer than many a command

T = TypeVar("T")

topic_app = typer.Typer(help="Create, change, delete and show topics.", no_args_is_help=True)

Namesrv = Annotated[
    str, typer.Option("--namesrv", "-n", envvar="NAMESRV_ADDR", help="Name server(s), host:port;host:port.")
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on stdout, for scripts.")]
Topic = Annotated[str, typer.Argument(help="The topic's name.")]
DEFAULT_NAMESRV = "127.0.0.1:9876"
PIPE_COLUMNS = 240


def register(app: typer.Typer) -> None:
    """Add the commands to the `perseid` command."""
    app.add_typer(topic_app, name="topic")


def run(work: Coroutine[Any, Any, T], namesrv: str) -> T:
    """Run a command's work; a foreseen error becomes one line with the next step, and exit code 1."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        try:
            return runner.run(work)
        except ClientError as error:
            typer.echo(f"perseid: {error}{_next_step(error, namesrv)}", err=True)
            raise typer.Exit(1) from None


def _next_step(error: ClientError, namesrv: str) -> str:
    if isinstance(error, NoRoute):
        return f" (what there is: perseid topic list -n {namesrv})"
    if isinstance(error, NoNameServer):
        return " (-n host:port, or NAMESRV_ADDR)"
    return ""


def show(table: Table) -> None:
    """Print a table; into a file or pipe wide enough that nothing is folded."""
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else PIPE_COLUMNS).print(table)


async def names_of(admin: Admin, *, everything: bool) -> list[str]:
    """The names of all topics, or of the users' alone."""
    return await (admin.topic_list() if everything else admin.user_topics())


@topic_app.command()
def create(
    topic: Topic,
    queues: Annotated[int, typer.Option("--queues", "-q", min=1, help="Queues on each broker.")] = 8,
    cluster: Annotated[str | None, typer.Option(help="Only on this cluster's brokers.")] = None,
    broker: Annotated[list[str] | None, typer.Option(help="Only on this broker; may be repeated.")] = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: AsJson = False,
) -> None:
    """Create a topic."""

    async def work() -> TopicRoute:
        async with Admin(namesrv) as admin:
            await _check_missing(admin, topic, await admin.masters(cluster=cluster, brokers=broker))
            return await admin.create_topic(topic, queues, cluster=cluster, brokers=broker)

    _say_ready(topic, run(work(), namesrv), as_json=as_json)


async def _check_missing(admin: Admin, topic: str, masters: Collection[str]) -> None:
    """ClientError when one of these brokers has the topic: to create it again would change it."""
    try:
        route = await admin.topic_route(topic)
    except NoRoute:
        return
    there = [f"{row.broker_name} ({row.write_queues} queues)" for row in route.queues if row.broker_name in masters]
    if there:
        raise ClientError(
            f"topic {topic} is there already, on {', '.join(there)}; nothing was changed"
            f"\n  to change its number of queues: perseid topic update {topic} --queues N"
        )


@topic_app.command()
def update(
    topic: Topic,
    queues: Annotated[int, typer.Option("--queues", "-q", min=1, help="Queues on each broker that has the topic.")],
    cluster: Annotated[str | None, typer.Option(help="Only on this cluster's brokers.")] = None,
    broker: Annotated[list[str] | None, typer.Option(help="Only on this broker; may be repeated.")] = None,
    yes_hide: Annotated[
        bool,
        typer.Option(
            "--yes-hide", help="Reduce the number, although messages in the removed queues can't be read any more."
        ),
    ] = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: AsJson = False,
) -> None:
    """Change the number of a topic's queues. Reducing it needs --yes-hide."""

    async def work() -> TopicRoute:
        async with Admin(namesrv) as admin:
            hidden = await admin.hidden_by(topic, queues, cluster=cluster, brokers=broker)
            if hidden and not yes_hide:
                raise ClientError(f"{_what_is_hidden(topic, queues, hidden)}\n  if that is meant: --yes-hide")
            return await admin.update_topic(topic, queues, cluster=cluster, brokers=broker)

    _say_ready(topic, run(work(), namesrv), as_json=as_json)


def _what_is_hidden(topic: str, queues: int, hidden: list[QueueStats]) -> str:
    holding = {row.queue: row.max_offset - row.min_offset for row in hidden}
    count = sum(holding.values())
    by_broker: dict[str, list[str]] = {}
    for queue, messages in sorted(holding.items()):
        if messages or not count:
            by_broker.setdefault(queue.broker_name, []).append(str(queue.queue_id))
    where = "; ".join(f"{name}: {', '.join(ids)}" for name, ids in by_broker.items())
    return f"with {queues} queues, {count:,} messages of {topic} could not be read any more, in the queues {where}"


def _say_ready(topic: str, made: TopicRoute, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(_route_as_json(made)))
    else:
        on = ", ".join(f"{q.broker_name} ({q.write_queues} queues)" for q in made.queues)
        typer.echo(f"topic {topic} is ready on {on}")


@topic_app.command()
def delete(
    topic: Topic,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: AsJson = False,
) -> None:
    """Delete a topic with all its messages."""
    if not yes:
        if not sys.stdin.isatty():
            typer.echo("perseid: deleting a topic deletes its messages: say --yes", err=True)
            raise typer.Exit(2)
        typer.confirm(f"Delete {topic} with all its messages on all brokers?", abort=True)

    async def work() -> None:
        async with Admin(namesrv) as admin:
            await admin.topic_route(topic)
            await admin.delete_topic(topic)

    run(work(), namesrv)
    typer.echo(json.dumps({"deleted": topic}) if as_json else f"topic {topic} is deleted")


@topic_app.command("list")
def list_topics(
    everything: Annotated[bool, typer.Option("--all", "-a", help="Also system topics.")] = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: AsJson = False,
) -> None:
    """List topics."""

    async def work() -> list[str]:
        async with Admin(namesrv) as admin:
            return await names_of(admin, everything=everything)

    names = run(work(), namesrv)
    if as_json:
        typer.echo(json.dumps(names))
    elif names:
        typer.echo("\n".join(names))
    else:
        typer.echo("no topics yet: perseid topic create NAME", err=True)


@topic_app.command()
def route(topic: Topic, namesrv: Namesrv = DEFAULT_NAMESRV, as_json: AsJson = False) -> None:
    """Show the brokers and queues of a topic."""

    async def work() -> TopicRoute:
        async with Admin(namesrv) as admin:
            return await admin.topic_route(topic)

    async def logical() -> dict[int, list[LogicQueueMappingItem]] | None:
        async with Admin(namesrv) as admin:
            return await admin.static_topic(topic)

    found = run(work(), namesrv)
    static = run(logical(), namesrv) if found.leaders else None
    if as_json:
        typer.echo(json.dumps(_route_as_json(found, static)))
        return
    from rich.table import Table

    table = Table("broker", "cluster", "master", "replicas", "read queues", "write queues", "permission")
    for row in found.queues:
        addresses = dict(found.brokers.get(row.broker_name, {}))
        master = addresses.pop(0, "none")
        replicas = ", ".join(addresses.values()) or "none"
        perm = "".join(letter for bit, letter in ((4, "R"), (2, "W")) if row.perm & bit) or "none"
        cluster = found.clusters.get(row.broker_name, "")
        table.add_row(row.broker_name, cluster, master, replicas, str(row.read_queues), str(row.write_queues), perm)
    show(table)
    if found.leaders:
        table = Table("logical queue", "leader", "begins at, broker, its queue")
        for (_, queue_id), leader in sorted(found.leaders.items()):
            items = (static or {}).get(queue_id, [])
            parts = [f"{'?' if not one.decided else one.logic_offset}: {one.bname} {one.queue_id}" for one in items]
            table.add_row(str(queue_id), leader, ", ".join(parts))
        show(table)


@topic_app.command()
def stats(topic: Topic, namesrv: Namesrv = DEFAULT_NAMESRV, as_json: AsJson = False) -> None:
    """Show how many messages each queue of a topic holds."""

    async def work() -> list[dict[str, Any]]:
        async with Admin(namesrv) as admin:
            return [
                {
                    "broker": row.queue.broker_name,
                    "queue": row.queue.queue_id,
                    "minOffset": row.min_offset,
                    "maxOffset": row.max_offset,
                    "messages": row.max_offset - row.min_offset,
                    "lastUpdateMs": row.last_update_ms,
                }
                for row in await admin.topic_stats(topic)
            ]

    rows = run(work(), namesrv)
    total = sum(row["messages"] for row in rows)
    if as_json:
        typer.echo(json.dumps({"topic": topic, "messages": total, "queues": rows}))
        return
    from rich.table import Table

    table = Table("broker", "queue", "min offset", "max offset", "messages")
    for row in rows:
        table.add_row(*(str(row[name]) for name in ("broker", "queue", "minOffset", "maxOffset", "messages")))
    show(table)
    typer.echo(f"{total:,} messages")


def _route_as_json(found: TopicRoute, static: dict[int, list[LogicQueueMappingItem]] | None = None) -> dict[str, Any]:
    logical = [
        {
            "queue": queue_id,
            "leader": leader,
            "items": [
                {"broker": one.bname, "queue": one.queue_id, "logicOffset": one.logic_offset}
                for one in (static or {}).get(queue_id, [])
            ],
        }
        for (_, queue_id), leader in sorted(found.leaders.items())
    ]
    return {
        **({"logicalQueues": logical} if logical else {}),
        "topic": found.topic,
        "brokers": {name: {str(i): address for i, address in ids.items()} for name, ids in found.brokers.items()},
        "queues": [
            {"broker": q.broker_name, "readQueues": q.read_queues, "writeQueues": q.write_queues, "perm": q.perm}
            for q in found.queues
        ],
    }
