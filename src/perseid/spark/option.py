"""How an option of a source or of the sink is declared: its names, and what the reference says of it
(docs/reference/spark-options.md)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class SparkOption(NamedTuple):
    """One option. `takes`: which values, where the effect does not say it; `default` in words, "" for none."""

    name: str
    effect: str
    default: str = ""
    takes: str = ""
    aliases: tuple[str, ...] = ()


def names(options: Iterable[SparkOption]) -> tuple[str, ...]:
    """All names, those that an option has besides too."""
    return tuple(name for one in options for name in (one.name, *one.aliases))


def aliases(options: Iterable[SparkOption]) -> dict[str, str]:
    """Other names → the option's own, all in lower case."""
    return {alias.lower(): one.name.lower() for one in options for alias in one.aliases}
