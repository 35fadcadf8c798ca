"""Which clients read which lite topics.

A client belongs to one group, whose attribute `lite.bind.topic` names the parent. It says what it reads, name by name
or all at once, and again every now and then: who says nothing for `liteSubscriptionCheckTimeoutMills` is forgotten. A
client of a wildcard group (`lite.sub.wildcard`) reads all lite topics of the parent.

Invariant: a queue's readers are those whose subscription names it, and `count` is the number of these pairs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from perseid.base.errors import RequestRefused
from perseid.base.machine import ConnId, Millis
from perseid.wire.codes import ResponseCode

MAX_CLIENTS = 100_000
"""Clients that have said what they read."""


@dataclass(slots=True, eq=False)
class Reader:
    """One client. `names`: of light queues."""

    client_id: str
    group: str
    parent: str
    updated: Millis
    wildcard: bool = False
    names: dict[str, None] = field(default_factory=dict)
    conn: ConnId | None = None
    """Where it was heard of last."""


class Registry:
    """All readers of one broker."""

    def __init__(self) -> None:
        self.readers: dict[str, Reader] = {}
        self._by_name: dict[str, dict[str, Reader]] = {}
        self._wildcards: dict[str, dict[str, dict[str, Reader]]] = {}
        """Parent → group → its clients."""
        self.count = 0

    def reader(self, client_id: str, group: str, parent: str, now: Millis) -> Reader:
        """The client, made if it is missing. RequestRefused: 604 when it is another group's, 2018 when there are too
        many."""
        found = self.readers.get(client_id)
        if found is None:
            if len(self.readers) >= MAX_CLIENTS:
                raise quota(MAX_CLIENTS)
            found = self.readers[client_id] = Reader(client_id, group, parent, now)
        elif (found.group, found.parent) != (group, parent):
            raise RequestRefused(
                ResponseCode.ILLEGAL_OPERATION,
                f"client {client_id:.80} reads lite topics of {found.parent} for {found.group}: end that first",
            )
        found.updated = now
        return found

    def add(self, reader: Reader, name: str) -> bool:
        """The client reads a queue; False: it does already."""
        if name in reader.names:
            return False
        reader.names[name] = None
        self._by_name.setdefault(name, {})[reader.client_id] = reader
        self.count += 1
        return True

    def remove(self, reader: Reader, name: str) -> bool:
        """The client reads a queue no longer; False: it did not."""
        if name not in reader.names:
            return False
        del reader.names[name]
        readers = self._by_name[name]
        del readers[reader.client_id]
        if not readers:
            del self._by_name[name]
        self.count -= 1
        return True

    def read_all(self, reader: Reader) -> bool:
        """The client reads all lite topics of its parent; False: it does already."""
        if reader.wildcard:
            return False
        for name in list(reader.names):
            self.remove(reader, name)
        reader.wildcard = True
        self._wildcards.setdefault(reader.parent, {}).setdefault(reader.group, {})[reader.client_id] = reader
        self.count += 1
        return True

    def drop(self, client_id: str) -> Reader | None:
        """Forget a client."""
        reader = self.readers.pop(client_id, None)
        if reader is None:
            return None
        for name in list(reader.names):
            self.remove(reader, name)
        if reader.wildcard:
            groups = self._wildcards[reader.parent]
            del groups[reader.group][client_id]
            if not groups[reader.group]:
                del groups[reader.group]
            if not groups:
                del self._wildcards[reader.parent]
            self.count -= 1
        return reader

    def forget_queue(self, name: str) -> None:
        """A queue is gone: forget its readers."""
        for reader in list(self._by_name.get(name, {}).values()):
            self.remove(reader, name)

    def clear(self) -> None:
        self.readers.clear()
        self._by_name.clear()
        self._wildcards.clear()
        self.count = 0

    # ---- looking ----

    def readers_of(self, name: str, parent: str | None, group: str | None = None) -> dict[str, list[Reader]]:
        """Group → its clients that read a queue; of one group only, if one is named."""
        found: dict[str, list[Reader]] = {}
        for reader in self._by_name.get(name, {}).values():
            if group is None or reader.group == group:
                found.setdefault(reader.group, []).append(reader)
        for wild, readers in self._wildcards.get(parent or "", {}).items():
            if group is None or wild == group:
                found.setdefault(wild, []).extend(readers.values())
        return found

    def wildcard_readers(self, parent: str, group: str) -> list[Reader]:
        """The clients of a wildcard group."""
        return list(self._wildcards.get(parent, {}).get(group, {}).values())

    def of_group(self, group: str) -> list[Reader]:
        return [reader for reader in self.readers.values() if reader.group == group]

    def silent_since(self, before: Millis) -> list[Reader]:
        """The clients that were not heard of since then."""
        return [reader for reader in self.readers.values() if reader.updated < before]

    def validate(self) -> None:
        pairs = sum(len(readers) for readers in self._by_name.values())
        wild = sum(len(readers) for groups in self._wildcards.values() for readers in groups.values())
        assert self.count == pairs + wild, "subscriptions are counted"
        assert pairs == sum(len(reader.names) for reader in self.readers.values()), "both directions say the same"


def quota(most: int, names: Iterable[str] = ()) -> RequestRefused:
    """The refusal of one subscription too many."""
    which = ", ".join(names)[:80]
    return RequestRefused(
        ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, f"lite subscription quota exceeded {most} {which}".strip()
    )
