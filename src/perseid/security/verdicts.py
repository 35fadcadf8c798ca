"""Decisions that are kept: what was found of a user, a resource, its actions and an address is so until users or
policies change."""

from __future__ import annotations

from collections.abc import Hashable

MAX_VERDICTS = 10_000


class Verdicts:
    """Those of one node. When there are too many, all are forgotten: whoever comes next pays once more."""

    def __init__(self) -> None:
        self._known: dict[Hashable, str] = {}
        self.number = 0
        """Rises with each change: what was found out before counts no more."""

    def get(self, key: Hashable) -> str | None:
        """Why not; nothing: it may be done. None: not known."""
        return self._known.get(key)

    def keep(self, key: Hashable, why_not: str) -> None:
        """This is so until `forget`."""
        if len(self._known) >= MAX_VERDICTS:
            self._known.clear()
        self._known[key] = why_not

    def forget(self) -> None:
        """Users or policies changed."""
        self._known.clear()
        self.number += 1
