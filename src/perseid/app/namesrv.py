"""A name server as a process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from perseid.app import access as access_app
from perseid.app import controller as controller_app
from perseid.app import process
from perseid.app.tls import ProcessTls
from perseid.base import config
from perseid.controller.node import Controller
from perseid.nameserver.config import FOREIGN, NameServerConfig
from perseid.nameserver.node import NameServer
from perseid.net.driver import Driver, Listener
from perseid.net.limits import Limits
from perseid.security.members import EVERYBODY, OPEN, MemberOptions, Members
from perseid.security.tls_settings import DEFAULT, Chosen, TlsConfig

LISTENER = "main"
PORT_SETTING = "listenPort in the file of -c"


def load(path: Path | None) -> NameServerConfig:
    """The configuration of a file (or the defaults), its paths filled in; ConfigError when it can't be."""
    settings = process.plain(process.read_settings(path), NameServerConfig)
    config.refuse(settings, FOREIGN.refused)
    loaded = config.build(NameServerConfig, settings)
    if not loaded.enable_controller_in_namesrv:  # the controller reports what neither of them knows
        process.report(settings, FOREIGN, NameServerConfig, TlsConfig, MemberOptions)
    folder = process.home_folder() / "namesrv"
    kept = path.resolve() if path and path.suffix != ".toml" else folder / "namesrv.properties"
    store_path = loaded.config_store_path or str(kept)
    return replace(
        loaded,
        rocketmq_home=loaded.rocketmq_home or os.environ.get("ROCKETMQ_HOME", ""),
        kv_config_path=loaded.kv_config_path or str(folder / "kvConfig.json"),
        config_store_path=store_path,
    )


def load_controller(path: Path | None, loaded: NameServerConfig) -> controller_app.Loaded | None:
    """The controller in the same process, if there is to be one (enableControllerInNamesrv)."""
    if not loaded.enable_controller_in_namesrv:
        return None
    found = controller_app.load(path, (NameServerConfig, FOREIGN))
    shared = found.access.audit_log_path
    apart = replace(found.access, audit_log_path=str(Path(shared) / "controller") if shared else "")
    return replace(found, access=apart)


def members_at(loaded: NameServerConfig, options: MemberOptions) -> Members:
    """Who may register brokers and change what clients are told; ConfigError when that can't be told."""
    return access_app.members(options, Path(loaded.kv_config_path).expanduser().absolute().parent)


def build(
    loaded: NameServerConfig,
    listener: Listener | None = None,
    tls: ProcessTls | None = None,
    members: Members = OPEN,
) -> tuple[NameServer, Driver]:
    """The name server of a configuration, on its own files; without `tls` there is none."""
    kv_path = Path(loaded.kv_config_path).expanduser().resolve()
    store_path = Path(loaded.config_store_path).expanduser().resolve()
    root = Path(os.path.commonpath([kv_path.parent, store_path.parent]))
    disk = process.open_disk(root)
    node = NameServer(
        loaded,
        disk,
        kv_path=kv_path.relative_to(root).as_posix(),
        config_path=store_path.relative_to(root).as_posix(),
        members=members,
    )
    limits = Limits(idle_ms=loaded.server_channel_max_idle_time_seconds * 1000)
    main = listener or Listener(loaded.bind_address, loaded.listen_port, setting=PORT_SETTING)
    listeners = {LISTENER: main}
    dials = tls.dials() if tls is not None else None
    secured = tls.secure(listeners) if tls is not None else listeners
    return node, Driver(node, disk, secured, name="namesrv", limits=limits, dials=dials)


def share_file(names: NameServer, controller: Controller, given: Mapping[str, str]) -> None:
    """Both have the same configuration file: what one of them writes there keeps what the other one has by now."""
    names.kept = lambda: {**given, **config.to_properties(controller.config)}
    controller.kept = lambda: {**given, **config.to_properties(names.config)}


async def serve(
    path: Path | None,
    loaded: NameServerConfig,
    controller: controller_app.Loaded | None = None,
    chosen: Chosen = DEFAULT,
    access: MemberOptions = EVERYBODY,
) -> int:
    """Run until told to end, with a controller beside it or without; the exit code. `path`: of the configuration;
    `chosen`: what both do about TLS; `access`: whom the name server asks for a signature."""
    access_app.warn_if_open("name server", loaded.bind_address, loaded.listen_port, access, chosen)
    tls = ProcessTls(chosen)
    node, running = build(loaded, tls=tls, members=members_at(loaded, access))
    given = process.values(process.read_settings(path))
    node.kept = lambda: given
    beside: list[Driver] = []
    if controller is not None:
        member, other = controller_app.build(controller, tls=tls)
        share_file(node, member, given)
        beside.append(other)

    async def ready() -> None:
        address = f"{loaded.bind_address}:{running.ports[LISTENER]}"
        if controller is not None:
            process.log.info("%s", controller_app.announcement(controller))
        process.say(f"The Name Server boot success. serializeType=JSON, address {address}")

    return await process.serve([running, *beside], ready, tls)
