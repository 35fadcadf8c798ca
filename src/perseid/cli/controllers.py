"""`perseid admin`'s commands for controllers and the broker sets under them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict
from typing import Annotated, Any, TypeVar

import typer
from rich.table import Table

from perseid.cli.topics import DEFAULT_NAMESRV, AsJson, Namesrv, run, show
from perseid.client import Admin, BrokerEpochs, ClientError, ServerRefused
from perseid.client.controller import ControllerClient, ControllerStatus, Elected, ReplicaSet
from perseid.client.errors import NoController
from perseid.wire.codes import ResponseCode

T = TypeVar("T")
DEFAULT_CONTROLLERS = "127.0.0.1:9878"
Controllers = Annotated[
    str,
    typer.Option("--controllers", "-a", envvar="CONTROLLER_ADDR", help="Some or all controllers, host:port;host:port."),
]
Brokers = Annotated[
    list[str] | None,
    typer.Option(
        "--broker", "-b", help="Only this broker set; may be repeated. Default: all that the name server knows."
    ),
]
BrokerName = Annotated[str, typer.Option("--broker", "-b", help="The broker set's name.")]
Cluster = Annotated[str | None, typer.Option("--cluster", "-c", help="Only this cluster's broker sets.")]

_NEXT = {
    ResponseCode.CONTROLLER_ELECT_MASTER_FAILED: "it has to be alive and in sync: perseid admin sync-state-set",
    ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED: "which broker sets there are: perseid admin sync-state-set",
    ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA: (
        "replicas have to be registered, named by --id, and dead (stop them first, or say --living): "
        "perseid admin sync-state-set"
    ),
    ResponseCode.NO_PERMISSION: "set it in the controller's file, and start it again",
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: "is this the address of a controller, or of a broker under controllers?",
}


def register(admin: typer.Typer) -> None:
    """Add the commands to `perseid admin`."""
    for command in (
        sync_state_set, broker_epoch, elect_master, controller_metadata, controller_config,
        update_controller_config, clean_broker_metadata,
    ):  # fmt: skip
        admin.command()(command)


def _run(work: Callable[[], Coroutine[Any, Any, T]], namesrv: str, addresses: str) -> T:
    """As `run`, with the next step where a controller refused."""

    async def explained() -> T:
        try:
            return await work()
        except NoController as error:
            step = f"start one (perseid controller -c FILE), or name others: -a host:port (not {addresses})"
            raise ClientError(f"{error}\n  {step}") from None
        except ServerRefused as error:
            if error.code not in _NEXT:
                raise
            raise ClientError(f"{error}\n  {_NEXT[ResponseCode(error.code)]}") from None

    return run(explained(), namesrv)


async def _names(namesrv: str, brokers: Sequence[str] | None, cluster: str | None) -> list[str]:
    if brokers:
        return list(brokers)
    async with Admin(namesrv) as admin:
        info = await admin.cluster_info()
    if cluster is not None and cluster not in info.clusters:
        raise ClientError(f"no cluster called {cluster}; known are: {', '.join(info.clusters) or 'none'}")
    names = info.clusters[cluster] if cluster is not None else list(info.brokers)
    if not names:
        raise ClientError("the name server knows no broker: name one with --broker")
    return names


def sync_state_set(
    broker: Brokers = None,
    cluster: Cluster = None,
    controllers: Controllers = DEFAULT_CONTROLLERS,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: AsJson = False,
) -> None:
    """Master, in-sync and live replicas of each broker set, as the controllers see them (getSyncStateSet).

    Exit code 1: a set has no live master.
    """

    async def work() -> tuple[list[str], list[ReplicaSet]]:
        names = await _names(namesrv, broker, cluster)
        async with ControllerClient(controllers) as client:
            return names, await client.replica_sets(names)

    names, found = _run(work, namesrv, controllers)
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found]))
    else:
        table = Table("broker", "id", "address", "role", "in sync", "alive", "master epoch", "set epoch")
        for one in found:
            for replica in one.replicas:
                role = "[bold]master[/]" if replica.id == one.master_id else "slave"
                states = ("yes" if state else "[red]no[/red]" for state in (replica.in_sync, replica.alive))
                epochs = (str(one.master_epoch), str(one.sync_epoch))
                table.add_row(one.broker_name, str(replica.id), replica.address, role, *states, *epochs)
        if found:
            show(table)
    for name in names:
        if name not in {one.broker_name for one in found}:
            typer.echo(f"{name}: unknown to the controllers: does it run with enableControllerMode=true?", err=True)
    headless = [one.broker_name for one in found if not one.master_alive]
    for name in headless:
        typer.echo(f"{name}: no master is alive: start a replica that is in sync", err=True)
    if headless or len(found) < len(names):
        raise typer.Exit(1)


def broker_epoch(
    broker: Brokers = None,
    cluster: Cluster = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: AsJson = False,
) -> None:
    """The epochs of each replica's log, with their offsets (getBrokerEpoch). Replicas that differ are marked."""

    async def work() -> tuple[list[BrokerEpochs], list[str]]:
        names = await _names(namesrv, broker, cluster)
        async with Admin(namesrv) as admin:
            info = await admin.cluster_info()
            found: list[BrokerEpochs] = []
            silent: list[str] = []
            for name in names:
                for address in info.brokers.get(name, {}).values():
                    try:
                        found.append(await admin.broker_epochs(address))
                    except ServerRefused:
                        raise
                    except ClientError as error:
                        silent.append(f"{name}: {error}")
            if not found and not silent:
                known = ", ".join(info.brokers) or "none"
                raise ClientError(f"no broker called {', '.join(names)}; known are: {known}")
        return found, silent

    found, silent = _run(work, namesrv, "host:port")
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found]))
    elif found:
        table = Table("broker", "address", "role", "epoch", "from", "to", "agrees")
        begins = {(one.broker_name, epoch): begin for one in found if one.broker_id == 0 for epoch, begin in one.epochs}
        for one in found:
            ends = [begin for _, begin in one.epochs[1:]] + [one.max_offset]
            for (epoch, begin), end in zip(one.epochs, ends, strict=True):
                other = begins.get((one.broker_name, epoch))
                agrees = "" if other is None else "yes" if other == begin else f"[red]master's: {other:,}[/red]"
                role = "[bold]master[/]" if one.broker_id == 0 else "slave"
                table.add_row(one.broker_name, one.address, role, str(epoch), f"{begin:,}", f"{end:,}", agrees)
        show(table)
    for line in silent:
        typer.echo(line, err=True)


