"""A controller as a process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from perseid.app import access as access_app
from perseid.app import process
from perseid.app import tls as tls_app
from perseid.app.tls import ProcessTls
from perseid.base import config
from perseid.base.config import Foreign
from perseid.base.errors import ConfigError
from perseid.controller.config import ALIASES, FOREIGN, ControllerConfig
from perseid.controller.node import LISTENER, Controller
from perseid.net.driver import Driver, Listener
from perseid.net.limits import Limits
from perseid.raft.config import RaftConfig, peers_of
from perseid.security.members import EVERYBODY, MemberOptions
from perseid.security.tls_settings import DEFAULT, Chosen, TlsConfig

NAMED = ("controllerDLegerGroup", "controllerDLegerPeers", "controllerDLegerSelfId")


@dataclass(frozen=True, slots=True)
class Loaded:
    """What one controller is told, its paths filled in."""

    own: ControllerConfig
    raft: RaftConfig
    given: Mapping[str, str]
    """All keys of the file, as they stand there."""
    tls: Chosen = DEFAULT
    access: MemberOptions = EVERYBODY

    def to_text(self, *, important: bool) -> str:
        """All settings, or the important ones."""
        group = () if important else (self.raft,)
        return config.to_text(self.own, *group, self.tls.keys, self.access, important=important)


def load(
    path: Path | None, other: tuple[type, Foreign] | None = None, flags: Mapping[str, str] | None = None
) -> Loaded:
    """The configuration of a file; ConfigError when it can't be. `other`: who else reads that file, and what it does
    with other keys. `flags` of TLS win over the file."""
    given = process.read_settings(path)
    named = {ALIASES.get(key, key): replace(one, key=ALIASES.get(key, key)) for key, one in given.items()}
    settings = process.plain(named, ControllerConfig, RaftConfig)
    config.refuse(settings, FOREIGN.refused)
    foreign = FOREIGN if other is None else FOREIGN.beside(other[1])
    beside = () if other is None else (other[0],)
    process.report(settings, foreign, ControllerConfig, RaftConfig, TlsConfig, MemberOptions, *beside)
    own = config.build(ControllerConfig, settings)
    texts = own.controller_dleger_group, own.controller_dleger_peers, own.controller_dleger_self_id
    missing = [key for key, text in zip(NAMED, texts, strict=True) if not text]
    if missing:
        raise ConfigError(
            f"{path or 'no file'}: {', '.join(missing)}: missing; a controller needs its group, the addresses of all "
            "members (n0-host:port;…) and which of them it is"
        )
    if own.controller_dleger_self_id not in peers_of(own.controller_dleger_peers):
        raise ConfigError(
            f"controllerDLegerSelfId={own.controller_dleger_self_id} is not among the peers "
            f"({own.controller_dleger_peers})"
        )
    home = process.home_folder()
    own = replace(
        own,
        controller_store_path=own.controller_store_path or str(home / "DLedgerController"),
        config_store_path=own.config_store_path or str(home / "controller" / "controller.properties"),
    )
    raft = replace(
        config.build(RaftConfig, settings),
        group=own.controller_dleger_group,
        peers=own.controller_dleger_peers,
        self_id=own.controller_dleger_self_id,
        mapped_file_size_for_entry_data=own.mapped_file_size,
    )
    who_may = access_app.load_members(settings)
    return Loaded(own, raft, process.values(settings), tls_app.load(settings, flags), who_may)


def build(loaded: Loaded, listener: Listener | None = None, tls: ProcessTls | None = None) -> tuple[Controller, Driver]:
    """The controller of a configuration on its own files, in `controllerStorePath`/dledger-ID as the original names
    them, listening where the peers' list says; without `tls` there is none."""
    own, raft, given = loaded.own, loaded.raft, loaded.given
    store = Path(own.controller_store_path).expanduser().absolute()
    config_path = Path(own.config_store_path).expanduser().absolute()
    root = Path(os.path.commonpath([store, config_path.parent]))
    disk = process.open_disk(root)
    folder = store.relative_to(root).as_posix()
    node = Controller(
        own,
        raft,
        disk,
        Random(),
        folder="" if folder == "." else folder + "/",
        config_path=config_path.relative_to(root).as_posix(),
        members=access_app.members(
            loaded.access, store, certified=tls is not None and loaded.tls.certified_group
        ),
    )
    node.kept = lambda: given
    port = _port(raft)
    limits = Limits(idle_ms=own.server_channel_max_idle_time_seconds * 1000)
    main = listener or Listener(own.bind_address, port, setting="controllerDLegerPeers")
    name = f"controller-{raft.self_id}"
    listeners = {LISTENER: main}
    dials = tls.dials() if tls is not None else None
    secured = tls.secure(listeners) if tls is not None else listeners
    return node, Driver(node, disk, secured, name=name, limits=limits, gathers=node.gathers, dials=dials)


def _port(raft: RaftConfig) -> int:
    return int(peers_of(raft.peers)[raft.self_id].rpartition(":")[2])


def announcement(loaded: Loaded) -> str:
    """What is printed when it listens."""
    raft = loaded.raft
    return f"controller {raft.self_id} of {raft.group} listens at {peers_of(raft.peers)[raft.self_id]}"


async def serve(loaded: Loaded) -> int:
    """Run until told to end; the exit code."""
    host, port = loaded.own.bind_address, _port(loaded.raft)
    access_app.warn_if_open("controller", host, port, loaded.access, loaded.tls)
    tls = ProcessTls(loaded.tls)
    _, running = build(loaded, tls=tls)

    async def ready() -> None:
        process.say(announcement(loaded))

    return await process.serve([running], ready, tls)
