"""Who a broker is to its controllers: the file `brokerIdentity`, and its temporary twin (controller.md §8.3).

    nobody → (an id is free) claiming, in the twin → (the controller took the claim) known, in the file

The twin holds the check code that the claim is made with: after a crash, or without an answer, the same claim is made
again, and taken for the same (B24). Each file is replaced as a whole; with both there, `brokerIdentity` counts.
"""

from __future__ import annotations

from typing import NamedTuple

from perseid.base.errors import StoreError
from perseid.disk.port import Disk

PATH = "brokerIdentity"
CLAIM_PATH = "brokerIdentity-temp"
WIPED_PATH = "brokerIdentity-wiped"
"""Not empty while a broker whose disk was wiped has not got again what it lost, whatever its epochs say by then."""
SEPARATOR = "#"


class IdentityRefused(StoreError):
    """A file that belongs to another broker, or can't be read."""


class Identity(NamedTuple):
    """A broker of a set, by the id that the controller gave it."""

    cluster_name: str
    broker_name: str
    broker_id: int

    def encode(self) -> bytes:
        return SEPARATOR.join(map(str, self)).encode()


class Claim(NamedTuple):
    """An identity that is asked for with `check_code`."""

    identity: Identity
    check_code: str

    def encode(self) -> bytes:
        return self.identity.encode() + SEPARATOR.encode() + self.check_code.encode()


def load(disk: Disk, cluster_name: str, broker_name: str) -> Identity | Claim | None:
    """What was saved before; None: nothing. IdentityRefused: it is another broker's, or can't be read."""
    for path in (PATH, CLAIM_PATH):
        text = disk.read(path)
        if not text:
            continue
        parts = text.decode("utf-8", "replace").split(SEPARATOR)
        wanted = 3 if path == PATH else 4
        if len(parts) != wanted or not all(parts) or not (parts[2].isascii() and parts[2].isdigit()):
            if path == CLAIM_PATH:
                return None  # torn by another program: a new claim is made
            raise IdentityRefused(f"{path}: {text[:80]!r} is no identity; bring the file back, or remove it")
        found = Identity(parts[0], parts[1], int(parts[2]))
        if found[:2] != (cluster_name, broker_name) or found.broker_id < 1:
            raise IdentityRefused(
                f"{path}: it is that of {found.cluster_name}/{found.broker_name}, id {found.broker_id}; the "
                f"configuration says {cluster_name}/{broker_name}: correct the one, or use another folder"
            )
        return found if path == PATH else Claim(found, parts[3])
    return None
