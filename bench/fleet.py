"""The brokers of a run, each with a store of its own; one of them at a time has the machine to itself."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from growth import LoneController
from guarded import NO_GUARDS, Guarded, guards_of
from pairs import Pair
from rows import Row
from servers import SHARD_COUNT, SHARDS, Server, parts_of
from sets import DEFAULT, TUNED, BrokerSet
from trios import Trio, timing_of

HEAP = {"namesrv": "256m", "broker": "512m", "controller": "256m"}

FleetKey = tuple[str, ...]
"""Server, flush, store, role, how many make a group, and guards: what differs in these has brokers of its own."""


def server_of(name: str, folder: Path, row: Row, heap: Mapping[str, str]) -> Server:
    """What a row is measured on, not started yet: one of SERVERS."""
    parts = parts_of(name, heap)
    conf: dict[str, object] = {"flushDiskType": row.flush}
    if row.part == "kinds":
        conf["enablePropertyFilter"] = "true"
    if row.mode == "grow":
        return LoneController(name, *parts, folder, {})
    if row.replicas:
        return BrokerSet(name, *parts, folder, conf, row.replicas, TUNED if row.tuned else DEFAULT)
    if row.members:
        return Trio(name, *parts, folder, conf | timing_of(name), row.members)
    if (guards := guards_of(row)) != NO_GUARDS:
        return Guarded(name, *parts, folder, conf, guards)
    if not row.role:
        return Server(name, *parts, folder, conf, SHARD_COUNT if name == SHARDS else 1)
    conf |= {"brokerRole": row.role, "inSyncReplicas": 2 if row.role == "SYNC_MASTER" else 1}
    if row.file_bytes:
        conf["mappedFileSizeCommitLog"] = row.file_bytes
    pair = Pair(name, *parts, folder, conf)
    pair.attached = row.mode != "catchup"
    return pair


@contextlib.contextmanager
def alone(server: Server, others: Iterable[Server]) -> Iterator[None]:
    """Only `server` runs; what others wrote has left for the disk."""
    for other in others:
        if other is not server:
            other.pause()
    os.sync()
    server.resume()
    try:
        yield
    finally:
        server.pause()


def discard(server: Server) -> None:
    server.stop()
    shutil.rmtree(server.folder, ignore_errors=True)


class Fleet:
    """The brokers that run, each with a store of its own."""

    def __init__(self, folder: Path, only: Sequence[str]) -> None:
        """`only`: the servers that may run; none named, all."""
        self.folder, self.only = folder, only
        self.running: dict[FleetKey, Server] = {}

    def wanted(self, row: Row) -> list[str]:
        return [name for name in row.servers if not self.only or name in self.only]

    def key(self, name: str, row: Row) -> FleetKey:
        guards = guards_of(row)
        some = {
            f"group of {row.members}": row.members,
            f"set of {row.replicas}": row.replicas,
            "kinds": row.part == "kinds",
            "certificates": guards.certificates,
            "users": guards.users,
        }
        return (name, row.flush, row.store, row.role, *(text if there else "" for text, there in some.items()))

    def keys(self, rows: Iterable[Row]) -> set[FleetKey]:
        return {self.key(name, row) for row in rows if not row.own_servers for name in self.wanted(row)}

    def of(self, row: Row) -> dict[str, Server]:
        """The servers of a row, started."""
        found = {}
        for name in self.wanted(row):
            key = self.key(name, row)
            if key not in self.running:
                self.running[key] = self.new(name, "-".join(filter(None, key)), row)
                self.running[key].start()
            found[name] = self.running[key]
        return found

    def new(self, name: str, folder: str, row: Row) -> Server:
        """What a row is measured on, not started yet."""
        return server_of(name, self.folder / folder.replace(" ", "-"), row, HEAP)

    def keep(self, keys: set[FleetKey]) -> None:
        """End all others, and remove what they stored."""
        for key in [key for key in self.running if key not in keys]:
            discard(self.running.pop(key))

    def pause(self) -> None:
        for one in self.running.values():
            one.pause()
