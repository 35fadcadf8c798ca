"""The small file in which a member keeps what was committed, so that a start knows it at once (dledger.md §7)."""

from __future__ import annotations

NAME = "checkpoint"


def text(committed: int, durable: int) -> bytes:
    """What is kept: the committed index, and up to where the log was durable."""
    return f"committedIndex={committed}\nendIndex={durable}\nchecksums=1\n".encode()


def parse(data: bytes | None, *, synced: bool) -> tuple[int, int, bool]:
    """What was committed at the last checkpoint, -1 if nobody knows; which entries were committed and durable, if all
    are before they are answered (`synced`): the log has them still, for nothing that is committed is ever cut; and
    whether all of the log was written with checksums, for a Java member writes none, and its checkpoints don't say so.
    """
    found = {}
    for line in (data or b"").decode("ascii", "replace").splitlines():
        key, _, value = line.partition("=")
        found[key] = int(value) if value.isdigit() else -1
    committed = found.get("committedIndex", -1)
    durable = found.get("endIndex", -1) if synced else -1
    return committed, min(committed, durable), data is None or found.get("checksums") == 1
