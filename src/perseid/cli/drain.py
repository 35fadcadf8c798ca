"""`perseid admin drain`: producers leave a broker, or all its shards, before it is stopped."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated

import typer

from perseid.cli.topics import DEFAULT_NAMESRV, AsJson, Namesrv, run
from perseid.client import Admin, ClientError
from perseid.wire.topic_flags import PERM_READ, PERM_READ_WRITE

PERMISSION, STORED = "brokerPermission", "putMessageTimesTotal"
QUIET_POLLS = 3
"""So many looks in a row without a new message, and no producer is left."""
POLL_S = 1.0
MAX_WAIT_S = 3600


def register(admin_app: typer.Typer) -> None:
    """Add the command to `perseid admin`."""
    admin_app.command()(drain)


def drain(
    broker: Annotated[str, typer.Argument(help="Its name; that of a broker in shards means all of them.")],
    undo: Annotated[bool, typer.Option("--undo", help="Let producers come back.")] = False,
    wait: Annotated[
        int, typer.Option(min=1, max=MAX_WAIT_S, help="Seconds, at most, until no producer sends any more.")
    ] = 120,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: AsJson = False,
) -> None:
    """Take a broker's write permission away, and wait until no message arrives any more. Consumers go on reading.

    Clients learn of it with their next route, after 30 s at most. Exit code 1: messages still arrive."""

    async def work() -> dict[str, str]:
        async with Admin(namesrv) as admin:
            masters = await admin.masters(brokers=[broker])
            for name, address in masters.items():
                permission = PERM_READ_WRITE if undo else PERM_READ
                await admin.update_broker_config(address, {PERMISSION: str(permission)})
                typer.echo(f"{name} ({address}): {PERMISSION}={permission}", err=True)
            if not undo:
                await _until_quiet(admin, masters, wait)
            return masters

    masters = run(work(), namesrv)
    if as_json:
        typer.echo(json.dumps({"drained": not undo, "brokers": masters}))
    elif undo:
        typer.echo(f"{', '.join(masters)}: open for producers again")
    else:
        typer.echo(f"{', '.join(masters)}: no producer sends any more; stop with SIGTERM, or: drain {broker} --undo")


async def _until_quiet(admin: Admin, masters: dict[str, str], wait: int) -> None:
    """Wait until no broker stores messages; ClientError when some still arrive after `wait` seconds."""
    before: dict[str, str] = {}
    quiet = 0
    for _ in range(wait):
        now = {name: (await admin.broker_runtime_info(at)).get(STORED, "") for name, at in masters.items()}
        quiet = quiet + 1 if now == before else 0
        if quiet >= QUIET_POLLS:
            return
        before = now
        await asyncio.sleep(POLL_S)
    raise ClientError(
        f"messages still arrive after {wait} s: wait longer (--wait), or find the producers: perseid admin connections"
    )
