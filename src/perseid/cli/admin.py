"""`perseid admin ha-status`: what operators want to know of brokers."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from perseid.cli.topics import DEFAULT_NAMESRV, AsJson, Namesrv, run, show
from perseid.client import Admin, SlaveStatus

admin_app = typer.Typer(help="Look after brokers.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands to the `perseid` command."""
    app.add_typer(admin_app, name="admin")


@admin_app.command()
def ha_status(
    broker: Annotated[list[str] | None, typer.Option(help="Only this broker's; may be repeated.")] = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: AsJson = False,
) -> None:
    """Who follows each master, and how far behind."""

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
