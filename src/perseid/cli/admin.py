"""`perseid admin`: what operators want to know of brokers, Raft groups and controllers, and what they tell them.

Users, policies, certificates, groups and controllers have modules of their own.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from perseid.app import process
from perseid.base.errors import ConfigError, StoreError
from perseid.cli import acl, acl_import, audit, certs, controllers, drain, groups, roads, users
from perseid.cli.topics import DEFAULT_NAMESRV, AsJson, Namesrv, run, show
from perseid.client import Admin, SlaveStatus
from perseid.client.dledger import DLedgerClient, MemberStatus
from perseid.raft import terms

Peers = Annotated[str, typer.Option(help="All members, id-host:port;id-host:port;…, as in their configuration.")]
GroupName = Annotated[str, typer.Option(help="The group's name.")]

admin_app = typer.Typer(help="Administer topics, groups, messages, users and brokers.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands to the `perseid` command."""
    app.add_typer(admin_app, name="admin")
    groups.register(admin_app)
    controllers.register(admin_app)
    certs.register(admin_app)
    users.register(admin_app)
    acl.register(admin_app)
    acl_import.register(acl.acl_app)
    audit.register(admin_app)
    roads.register(admin_app)
    drain.register(admin_app)


@admin_app.command()
def ha_status(
    broker: Annotated[list[str] | None, typer.Option(help="Only the slaves of this broker; may be repeated.")] = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: AsJson = False,
) -> None:
    """The slaves of each master, and how far behind they are."""

    async def work() -> list[SlaveStatus]:
        async with Admin(namesrv) as admin:
            return await admin.ha_status(brokers=broker)

    rows = run(work(), namesrv)
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows]))
        return
    if not rows:
        typer.echo("no slave follows: is one running, with brokerRole=SLAVE and the same brokerName?", err=True)
        return
    table = Table("broker", "slave", "in sync", "bytes behind", "seconds behind", "bytes/s")
    for row in rows:
        behind = "" if row.lag_seconds is None else f"{row.lag_seconds:.1f}"
        state = "yes" if row.in_sync else "[red]no[/red]"
        table.add_row(row.broker_name, row.address, state, f"{row.lag_bytes:,}", behind, f"{row.bytes_per_second:,}")
    show(table)


@admin_app.command()
def raft_status(peers: Peers, group: GroupName = "default", as_json: AsJson = False) -> None:
    """The leader of a Raft group, and the log end of each member. Exit code 1: there is no leader."""

    async def work() -> list[MemberStatus]:
        async with DLedgerClient(peers, group=group) as client:
            return list((await client.status()).values())

    rows = run(work(), peers)
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows]))
    else:
        table = Table("id", "address", "role", "leader", "term", "entries", "durable", "committed")
        for row in rows:
            entries = "" if row.end is None else f"{row.begin:,} – {row.end:,}"
            numbers = ("" if number is None else f"{number:,}" for number in (row.durable, row.committed))
            role = "[red]unreachable[/red]" if row.role == "unreachable" else row.role or "?"
            term = "" if row.term is None else str(row.term)
            table.add_row(row.id, row.address, role, row.leader or "", term, entries, *numbers)
        show(table)
    if not any(row.leader == row.id for row in rows):
        typer.echo("nobody leads: are more than half of the members up, and do their `peers` agree?", err=True)
        raise typer.Exit(1)


@admin_app.command()
def raft_term(
    folder: Annotated[Path, typer.Argument(help="The folder of a stopped member: …/dledger-n0.")],
    term: Annotated[int | None, typer.Option("--set", help="Set this term, in which the member has not voted.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the term of a stopped member, and that of its last entry. If its group can't elect a leader any more, stop
    all members, and set one term in all of them, above the terms of all their last entries."""
    try:
        if not folder.expanduser().is_dir():
            raise StoreError("there is no such folder")
        disk = process.open_disk(folder.expanduser().absolute())
        if term is not None:
            terms.write(disk, "", term)
        found = terms.read(disk, "")
    except (StoreError, ConfigError, OSError) as error:
        typer.echo(f"{folder}: {error}", err=True)
        raise typer.Exit(1) from None
    if as_json:
        typer.echo(json.dumps({"term": found.term, "vote": found.vote, "last_entry_term": found.end_term}))
    else:
        last = "it has no entries" if found.end_term < 0 else f"its last entry is of term {found.end_term}"
        typer.echo(f"{folder}: term {found.term}, vote for {found.vote or 'nobody'}; {last}")


@admin_app.command()
def raft_transfer(
    peers: Peers,
    to: Annotated[str, typer.Option(help="The id of the new leader.")],
    group: GroupName = "default",
) -> None:
    """Make another member the leader. Its log must be nearly complete."""

    async def work() -> None:
        async with DLedgerClient(peers, group=group) as client:
            await client.transfer(to)

    run(work(), peers)
    typer.echo(f"{to} leads {group}")
