"""Options of functions and of commands at once: a frozen dataclass, each field with a `Doc` beside its type.

    rate: Annotated[int | None, Doc("Messages a second at most.", least=1)] = None

Callers make such an object, and the command line makes a flag of each field (`perseid.cli.flags`): name, type, default
and text stand once.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

Moment = datetime | int
"""A time: one without a zone is UTC, a number is milliseconds since 1970."""


class Doc(NamedTuple):
    """What an option is for. `least`: its lowest value. `flags`: the command line's names, where they differ."""

    text: str
    least: int | None = None
    flags: tuple[str, ...] = ()


def milliseconds(at: Moment) -> int:
    """A time in milliseconds since 1970."""
    if isinstance(at, int):
        return at
    return int((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000)
