"""The term of a member that does not run: read, and set, when no election can follow on it any more.

All members are stopped. All are given one term, above that of every entry in any of their logs: then no entry of an
older leader can be taken for one of a later one, and no vote that was given in a term counts twice. A term is an int64
at its peers; the highest that a start takes is `MAX_TERM`, so that elections can go on for ever.
"""

from __future__ import annotations

from typing import NamedTuple

from perseid.base.errors import StoreError
from perseid.disk.port import Disk
from perseid.raft.files import INDEX
from perseid.raft.state import MAX_TERM, VOTE_FILE, parse_vote, vote_text
from perseid.wire.dledger import ENTRY_MAGIC, INDEX_UNIT, INDEX_UNIT_BYTES


class Terms(NamedTuple):
    """What a member's folder says."""

    term: int
    vote: str | None
    end_term: int
    """Of the last entry in its log; −1: there is none."""


def read(disk: Disk, folder: str) -> Terms:
    """StoreError when it is no member's folder."""
    path = folder + VOTE_FILE
    text = disk.read(path)
    if text is None:
        raise StoreError(f"{path}: there is no such file: a member's folder is named dledger-ID")
    return Terms(*parse_vote(text, path), last_term(disk, folder))


def last_term(disk: Disk, folder: str) -> int:
    """The term of the last entry in a member's index; −1 when it has none."""
    for name in sorted(disk.list(folder + INDEX), reverse=True):
        data = disk.read(f"{folder}{INDEX}/{name}") or b""
        for at in range(len(data) - len(data) % INDEX_UNIT_BYTES - INDEX_UNIT_BYTES, -1, -INDEX_UNIT_BYTES):
            magic, _, size, _, term = INDEX_UNIT.unpack_from(data, at)
            if magic == ENTRY_MAGIC and size:
                return int(term)
    return -1


def write(disk: Disk, folder: str, term: int) -> None:
    """Give a member a term in which it has not voted, durably. StoreError for a term that can't be."""
    found = read(disk, folder)
    if not max(found.end_term, 0) < term <= MAX_TERM:
        raise StoreError(
            f"term {term}: more than {found.end_term}, the term of the last entry here (and of all other members), and "
            f"at most {MAX_TERM} is wanted"
        )
    path = folder + VOTE_FILE
    disk.write(path + ".tmp", vote_text(term, None))
    disk.sync_file(path + ".tmp")
    disk.rename(path + ".tmp", path)
    disk.sync_dir(folder.rstrip("/"))
