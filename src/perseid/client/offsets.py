"""Where a consumer's offsets are kept: at the brokers (a group shares them) or in a file (broadcasting)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from perseid.client.connection import Connection
from perseid.client.errors import ClientError
from perseid.client.model import MessageQueue
from perseid.client.pulling import Offsets
from perseid.client.session import Session
from perseid.client.surroundings import here

log = logging.getLogger("perseid.client")


FRESH = ".new"
"""A file's ending while it is written."""


class OffsetStore(Protocol):
    """Offsets by queue, kept somewhere that outlives the consumer."""

    async def open(self) -> None:
        """Get ready. ClientError when nothing could be kept."""

    async def read(self, queue: MessageQueue) -> int | None:
        """The offset that is kept for a queue; None: none is."""

    async def save(self, offsets: Mapping[MessageQueue, int]) -> set[MessageQueue]:
        """Keep these; gives back the queues for which that went well."""

    def keeps(self, queue: MessageQueue) -> bool:
        """What was saved last for this queue is surely still there."""


class BrokerOffsets:
    """A group's offsets, each at the broker of its queue.

    A broker that dies may lose what it has not saved or copied yet, and then loses its connections too: over another
    connection than the one of the last commit it may be another broker, or one that has less.
    """

    def __init__(self, session: Session, offsets: Offsets, group: str) -> None:
        self._session = session
        self._offsets = offsets
        self._group = group
        self._saved_over: dict[MessageQueue, Connection | None] = {}

    async def open(self) -> None:
        """Nothing to do: the brokers keep them."""

    async def read(self, queue: MessageQueue) -> int | None:
        return await self._offsets.committed(self._group, queue)

    async def save(self, offsets: Mapping[MessageQueue, int]) -> set[MessageQueue]:
        kept = set()
        for queue, error in (await self._offsets.commit_all(self._group, offsets)).items():
            if error is None:
                kept.add(queue)
                self._saved_over[queue] = self._connection(queue)
            else:
                log.warning("offset %d of %s is not committed yet: %s", offsets[queue], queue, error)
        return kept

    def keeps(self, queue: MessageQueue) -> bool:
        connection = self._connection(queue)
        return connection is not None and self._saved_over.get(queue) is connection

    def _connection(self, queue: MessageQueue) -> Connection | None:
        """That to the broker of a queue, if it is open."""
        routes = self._session.routes
        address = routes.address(routes.home(queue))
        return self._session.connections.ready(address) if address is not None else None


def default_folder() -> Path:
    """Where broadcasting consumers keep their offsets unless told otherwise: `~/.perseid/offsets`."""
    return here().home() / "offsets"


class FileOffsets:
    """Offsets in a small JSON file, replaced whole: a crash leaves the old or the new one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[MessageQueue, int] | None = None

    async def open(self) -> None:
        """Make the folder. ClientError when no file can be written there."""
        await asyncio.to_thread(self._try)

    async def read(self, queue: MessageQueue) -> int | None:
        if self._known is None:
            self._known = await asyncio.to_thread(self._load)
        return self._known.get(queue)

    async def save(self, offsets: Mapping[MessageQueue, int]) -> set[MessageQueue]:
        if self._known is None:
            self._known = await asyncio.to_thread(self._load)
        self._known.update(offsets)
        await asyncio.to_thread(self._store, dict(self._known))
        return set(offsets)

    def _try(self) -> None:
        fresh = self._path.with_suffix(FRESH)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            fresh.touch()
            fresh.unlink()
        except OSError as error:
            raise ClientError(
                f"{self._path.parent}: a broadcasting consumer can't keep its offsets there ({error.strerror}); name "
                "a folder that can be written: PushOptions(offsets_folder=Path(...))"
            ) from error

    def keeps(self, queue: MessageQueue) -> bool:
        return self._known is not None and queue in self._known

    def _load(self) -> dict[MessageQueue, int]:
        try:
            rows = json.loads(self._path.read_bytes())["offsets"]
            return {MessageQueue(r["topic"], r["brokerName"], int(r["queueId"])): int(r["offset"]) for r in rows}
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError) as error:
            raise ClientError(
                f"{self._path}: not a file of offsets ({error}); delete it to begin where from_where says"
            ) from error

    def _store(self, offsets: Mapping[MessageQueue, int]) -> None:
        rows = [
            {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id, "offset": offset}
            for queue, offset in sorted(offsets.items())
        ]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_suffix(FRESH)
        with open(fresh, "w") as file:
            json.dump({"offsets": rows}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, self._path)


def only(offsets: Mapping[MessageQueue, int], queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
    """The part of `offsets` that is about `queues`."""
    return {queue: offsets[queue] for queue in queues if queue in offsets}
