"""TLS of a server process: certificates of the files that its settings name, made anew when these change.

A connection keeps the certificate that it began with. Files that can't be used change nothing: the old certificate
stays, and a warning says why.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from perseid.app import process
from perseid.base.config import Setting
from perseid.base.errors import ConfigError
from perseid.net.driver import Listener
from perseid.raft.node import LISTENER as GROUP
from perseid.replication.receiver import LISTENER as HA
from perseid.security import certificates, tls_settings
from perseid.security.certificates import Wanted
from perseid.security.tls import ClientSide, Mode, ServerSide
from perseid.security.tls_settings import Chosen

log = logging.getLogger("perseid.tls")

LOOK_S = 1.0
"""So often the files are looked at."""
REQUESTS = ""
"""The kind of connections on which nodes ask others."""


class _Seen(NamedTuple):
    """How a file was when it was looked at."""

    changed_ns: int
    size: int
    number: int


@dataclass(slots=True)
class _Made:
    """The contexts of the files as they were."""

    server: ssl.SSLContext | None
    client: ssl.SSLContext | None


class ProcessTls:
    """Of one process; ConfigError when its files can't be used."""

    def __init__(self, chosen: Chosen, hosts: Sequence[str] = ()) -> None:
        """`hosts`: names of this machine in a certificate of our own making."""
        self.chosen = chosen
        self._hosts = hosts
        self._made = self._make()
        self._seen = self._look()
        for text in chosen.warnings:
            log.warning("%s", text)

    # ---- for drivers ----

    def listener(self) -> ServerSide:
        """How connections are taken."""
        return ServerSide(self.chosen.mode, self._server)

    def ha_listener(self) -> ServerSide:
        """The same for the HA port: TLS alone with `haTls`, and never demanded without: RocketMQ has none there."""
        mode = self.chosen.mode
        if self.chosen.keys.ha and mode is not Mode.DISABLED:
            return ServerSide(Mode.ENFORCING, self._server, certified=self.chosen.certified_ha)
        return ServerSide(Mode.PERMISSIVE if mode is Mode.ENFORCING else mode, self._server)

    def group_listener(self) -> ServerSide:
        """The same for the port of a Raft group: where members have certificates, for these alone."""
        return ServerSide(self.chosen.mode, self._server, certified=self.chosen.certified_group)

    def dials(self) -> Mapping[str, ClientSide]:
        """How other nodes are dialled."""
        kinds = [REQUESTS] if self.chosen.dial else []
        if self.chosen.keys.ha:
            kinds.append(HA)
        return {kind: ClientSide(self._client) for kind in kinds}

    def secure(self, listeners: Mapping[str, Listener]) -> dict[str, Listener]:
        """The listeners with TLS."""
        of_members = {HA: self.ha_listener(), GROUP: self.group_listener()}
        return {
            name: replace(one, tls=of_members.get(name) or self.listener())
            for name, one in listeners.items()
        }

    # ---- what changes ----

    @property
    def files(self) -> tuple[str, ...]:
        """What is looked at."""
        return self.chosen.keys.files

    def look(self, *, told: bool = False) -> None:
        """Make the contexts anew if a file has changed, or because somebody told us to."""
        seen = self._look()
        if seen == self._seen and not told:
            return
        self._seen = seen
        try:
            self._made = self._make()
        except ConfigError as error:
            log.warning("the certificates stay as they were: %s", error)
        else:
            log.info("the certificates were read again: new connections use them")

    async def watch(self) -> None:
        """Look each second, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def _look(self) -> dict[str, _Seen | None]:
        return {path: _seen(path) for path in self.files}

    def _make(self) -> _Made:
        chosen, keys = self.chosen, self.chosen.keys
        server = None if chosen.made or not chosen.takes else keys.server_context()
        return _Made(server, keys.client_context() if chosen.dial or keys.ha else None)

    def _server(self) -> ssl.SSLContext:
        if self._made.server is None:
            log.warning(
                "a client speaks TLS: it gets a certificate of our own making, which nobody can verify; set "
                "tls.server.certPath and tls.server.keyPath (`perseid admin certs` makes them)"
            )
            pair = certificates.self_made(
                Wanted("Perseid", datetime.fromtimestamp(time.time(), UTC), ("localhost", "127.0.0.1", *self._hosts))
            )
            self._made.server = certificates.context_of(pair)
        return self._made.server

    def _client(self) -> ssl.SSLContext:
        assert self._made.client is not None, "only asked for where connections are dialled with TLS"
        return self._made.client


def _seen(path: str) -> _Seen | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return _Seen(found.st_mtime_ns, found.st_size, found.st_ino)


def chosen(settings: Mapping[str, str]) -> Chosen:
    """What these settings say, and nothing else."""
    return tls_settings.read({key: Setting(key, value, "secure") for key, value in settings.items()}, {})


def load(given: Mapping[str, Setting], flags: Mapping[str, str] | None = None) -> Chosen:
    """What a process's settings say of TLS; `flags`, of the command line, win. ConfigError when that can't be."""
    settings = {**given, **{key: Setting(key, value, f"--{key}") for key, value in (flags or {}).items()}}
    named = settings.get("tls.config.file")
    path = Path(named.value if named is not None else tls_settings.FILE).expanduser()
    file = process.read_settings(path) if named is not None or path.is_file() else {}
    return tls_settings.read(settings, file)
