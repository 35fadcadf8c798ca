"""`perseid admin acl`: what users may do."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.table import Table

from perseid.cli.access import (
    Answers,
    Where,
    at_brokers,
    brokers_of,
    end_with,
    one_at_brokers,
    report,
    sure,
    together,
    words,
)
from perseid.cli.flags import flattened
from perseid.cli.topics import show
from perseid.client import Admin
from perseid.client.access import policy
from perseid.security.policies import ALLOW, CUSTOM, DEFAULT, DENY, USER, Action
from perseid.wire.users import AclInfo, PolicyEntryInfo, PolicyInfo

acl_app = typer.Typer(help="Create, change, delete, show and explain the permissions of users.", no_args_is_help=True)

ACTIONS = {action.value.lower(): action.value for action in Action}
RESOURCE_TYPES = frozenset(("topic", "group", "cluster"))

Setting = Callable[[Admin, str, Sequence[PolicyInfo], str], Awaitable[None]]
"""A method of Admin's: policies of a user, at a broker."""
User = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]
IsDefault = Annotated[bool, typer.Option("--default", help="A default policy: it applies if no custom policy matches.")]


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """One policy, for all resources that are named."""

    resource: Annotated[
        list[str],
        typer.Option("--resource", "-r", help="Topic:orders, Group:pay* (a prefix), Cluster:*, or *. Repeatable, a,b."),
    ]
    action: Annotated[
        list[str],
        typer.Option("--action", "-a", help="Pub, Sub, Create, Update, Delete, Get, List, All. Repeatable, a,b."),
    ]
    deny: Annotated[
        bool, typer.Option("--deny", help="Deny it. Of two equally specific policies, the denying one wins.")
    ] = False
    source_ip: Annotated[
        list[str] | None,
        typer.Option("--source-ip", "-i", help="Only from this address or range (10.0.0.0/8). Repeatable, a,b."),
    ] = None
    is_default: IsDefault = False

    def policy(self) -> PolicyInfo:
        """As brokers take it."""
        return policy(
            checked_resources(words(self.resource)),
            _actions(words(self.action)),
            decision=DENY if self.deny else ALLOW,
            source_ips=words(self.source_ip),
            policy_type=DEFAULT if self.is_default else CUSTOM,
        )

    def told(self) -> str:
        """In words."""
        what = f"{'not ' if self.deny else ''}{', '.join(words(self.action))} on {', '.join(words(self.resource))}"
        return f"{what}{' from ' + ', '.join(words(self.source_ip)) if self.source_ip else ''}"


def checked_resources(texts: list[str]) -> list[str]:
    """typer.BadParameter for what is none: a broker takes some of it for something else than was meant."""
    for text in texts:
        kind, _, name = text.partition(":")
        if text != "*" and (kind.lower() not in RESOURCE_TYPES or not name):
            raise typer.BadParameter(f"-r {text!r}: write Topic:NAME, Group:NAME or Cluster:NAME; NAME* is a prefix")
        if "*" in name[:-1]:
            raise typer.BadParameter(f"-r {text!r}: a * stands at the end alone, as in Topic:pay*")
    return texts


def _actions(texts: list[str]) -> list[str]:
    """typer.BadParameter for what is none: a broker would leave it out without a word."""
    for text in texts:
        if text.lower() not in ACTIONS:
            raise typer.BadParameter(f"-a {text!r}: write some of {', '.join(ACTIONS.values())}")
    return [ACTIONS[text.lower()] for text in texts]


def register(admin: typer.Typer) -> None:
    """Add the commands to `perseid admin`."""
    admin.add_typer(acl_app, name="acl")


@acl_app.command()
@flattened
def create(*, user: User, options: PolicyOptions, where: Where) -> None:
    """Add policies to a user, which allow or deny something. A policy for the same resource is replaced."""

    _give(user, options, where, Admin.create_acl)