def elect_master(
    broker: BrokerName,
    to: Annotated[int, typer.Option("--to", min=1, help="The broker id of the new master.")],
    cluster: Annotated[str, typer.Option("--cluster", "-c", help="The cluster's name.")] = "",
    controllers: Controllers = DEFAULT_CONTROLLERS,
    as_json: AsJson = False,
) -> None:
    """Make another replica the master (electMaster). It must be alive and in sync."""

    async def work() -> Elected:
        async with ControllerClient(controllers) as client:
            return await client.elect_master(broker, to, cluster=cluster)

    found = _run(work, controllers, controllers)
    if as_json:
        typer.echo(json.dumps(asdict(found)))
    else:
        what = "is master now" if found.changed else "was master already"
        typer.echo(f"broker {found.master_id} at {found.master_address} {what} of {broker}, epoch {found.master_epoch}")


def controller_metadata(controllers: Controllers = DEFAULT_CONTROLLERS, as_json: AsJson = False) -> None:
    """All controllers, and which one is active (getControllerMetaData). Exit code 1: none is active."""

    async def work() -> list[ControllerStatus]:
        async with ControllerClient(controllers) as client:
            rows = await client.status()
        told = {peer.partition(":")[2] for row in rows for peer in row.peers}
        others = sorted(told - {row.address for row in rows})
        if others:
            async with ControllerClient(others) as client:
                rows += await client.status()
        return rows

    rows = _run(work, controllers, controllers)
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows]))
    else:
        ids = {peer.partition(":")[2]: peer.partition(":")[0] for row in rows for peer in row.peers}
        table = Table("id", "address", "state", "group", "names as leader")
        for row in rows:
            state = "[bold]active[/]" if row.active else "stands by" if row.reachable else "[red]unreachable[/red]"
            table.add_row(ids.get(row.address, ""), row.address, state, row.group, row.leader_id)
        show(table)
    if not any(row.active for row in rows):
        typer.echo("no controller is active: are more than half of them up, and do their peers agree?", err=True)
        raise typer.Exit(1)


