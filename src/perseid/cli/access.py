"""What the commands for users and for policies share: which brokers they are for, and what to do about a refusal.

Each broker keeps users and policies of its own, slaves too, so a command asks all of them, as mqadmin's do, and tells
where it failed: the others have been changed by then, and the same command can be given again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Generic, NoReturn, TypeVar

import typer

from perseid.cli.topics import DEFAULT_NAMESRV, Namesrv, run
from perseid.client import Admin, ClientError, ServerRefused
from perseid.wire.codes import ResponseCode

T = TypeVar("T")

_WHO = "who you are: perseid --credentials FILE admin …, or PERSEID_CREDENTIALS=FILE; a Super user may do everything"
_NEXT = (
    ("username cannot be null", _WHO),
    ("is not found", _WHO),
    ("is disabled", _WHO),
    ("check signature failed", "the key is not that user's here: look into the file that --credentials names"),
    ("has no permission", _WHO),
    ("only be create by super user", _WHO),
    ("only be update by super user", _WHO),
    ("user is existed", "it is there already: perseid admin users update NAME"),
    ("user is not exist", "who is there: perseid admin users list"),
    ("subject is not exist", "there is no such user: perseid admin users list"),
    ("The subject of", "there is no such user: perseid admin users create NAME"),
    ("acl is not exist", "it has no policies: perseid admin acl list"),
    ("resource is null", "write -r Topic:NAME, Group:NAME or Cluster:NAME; NAME* is a prefix, * is all"),
    ("actions is empty", "write -a with some of Pub, Sub, Create, Update, Delete, Get, List, or All"),
    ("actions can not be Any", "write -a All"),
    ("source ip is", "write -i 10.1.2.3, or a range: -i 10.0.0.0/8; without -i: from everywhere"),
)
"""Parts of brokers' remarks, and what to do."""


@dataclass(frozen=True, slots=True)
class Where:
    """Which brokers a command is for, and how its answer is printed."""

    broker: Annotated[
        list[str] | None,
        typer.Option(
            "--broker",
            "-b",
            help="Only this broker, host:port; may be repeated. Default: all brokers, including slaves.",
        ),
    ] = None
    cluster: Annotated[str | None, typer.Option("--cluster", "-c", help="Only this cluster's brokers.")] = None
    namesrv: Namesrv = DEFAULT_NAMESRV
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout, for scripts.")] = False


@dataclass(frozen=True, slots=True)
class Answers(Generic[T]):
    """What the brokers answered, and why some did not; by their addresses."""

    values: Mapping[str, T]
    failed: Mapping[str, str]


def at_brokers(where: Where, work: Callable[[Admin, str], Awaitable[T]]) -> Answers[T]:
    """The work done at each of the brokers, one after the other."""

    async def everywhere() -> Answers[T]:
        values: dict[str, T] = {}
        failed: dict[str, str] = {}
        async with Admin(where.namesrv) as admin:
            for address in where.broker or await _addresses(admin, where.cluster):
                try:
                    values[address] = await work(admin, address)
                except ClientError as error:
                    failed[address] = _told(error)
        return Answers(values, failed)

    return run(everywhere(), where.namesrv)


def one_at_brokers(where: Where, ask: Callable[[Admin, str], Awaitable[T | None]], missing: str) -> Answers[list[T]]:
    """What each of the brokers has of one thing: a list of it, or of nothing. Refused with `missing` when none has it,
    and each could be asked."""

    async def work(admin: Admin, address: str) -> list[T]:
        found = await ask(admin, address)
        return [] if found is None else [found]

    answers = at_brokers(where, work)
    if not any(answers.values.values()) and not answers.failed:
        refuse(missing)
    return answers


async def _addresses(admin: Admin, cluster: str | None) -> list[str]:
    info = await admin.cluster_info()
    if cluster is not None and cluster not in info.clusters:
        raise ClientError(f"no cluster called {cluster}; known are: {', '.join(info.clusters) or 'none'}")
    names = info.brokers if cluster is None else info.clusters[cluster]
    found = [address for name in names for address in info.brokers.get(name, {}).values()]
    if not found:
        raise ClientError("the name servers know no broker: name one with --broker host:port")
    return found


def _told(error: ClientError) -> str:
    if not isinstance(error, ServerRefused):
        return str(error)
    if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return f"{error}\n  it knows no users: RocketMQ has them from 5.3.0 on"
    steps = [step for part, step in _NEXT if part in error.remark]
    return "\n  ".join([str(error), *steps[:1]])


def report(where: Where, answers: Answers[T], what: str, **fields: object) -> None:
    """Say that it is done, and where it is not; exit code 1 when it failed anywhere."""
    done = list(answers.values)
    if where.as_json:
        typer.echo(json.dumps({**fields, "done": done, "failed": dict(answers.failed)}))
    elif done:
        typer.echo(f"{what} at {', '.join(done)}")
    end_with(answers.failed)


def end_with(failed: Mapping[str, str]) -> None:
    """A line for each broker that failed, and exit code 1 if there is any."""
    for text in failed.values():
        typer.echo(f"perseid: {text}", err=True)
    if failed:
        raise typer.Exit(1)


def together(answers: Answers[list[T]], key: Callable[[T], object]) -> list[tuple[T, list[str]]]:
    """What brokers told, the same of several once, with those who told it; in the order of `key`."""
    found: list[tuple[T, list[str]]] = []
    for address, rows in answers.values.items():
        for row in rows:
            for known, brokers in found:
                if known == row:
                    brokers.append(address)
                    break
            else:
                found.append((row, [address]))
    return sorted(found, key=lambda pair: str(key(pair[0])))


def brokers_of(brokers: list[str], answers: Answers[T]) -> str:
    """For a column: `all`, or which."""
    return "all" if len(brokers) == len(answers.values) else ", ".join(brokers)


def words(texts: Iterable[str] | None) -> list[str]:
    """`Pub,Sub` and repeated options alike."""
    return [word.strip() for text in texts or () for word in text.split(",") if word.strip()]


def refuse(text: str) -> NoReturn:
    """One line on stderr, and exit code 1."""
    typer.echo(f"perseid: {text}", err=True)
    raise typer.Exit(1)


def at_terminal() -> bool:
    """Is there somebody to ask?"""
    return sys.stdin.isatty()


def sure(question: str, yes: bool) -> None:
    """Ask before something goes; a script has to say --yes."""
    if yes:
        return
    if not at_terminal():
        typer.echo(f"perseid: {question} If that is meant: --yes", err=True)
        raise typer.Exit(2)
    typer.confirm(question, abort=True)
