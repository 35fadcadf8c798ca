"""`perseid admin users`: who may sign requests. Passwords are read from files, stdin or a prompt, and never printed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from perseid.cli.access import (
    Answers,
    Where,
    at_brokers,
    at_terminal,
    brokers_of,
    end_with,
    one_at_brokers,
    refuse,
    report,
    sure,
    together,
)
from perseid.cli.flags import flattened
from perseid.cli.topics import show
from perseid.client import Admin
from perseid.security.users import DISABLED, ENABLED, MAX_SECRET_CHARS, NORMAL, SUPER
from perseid.wire.users import UserInfo

users_app = typer.Typer(help="Create, change, delete and show users.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The user's name, which clients use as access key.")]
PasswordFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="A file whose first line is the password; - is stdin. Default: you are asked for it."
    ),
]


def register(admin: typer.Typer) -> None:
    """Add the commands to `perseid admin`."""
    admin.add_typer(users_app, name="users")


@users_app.command()
@flattened
def create(
    *,
    name: Name,
    is_super: Annotated[
        bool, typer.Option("--super", help="A Super user: it may do everything, whatever policies say.")
    ] = False,
    password_file: PasswordFile = None,
    where: Where,
) -> None:
    """Create a user. Unless it is a Super user, it has no permissions before policies (perseid admin acl create)."""
    password = _password(password_file)
    kind = SUPER if is_super else NORMAL

    async def work(admin: Admin, address: str) -> None:
        await admin.create_user(name, password, address, user_type=kind)

    report(where, at_brokers(where, work), f"user {name} ({kind}) is created", user=name, type=kind)


@users_app.command()
@flattened
def update(
    *,
    name: Name,
    new_password: Annotated[
        bool, typer.Option("--password", help="Change the password: you are asked for it.")
    ] = False,
    password_file: PasswordFile = None,
    is_super: Annotated[bool | None, typer.Option("--super/--normal", help="Its type.")] = None,
    enabled: Annotated[
        bool | None, typer.Option("--enable/--disable", help="Whether the user's requests are accepted.")
    ] = None,
    where: Where,
) -> None:
    """Change a user's password, type or status. The rest stays as it is."""
    password = _password(password_file) if new_password or password_file is not None else None
    kind = None if is_super is None else SUPER if is_super else NORMAL
    status = None if enabled is None else ENABLED if enabled else DISABLED
    if password is None and kind is None and status is None:
        raise typer.BadParameter("say what changes: --password(-file), --super, --normal, --enable or --disable")

    async def work(admin: Admin, address: str) -> None:
        await admin.update_user(name, address, password=password, user_type=kind, user_status=status)

    changed = [text for text in (kind, status, "a new password" if password is not None else None) if text]
    report(where, at_brokers(where, work), f"user {name} is changed ({', '.join(changed)})", user=name, changed=changed)


@users_app.command()
@flattened
def delete(
    *,
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    where: Where,
) -> None:
    """Delete a user, with all its policies."""
    sure(f"Delete user {name} with all its policies?", yes)

    async def work(admin: Admin, address: str) -> bool:
        there = await admin.user(name, address) is not None
        await admin.delete_user(name, address)
        return there

    answers = at_brokers(where, work)
    if answers.values and not any(answers.values.values()) and not answers.failed:
        refuse(_nobody(name))
    report(where, answers, f"user {name} is deleted", user=name)


@users_app.command()
@flattened
def get(*, name: Name, where: Where) -> None:
    """Show a user. Exit code 1: no broker has it."""
    _show(where, one_at_brokers(where, lambda admin, address: admin.user(name, address), _nobody(name)))


@users_app.command("list")
@flattened
def list_users(
    *,
    name_part: Annotated[str | None, typer.Option("--filter", help="Only users with this text in their names.")] = None,
    where: Where,
) -> None:
    """List users. A user of several brokers is listed once."""

    async def work(admin: Admin, address: str) -> list[UserInfo]:
        return await admin.users(address, name_part=name_part)

    answers = at_brokers(where, work)
    if not where.as_json and not any(answers.values.values()) and not answers.failed:
        typer.echo("no users: perseid admin users create NAME", err=True)
        return
    _show(where, answers)


def _nobody(name: str) -> str:
    return f"there is no user called {name}\n  who is there: perseid admin users list"


def _show(where: Where, answers: Answers[list[UserInfo]]) -> None:
    """Whether a broker tells the password (RocketMQ does, ours does not), and where it is another one; never which."""
    rows = together(answers, lambda user: user.username)
    if where.as_json:
        told = [
            {
                "user": user.username,
                "type": user.user_type,
                "status": user.user_status,
                "passwordTold": bool(user.password),
                "brokers": brokers,
            }
            for user, brokers in rows
        ]
        typer.echo(json.dumps(told))
    elif rows:
        table = Table("user", "type", "status", "password", "brokers")
        for user, brokers in rows:
            status = user.user_status or ""
            state = f"[red]{status}[/red]" if status == DISABLED else status
            secret = "told" if user.password else "not told"
            table.add_row(user.username, user.user_type, state, secret, brokers_of(brokers, answers))
        show(table)
        names = [str(user.username) for user, _ in rows]
        for name in sorted({name for name in names if names.count(name) > 1}):
            typer.echo(f"{name} is not the same everywhere (type, status or password): users update {name}", err=True)
    end_with(answers.failed)


def _password(file: str | None) -> str:
    """Read from a file, stdin or a prompt; typer.BadParameter when there is none."""
    if file is None:
        if not at_terminal():
            raise typer.BadParameter("the password: --password-file FILE, or --password-file - for stdin")
        found = str(typer.prompt("password", hide_input=True, confirmation_prompt=True))
    elif file == "-":
        found = sys.stdin.readline(MAX_SECRET_CHARS + 2)
    else:
        try:
            with Path(file).expanduser().open() as source:
                found = source.readline(MAX_SECRET_CHARS + 2)
        except (OSError, UnicodeDecodeError) as error:
            raise typer.BadParameter(f"--password-file {file}: {getattr(error, 'strerror', 'it is no text')}") from None
    found = found.rstrip("\r\n")
    if not found.strip() or len(found) > MAX_SECRET_CHARS:
        raise typer.BadParameter(f"a password is one line of 1 to {MAX_SECRET_CHARS} characters")
    return found
