"""`perseid namesrv`, `perseid broker`, `perseid controller`, `perseid up` and so on: the servers, in the foreground."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from perseid.app import access as access_app
from perseid.app import broker as broker_app
from perseid.app import controller as controller_app
from perseid.app import dledger as dledger_app
from perseid.app import ha as ha_app
from perseid.app import namesrv as namesrv_app
from perseid.app import process, secured, sharded, shards
from perseid.app import tls as tls_app
from perseid.app import up as up_app
from perseid.base import config
from perseid.cli.flags import flattened
from perseid.cli.tls_flags import TlsFlags

ConfigFile = Annotated[
    Path | None,
    typer.Option("-c", "--configFile", help="RocketMQ's own properties file, or TOML."),
]
PrintAll = Annotated[bool, typer.Option("-p", "--printConfigItem", help="Print all settings and exit.")]
PrintImportant = Annotated[
    bool, typer.Option("-m", "--printImportantConfig", help="Print the important settings and exit.")
]


def register(app: typer.Typer) -> None:
    """Add the commands to the `perseid` command."""
    for server in (namesrv, broker, up, dledger, controller):
        app.command()(flattened(server))


def namesrv(
    tls: TlsFlags,
    config_file: ConfigFile = None,
    print_all: PrintAll = False,
    print_important: PrintImportant = False,
) -> None:
    """Run a name server until SIGTERM or Ctrl-C."""
    process.set_up_logging()
    loaded = namesrv_app.load(config_file)
    beside = namesrv_app.load_controller(config_file, loaded)
    given = process.read_settings(config_file)
    chosen, access = tls_app.load(given, tls.given()), access_app.load_members(given)
    if print_all or print_important:
        typer.echo(config.to_text(loaded, chosen.keys, access, important=not print_all), nl=False)
        return
    raise typer.Exit(process.run(namesrv_app.serve(config_file, loaded, beside, chosen, access)))


def broker(
    tls: TlsFlags,
    config_file: ConfigFile = None,
    namesrv_addr: Annotated[
        str | None, typer.Option("-n", "--namesrvAddr", help="Name servers, host:port;host:port.")
    ] = None,
    print_all: PrintAll = False,
    print_important: PrintImportant = False,
    count: Annotated[
        int,
        typer.Option(
            "--shards",
            min=0,
            max=shards.MAX_SHARDS,
            help="Run this number of brokers with this configuration, one for each core.",
        ),
    ] = 0,
    shard: Annotated[int, typer.Option(min=-1, max=shards.MAX_SHARDS - 1, hidden=True)] = -1,
) -> None:
    """Run a broker, or several with one configuration, until SIGTERM or Ctrl-C."""
    process.set_up_logging()
    loaded = broker_app.load(config_file, namesrv_addr, tls.given())
    if print_all or print_important:
        typer.echo(loaded.to_text(important=not print_all), nl=False)
        return
    if shard >= 0:
        raise typer.Exit(process.run(broker_app.serve(shards.of(loaded, shard, count))))
    shards.check(loaded, count)
    if count:
        commands = shards.commands(config_file, namesrv_addr, count, tls.given())
        raise typer.Exit(process.run(shards.serve(commands)))
    raise typer.Exit(process.run(broker_app.serve(loaded)))


def dledger(
    tls: TlsFlags,
    config_file: ConfigFile = None,
    print_all: PrintAll = False,
    print_important: PrintImportant = False,
) -> None:
    """Run a member of a DLedger (Raft) group, a replicated log without broker, until SIGTERM or Ctrl-C."""
    process.set_up_logging()
    own, raft = dledger_app.load(config_file)
    given = process.read_settings(config_file)
    chosen, access = tls_app.load(given, tls.given()), access_app.load_members(given)
    if print_all or print_important:
        typer.echo(config.to_text(own, raft, chosen.keys, access, important=not print_all), nl=False)
        return
    raise typer.Exit(process.run(dledger_app.serve(own, raft, chosen, access)))


def controller(
    tls: TlsFlags,
    config_file: ConfigFile = None,
    print_all: PrintAll = False,
    print_important: PrintImportant = False,
) -> None:
    """Run a controller, a member of the group that elects the masters of broker sets, until SIGTERM or Ctrl-C."""
    process.set_up_logging()
    loaded = controller_app.load(config_file, flags=tls.given())
    if print_all or print_important:
        typer.echo(loaded.to_text(important=not print_all), nl=False)
        return
    raise typer.Exit(process.run(controller_app.serve(loaded)))


@dataclass(frozen=True, slots=True)
class HaFlags:
    """Of a cluster that is tried out."""

    ha: Annotated[
        bool,
        typer.Option(
            "--ha", help="Three controllers, two name servers and a broker set of several replicas, each in a process."
        ),
    ] = False
    replicas: Annotated[
        int,
        typer.Option(
            min=ha_app.MIN_REPLICAS, max=ha_app.MAX_REPLICAS, help="With --ha: the number of brokers of the set."
        ),
    ] = ha_app.MAX_REPLICAS
    controller_port: Annotated[
        int, typer.Option(min=0, max=65_535, help="With --ha: the first one's; the others' are 10 and 20 lower.")
    ] = ha_app.CONTROLLER_PORT


def up(
    data: Annotated[Path, typer.Option(help="Folder for all data; created if it is missing.")],
    cluster: HaFlags,
    namesrv_port: Annotated[
        int,
        typer.Option(
            min=0, max=65_535, help="0: a free port. With --ha: the first one's; the second one's is 10 higher."
        ),
    ] = 9876,
    broker_port: Annotated[int, typer.Option(min=0, max=65_534, help="0: a free port.")] = 10911,
    count: Annotated[
        int,
        typer.Option("--shards", min=0, max=shards.MAX_SHARDS, help="So many brokers, a process each: one for a core."),
    ] = 0,
    secure: Annotated[
        bool,
        typer.Option("--secure", help="Accept only TLS, and create a user, in DATA/security. Prints how to connect."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the ready line as JSON.")] = False,
) -> None:
    """Run a name server and a broker in one process. Prints one line when the broker accepts messages.

    With --ha, run a cluster that survives the loss of any one process. Try it with `perseid verify run`.
    """
    process.set_up_logging()
    folder = data.expanduser().absolute()
    if cluster.ha and count:
        raise typer.BadParameter("--ha has one broker a replica: choose --ha or --shards")
    made = secured.secure(folder / up_app.FOLDER) if secure and (cluster.ha or count) else None
    if count:
        parts = sharded.plan(folder, count, namesrv_port=namesrv_port, broker_port=broker_port, secured=made)
        raise typer.Exit(process.run(sharded.serve(parts, count, as_json=as_json)))
    if cluster.ha:
        planned = ha_app.plan(
            folder, namesrv_port=namesrv_port, broker_port=broker_port, controller_port=cluster.controller_port,
            replicas=cluster.replicas, secured=made,
        )  # fmt: skip
        raise typer.Exit(process.run(ha_app.serve(planned, as_json=as_json)))
    running = up_app.serve(folder, namesrv_port, broker_port, as_json=as_json, secured=secure)
    raise typer.Exit(process.run(running))
