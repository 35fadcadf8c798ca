"""Where a run can be stopped, or overtaken: before and after each call of it that changes something, or asks somebody.

A point calls what was hung on it: `Killed`, which nobody catches, ends a run as SIGKILL does; whatever else happens
there happens while the run is under way. A run that is dead changes nothing more, whatever is unwound.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from perseid.spark.jobs.archive import formats

CALLS = ("mkdir", "rename", "unlink", "rmdir", "link", "fsync")
"""Of `os`: the ways in which the archive's own code changes folders. What it writes counts once it is synced."""


class Killed(BaseException):
    """The process of the run is gone."""


class Hooks:
    """The points of the run that is under way, counted from 0."""

    def __init__(self) -> None:
        self.passed = 0
        self.kinds: Counter[str] = Counter()
        """Of points at which something happened."""
        self._at: dict[int, Callable[[], None]] = {}
        self._under_way = self._dead = False

    @contextmanager
    def run(self, at: dict[int, Callable[[], None]]) -> Iterator[None]:
        """A run is under way; `at`: what happens at which of its points."""
        self._at, self._under_way, self._dead, self.passed = at, True, False, 0
        try:
            yield
        finally:
            self._under_way = False

    def point(self, kind: str) -> None:
        """The run is here."""
        if not self._under_way:
            return
        if self._dead:
            raise Killed
        happens, self.passed = self._at.get(self.passed), self.passed + 1
        if happens is None:
            return
        self.kinds[kind] += 1
        self._under_way = False
        try:
            happens()
        except Killed:
            self._dead = True
            raise
        finally:
            self._under_way = True

    def around(self, kind: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call, with a point before and one after it."""

        def hooked(*args: Any, **options: Any) -> Any:
            self.point(f"before {kind}")
            result = call(*args, **options)
            self.point(f"after {kind}")
            return result

        return hooked


@contextmanager
def installed(hooks: Hooks, form: str) -> Iterator[None]:
    """The calls of the archive pass the points."""
    places: list[tuple[Any, str]] = [*((os, name) for name in CALLS), (formats, "exchange")]
    if form == "delta":
        import deltalake

        places += [(deltalake.DeltaTable, name) for name in ("create", "create_write_transaction", "vacuum")]
    if form == "iceberg":
        from pyiceberg.catalog.sql import SqlCatalog

        places.append((SqlCatalog, "commit_table"))
    real = [(owner, name, vars(owner)[name]) for owner, name in places]
    for owner, name, call in real:
        if isinstance(call, classmethod):
            setattr(owner, name, classmethod(hooks.around(name, call.__func__)))
        else:
            setattr(owner, name, hooks.around(name, call))
    try:
        yield
    finally:
        for owner, name, call in real:
            setattr(owner, name, call)
