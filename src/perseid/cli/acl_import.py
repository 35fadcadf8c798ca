"""`perseid admin acl import` and `explain`: ACL 1.0's files as users and policies, and why something is permitted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from perseid.base import extras
from perseid.base.errors import PerseidError
from perseid.cli.access import Where, at_brokers, end_with, refuse
from perseid.cli.acl import ACTIONS, User, acl_json, checked_resources, policy_table
from perseid.cli.flags import flattened
from perseid.cli.topics import show
from perseid.client import Admin, ClientError
from perseid.client.access import subject_of
from perseid.security.plain_acl import Account, Converted, convert
from perseid.security.policies import Acl, Action, Asked, ResourceType, address_of
from perseid.security.users import SUPER
from perseid.wire.users import AclInfo

MAX_FILE_BYTES = 4 << 20
MAX_FILES = 1000


def register(acl: typer.Typer) -> None:
    """Add the commands to `perseid admin acl`."""
    acl.command("import")(import_acl)
    acl.command()(explain)


@flattened
def import_acl(
    *,
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="plain_acl.yml, or a folder of such files: conf/acl.")
    ],
    apply: Annotated[
        bool, typer.Option("--apply", help="Create them. Default: only show what would be created.")
    ] = False,
    where: Where,
) -> None:
    """Create users and policies from the files of ACL 1.0. Existing users stay as they are."""
    found = convert([(str(file), _parsed(file)) for path in paths for file in _files(path)])
    if not found.accounts:
        refuse("no account is in these files" + "".join(f"\n  {note}" for note in found.notes))
    if not apply:
        _show(found, as_json=where.as_json)
        return

    async def work(admin: Admin, address: str) -> dict[str, str]:
        return {one.username: await _create(admin, address, one) for one in found.accounts}

    answers = at_brokers(where, work)
    if where.as_json:
        done = {address: dict(rows) for address, rows in answers.values.items()}
        typer.echo(json.dumps({"done": done, "failed": dict(answers.failed), "notes": found.notes}))
    else:
        for address, rows in answers.values.items():
            typer.echo(f"{address}: " + ", ".join(f"{user} {what}" for user, what in rows.items()))
        for note in found.notes:
            typer.echo(note, err=True)
    end_with(answers.failed)


async def _create(admin: Admin, address: str, account: Account) -> str:
    """As a whole or not at all: a user without its policies would count as done the next time."""
    if await admin.user(account.username, address) is not None:
        return "was there"
    await admin.create_user(account.username, account.secret, address, user_type=account.user_type)
    if account.policies:
        try:
            await admin.create_acl(account.username, account.policies, address)
        except ClientError:
            await admin.delete_user(account.username, address)
            raise
    return "created"


def _show(found: Converted, *, as_json: bool) -> None:
    acls = [AclInfo(subject_of(one.username), list(one.policies)) for one in found.accounts]
    if as_json:
        users = [{**acl_json(acl), "type": one.user_type} for acl, one in zip(acls, found.accounts, strict=True)]
        typer.echo(json.dumps({"users": users, "notes": found.notes}))
        return
    table = Table("user", "type", "password")
    for one in found.accounts:
        table.add_row(one.username, one.user_type, "set")
    show(table)
    show(policy_table([(acl, "") for acl in acls]))
    for note in found.notes:
        typer.echo(note, err=True)
    typer.echo("nothing was created yet: say --apply", err=True)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*") if file.suffix in (".yml", ".yaml") and file.name != "tools.yml")
    if not found or len(found) > MAX_FILES:
        refuse(f"{path}: {len(found)} files are named *.yml or *.yaml in it; 1 to {MAX_FILES} are wanted")
    return found


def _parsed(file: Path) -> object:
    try:
        import yaml
    except ImportError as error:
        raise extras.missing("perseid admin acl import", error) from None

    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            refuse(f"{file}: an ACL file has {MAX_FILE_BYTES >> 20} MiB at the most: is it one?")
        found: object = yaml.safe_load(file.read_bytes())
        return found
    except OSError as error:
        refuse(f"{file}: {error.strerror}")
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        refuse(f"{file}: it is no YAML{f', line {mark.line + 1}' if mark else ''}: correct it")


@flattened
def explain(
    *,
    user: User,
    resource: Annotated[str, typer.Option("--resource", "-r", help="Topic:NAME, Group:NAME or Cluster:NAME.")],
    action: Annotated[str, typer.Option("--action", "-a", help="Pub, Sub, Create, Update, Delete, Get or List.")],
    source_ip: Annotated[str, typer.Option("--source-ip", "-i", help="The address of the client.")] = "127.0.0.1",
    where: Where,
) -> None:
    """Say which policy decides whether a user may do something, at each broker; exit code 1 if it may not."""
    kind, _, name = checked_resources([resource])[0].partition(":")
    wanted = ACTIONS.get(action.lower())
    if "*" in resource or wanted in (None, Action.ALL.value):
        raise typer.BadParameter("one resource by its name, and one action: -r Topic:orders -a Pub")
    if (address := address_of(f"{source_ip}:0")) is None:
        raise typer.BadParameter(f"-i {source_ip!r}: write an address: 10.1.2.3")
    asked = Asked(ResourceType(kind.capitalize()), name, (Action(wanted),))

    async def work(admin: Admin, at: str) -> tuple[bool, str]:
        known = await admin.user(user, at)
        if known is None:
            return False, "there is no such user"
        if known.user_status == "disable":
            return False, "the user is disabled"
        if known.user_type == SUPER:
            return True, "a Super user may do everything"
        told = await admin.acl(user, at)
        try:
            entry = Acl.of(told).decisive(asked, address) if told is not None and told.policies else None
        except PerseidError as error:
            raise ClientError(f"{at}: its policies can't be read: {error}") from None
        if entry is None:
            return False, "no policy matches"
        info = entry.told()
        sources = f" from {', '.join(info.source_ips)}" if info.source_ips else ""
        return entry.allows, f"{info.decision} {', '.join(info.actions or ())} on {info.resource}{sources}"

    answers = at_brokers(where, work)
    if where.as_json:
        rows = [{"broker": at, "allowed": may, "because": why} for at, (may, why) in answers.values.items()]
        typer.echo(json.dumps(rows))
    else:
        for at, (may, why) in answers.values.items():
            typer.echo(f"{at}: {user} {'may' if may else 'may not'} {wanted} {resource}: {why}")
    end_with(answers.failed)
    if not all(may for may, _ in answers.values.values()):
        raise typer.Exit(1)