@acl_app.command()
@flattened
def update(*, user: User, options: PolicyOptions, where: Where) -> None:
    """Replace a user's policies for these resources. Policies for others stay."""

    _give(user, options, where, Admin.update_acl)


def _give(user: str, options: PolicyOptions, where: Where, ask: Setting) -> None:
    given = [options.policy()]

    async def work(admin: Admin, address: str) -> None:
        await ask(admin, user, given, address)

    report(where, at_brokers(where, work), f"{user}: {options.told()}", user=user)


@acl_app.command()
@flattened
def delete(
    *,
    user: User,
    resource: Annotated[
        str | None, typer.Option("--resource", "-r", help="Only the policies for this resource. Default: all.")
    ] = None,
    is_default: IsDefault = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    where: Where,
) -> None:
    """Delete a user's policies: for one resource, or all."""
    what = f"the policies of {user} for {resource}" if resource else f"all policies of {user}"
    sure(f"Delete {what}?", yes)

    async def work(admin: Admin, address: str) -> None:
        kind = (DEFAULT if is_default else CUSTOM) if resource else None
        await admin.delete_acl(user, address, resource=resource, policy_type=kind)

    report(where, at_brokers(where, work), f"deleted: {what}", user=user, resource=resource)


@acl_app.command()
@flattened
def get(*, user: User, where: Where) -> None:
    """Show a user's policies."""
    missing = f"{user} has no policies; only a Super user may do anything then\n  perseid admin acl create {user}"
    _show(where, one_at_brokers(where, lambda admin, address: admin.acl(user, address), missing))


@acl_app.command("list")
@flattened
def list_acls(
    *,
    user: Annotated[str | None, typer.Option("--user", help="Only of users with this text in their names.")] = None,
    resource: Annotated[
        str | None, typer.Option("--resource", "-r", help="Only for resources with this text in their names.")
    ] = None,
    where: Where,
) -> None:
    """List the policies of users."""

    async def work(admin: Admin, address: str) -> list[AclInfo]:
        return await admin.acls(address, subject_part=user, resource_part=resource)

    answers = at_brokers(where, work)
    if not where.as_json and not any(answers.values.values()) and not answers.failed:
        typer.echo("no policies: perseid admin acl create USER -r Topic:NAME -a Pub", err=True)
        return
    _show(where, answers)


def name_of(acl: AclInfo) -> str:
    """Whose policies these are."""
    return (acl.subject or "").removeprefix(USER)


def policy_table(rows: list[tuple[AclInfo, str]]) -> Table:
    """A line for each entry; the second of each pair is its last column."""
    table = Table("user", "policy", "resource", "actions", "decision", "from", "brokers")
    for acl, brokers in rows:
        for one in acl.policies or ():
            for entry in one.entries or ():
                table.add_row(name_of(acl), one.policy_type or CUSTOM, *_cells(entry), brokers)
    return table


def _cells(entry: PolicyEntryInfo) -> tuple[str, str, str, str]:
    decision = entry.decision or ""
    shown = f"[red]{decision}[/red]" if decision == DENY else decision
    sources = ", ".join(entry.source_ips or ()) or "everywhere"
    return entry.resource or "", ", ".join(entry.actions or ()), shown, sources


def acl_json(acl: AclInfo) -> dict[str, object]:
    """For scripts."""
    entries = [
        {
            "policy": one.policy_type or CUSTOM,
            "resource": entry.resource,
            "actions": entry.actions or [],
            "decision": entry.decision,
            "sourceIps": entry.source_ips or [],
        }
        for one in acl.policies or ()
        for entry in one.entries or ()
    ]
    return {"user": name_of(acl), "policies": entries}


def _show(where: Where, answers: Answers[list[AclInfo]]) -> None:
    rows = together(answers, lambda acl: acl.subject)
    if where.as_json:
        typer.echo(json.dumps([{**acl_json(acl), "brokers": brokers} for acl, brokers in rows]))
    elif rows:
        show(policy_table([(acl, brokers_of(brokers, answers)) for acl, brokers in rows]))
    end_with(answers.failed)