def controller_config(
    key: Annotated[list[str] | None, typer.Argument(help="Only these settings.")] = None,
    controllers: Controllers = DEFAULT_CONTROLLERS,
    as_json: AsJson = False,
) -> None:
    """The settings of each named controller (getControllerConfig)."""

    async def work() -> dict[str, dict[str, str]]:
        async with ControllerClient(controllers) as client:
            return {address: await client.config(address) for address in client.addresses}

    found = _run(work, controllers, controllers)
    if key:
        found = {address: {k: v for k, v in sorted(rows.items()) if k in key} for address, rows in found.items()}
        unknown = sorted(set(key) - {name for rows in found.values() for name in rows})
        if unknown:
            typer.echo(f"perseid: no such setting: {', '.join(unknown)}", err=True)
            raise typer.Exit(1)
    if as_json:
        typer.echo(json.dumps(found))
        return
    table = Table("setting", *found)
    for name in sorted({name for rows in found.values() for name in rows}):
        table.add_row(name, *(rows.get(name, "") for rows in found.values()))
    show(table)


def update_controller_config(
    settings: Annotated[list[str], typer.Argument(help="name=value, as in the controller's configuration file.")],
    controllers: Controllers = DEFAULT_CONTROLLERS,
    as_json: AsJson = False,
) -> None:
    """Change settings of each named controller while it runs (updateControllerConfig)."""
    wanted: dict[str, str] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"{text!r}: write name=value")
        wanted[name.strip()] = value.strip()

    async def work() -> list[str]:
        async with ControllerClient(controllers) as client:
            for address in client.addresses:
                await client.update_config(address, wanted)
            return client.addresses

    changed = _run(work, controllers, controllers)
    told = ", ".join(f"{name}={value}" for name, value in wanted.items())
    typer.echo(json.dumps({"changed": changed, **wanted}) if as_json else f"{told} at {', '.join(changed)}")


def clean_broker_metadata(
    broker: BrokerName,
    broker_id: Annotated[
        list[int] | None, typer.Option("--id", min=1, help="Only this replica, which must be down; may be repeated.")
    ] = None,
    cluster: Cluster = None,
    living: Annotated[
        bool, typer.Option("--living", help="All replicas of the set, alive or not; --id has no effect.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    controllers: Controllers = DEFAULT_CONTROLLERS,
    as_json: AsJson = False,
) -> None:
    """Remove replicas that will not come back from the controllers' metadata (cleanBrokerMetadata).

    A removed replica can't be elected. Its folder must be emptied before it comes back.
    """
    ids = sorted(broker_id or ())
    which = "all replicas, alive or not" if living else f"replica {', '.join(map(str, ids))}" if ids else "all replicas"
    what = f"{which} of {broker}"
    if not yes:
        if not sys.stdin.isatty():
            typer.echo("perseid: a replica that is forgotten can't be elected any more: say --yes", err=True)
            raise typer.Exit(2)
        typer.confirm(f"Forget {what}?", abort=True)

    async def work() -> None:
        async with ControllerClient(controllers) as client:
            await client.clean_brokers(broker, ids, cluster=cluster, living=living)

    _run(work, controllers, controllers)
    typer.echo(json.dumps({"broker": broker, "ids": ids, "living": living}) if as_json else f"forgotten: {what}")
