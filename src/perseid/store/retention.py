"""Removing old log files: by age in certain hours, by fill of the disk at any time (store.md §8).

One file at a time, the oldest first, never the last one, and only what no recovery would still read: the
next one goes when the removal of the one before is durable, so that a crash never leaves a hole. Queues and
index follow the log.
"""

from __future__ import annotations

from datetime import datetime

from perseid.base.errors import ConfigError
from perseid.base.machine import Effect, Feed, Flush, Millis, Note
from perseid.disk.port import Disk
from perseid.store.commit_log import CommitLog
from perseid.store.condition import Condition
from perseid.store.config import StoreConfig
from perseid.store.results import Removed

HOUR_MS = 3_600_000
MANUAL_RUNS = 20
"""A run that an operator asked for is tried so many times."""


class Retention:
    """Decides which log files go, and watches the disk's fill."""

    def __init__(self, disk: Disk, config: StoreConfig, log: CommitLog, condition: Condition) -> None:
        self._disk = disk
        self.config = config
        hours_of(config.delete_when)  # ConfigError at the start, and not in the night
        self._log = log
        self._condition = condition
        self._check_at: Millis | None = None
        self._remove_at: Millis | None = None
        self._left = 0
        self._by_force = False
        self._removing = False
        self._manual = 0

    def start(self, now: Millis) -> None:
        self._check_at = now + self.config.clean_resource_first_ms

    def delete_now(self, now: Millis) -> None:
        """Remove expired files whatever the hour (code 329)."""
        self._manual = MANUAL_RUNS
        self._check_at = now

    @property
    def used_ratio(self) -> float:
        """How full the disk is, from 0 to 1; -1 when it can't be told. Where the log has a disk of its own, of the
        fuller one: queues go with the log."""
        try:
            usages = self._disk.usage(self._log.segments.folder), self._disk.usage()
        except OSError:
            return -1.0
        return max(1 - usage.free / usage.total if usage.total > 0 else -1.0 for usage in usages)

    def next_deadline(self) -> Millis | None:
        if self._removing:
            return self._check_at
        return self._check_at if self._remove_at is None else self._remove_at

    def tick(self, now: Millis, replay_from: int) -> list[Effect]:
        """`replay_from`: the saved checkpoint needs the log from there on."""
        effects: list[Effect] = []
        if self._check_at is not None and now >= self._check_at:
            self._check_at = now + self.config.clean_resource_interval
            effects += self._check(now)
        if self._remove_at is not None and now >= self._remove_at and not self._removing:
            effects += self._remove_one(now, replay_from)
        return effects

    def _check(self, now: Millis) -> list[Effect]:
        config = self.config
        used = self.used_ratio * 100
        was_full, is_full = self._condition.disk_full, used > config.disk_space_warning_level_ratio
        self._condition.disk_full = is_full
        forced = used > config.disk_space_clean_forcibly_ratio and config.clean_file_forcibly_enable
        crowded = used > config.disk_max_used_space_ratio
        manual = self._manual > 0
        self._manual = max(0, self._manual - 1)
        if forced or crowded or manual or in_hour(hours_of(config.delete_when), now):
            self._by_force = forced
            self._left = config.delete_file_batch_max
            self._remove_at = now
        if was_full != is_full:
            text = f"the disk is {used:.1f} % full: " + ("no more appends" if is_full else "appends go on")
            return [Note("error" if is_full else "info", text)]
        return []

    def _remove_one(self, now: Millis, replay_from: int) -> list[Effect]:
        segments = self._log.segments
        self._remove_at = None
        if self._left <= 0 or len(segments.starts) < 2:
            return []
        first, second = segments.starts[:2]
        path = segments.path(first)
        try:
            age = now - self._disk.modified_ms(path)
            expired = age > self.config.file_reserved_time * HOUR_MS
            if second > replay_from or not (expired or self._by_force):
                return []
            segments.remove(first)
        except OSError as error:
            return [Note("error", f"{path}: can't be removed, tried again later: {error}")]
        self._left -= 1
        self._removing = True
        self._remove_at = now + self.config.delete_commit_log_files_interval
        why = f"{age / HOUR_MS:.1f} hours old" if expired else "the disk is too full"
        done = Flush([*self._log.folders.take(segments.folder)], [Feed(Removed())])
        return [Note("info", f"{path}: removed, {why}"), done]

    def removed(self) -> None:
        """The last removal is durable."""
        self._removing = False


def in_hour(hours: frozenset[int], now: Millis) -> bool:
    """Is this an hour in which old files go?"""
    return datetime.fromtimestamp(now / 1000).hour in hours


def hours_of(text: str) -> frozenset[int]:
    """Those of deleteWhen."""
    try:
        return frozenset(int(word) for word in text.split(";") if word.strip())
    except ValueError:
        raise ConfigError(f"deleteWhen: {text!r} is not a list of hours, like 04;16") from None
