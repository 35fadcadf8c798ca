"""What is asked for when a seed is played, beside what it draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perseid.sim.selection import WHOLE, Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a seed is played. What is None is as the seed draws it; a model leaves aside what it does not have."""

    selection: Selection = WHOLE
    """So much of it."""
    features: Sequence[str] | None = None
    """These are played."""
    transactions: bool | None = None
    """With a producer of transactions, or without."""
    timed: bool | None = None
    """With messages for a time, or without."""
    slaves: int | None = None
    """So many, of a broker that is no member of a group."""
    acting: bool = False
    """Those act for a master which is away."""
    strangers: bool = True
    """Who belongs to nobody may come."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of a broker set under controllers: these, instead of those that are drawn."""
    story: bool = False
    """The trace is told, also when nothing fails."""


DRAWN = Options()
