"""A thread for what the disk may take long for. A node has two: one makes things durable, in the order in which it was
asked to; the other fetches what is to be read and is not in memory.

It takes all that waits at once. Flushes that stand next to each other are served together: each of their
files is synced once (group commit), and then all of them are done. A state file is saved in its turn.

A file whose sync failed once has lost its pages, and a second sync would lie: later flushes of it fail
without being tried. A state file is written anew each time, so its later saves are tried again. A folder or a state
file that can't be opened, because all file descriptors are in use, has lost nothing: it is tried again until it can,
and what follows from it waits.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from queue import SimpleQueue
from threading import Event, Thread
from typing import TypeAlias

from perseid.base.machine import Effect, Fetch, Flush, Note, SaveState, Syncable
from perseid.disk.port import Disk

JOIN_S = 5.0
RETRY_S = 0.1
"""After so long what needs a file descriptor, and got none, is tried again."""
NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)

Job: TypeAlias = Flush | SaveState | Fetch


@dataclass(frozen=True, slots=True)
class Failed:
    """Which file could not be made durable, and why."""

    path: str
    reason: str


Done: TypeAlias = Callable[[list[Effect], list[Failed]], None]
"""Called on the thread: what may now be carried out, and what failed."""


class IOThread:
    """`submit` jobs, and `done` hears of each, in order. `close` ends the thread when all are served."""

    def __init__(self, disk: Disk, done: Done, name: str) -> None:
        self._disk = disk
        self._done = done
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        """None: nothing comes any more. (It wakes a thread for half of what a condition takes.)"""
        self._abandoned = Event()
        self._short = False
        self._lost: set[str] = set()
        self._synced: set[str] = set()
        """Folders whose own entries, up to the root, are durable since this start."""
        self._thread = Thread(target=self._run, name=f"perseid-io-{name}", daemon=True)
        self._ended: Callable[[], None] = lambda: None

    def start(self) -> None:
        self._thread.start()

    def submit(self, job: Job) -> None:
        self._jobs.put(job)

    def close(self, ended: Callable[[], None], *, abandon: bool = False) -> None:
        """Serve what waits (or drop it: `abandon`), end the thread, and call `ended` on it."""
        self._ended = ended
        if abandon:
            self._abandoned.set()
        self._jobs.put(None)

    def join(self) -> None:
        """After `ended` was called: wait for the few instructions that the thread has left."""
        self._thread.join(JOIN_S)

    def _run(self) -> None:
        last = False
        while not last:
            jobs, last = self._next()
            for group in _groups(jobs):
                self._serve(group)
        self._ended()

    def _next(self) -> tuple[list[Job], bool]:
        """All that waits, when something does; and whether it is the last."""
        jobs: list[Job] = []
        job = self._jobs.get()
        while job is not None:
            jobs.append(job)
            if self._jobs.empty():
                break
            job = self._jobs.get()
        return [] if self._abandoned.is_set() else jobs, job is None

    def _serve(self, group: list[Job]) -> None:
        first = group[0]
        if isinstance(first, Fetch):
            self._done(_fetched(first), [])
            return
        if isinstance(first, SaveState):
            failed = self._save(first)
        else:
            files = {id(file): file for job in group if isinstance(job, Flush) for file in job.files}
            failed = self._sync(list(files.values()))
        if failed is None:
            self._done([effect for job in group for effect in job.then], [])
        else:
            self._done([], [failed])

    def _sync(self, files: list[Syncable]) -> Failed | None:
        for file in files:
            if file.path in self._lost:
                return Failed(file.path, "an earlier sync of it failed")
            try:
                self._when_open(file.sync)
            except (OSError, ValueError) as error:
                self._lost.add(file.path)
                return Failed(file.path, f"sync: {error}")
        return None

    def _save(self, job: SaveState) -> Failed | None:
        try:
            self._when_open(lambda: self._write(job))
        except OSError as error:
            return Failed(job.path, f"save: {error}")
        return None

    def _write(self, job: SaveState) -> None:
        temporary = job.path + ".tmp"
        folder = job.path.rpartition("/")[0]
        self._disk.write(temporary, job.data)
        self._disk.sync_file(temporary)
        self._disk.rename(temporary, job.path)
        self._disk.sync_dir(folder)
        self._sync_parents(folder)

    def _when_open(self, work: Callable[[], None]) -> None:
        """Do it, as often as a file descriptor is missing for it: no pages are lost then. It is given up when the node
        is over."""
        while True:
            try:
                work()
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR or not self._wait_for_descriptor(error):
                    raise
            else:
                self._short = False
                return

    def _wait_for_descriptor(self, error: OSError) -> bool:
        if not self._short:
            self._short = True
            text = f"{error}: what waits for the disk is not acknowledged until a descriptor is free; raise `ulimit -n`"
            self._done([Note("warning", text)], [])
        return not self._abandoned.wait(RETRY_S)

    def _sync_parents(self, folder: str) -> None:
        """Once in a life: the save may have made the folder, or an earlier life did and never synced it."""
        if folder in self._synced:
            return
        parent = folder
        while parent:
            parent = parent.rpartition("/")[0]
            self._disk.sync_dir(parent)
        self._synced.add(folder)


def _fetched(job: Fetch) -> list[Effect]:
    """Read the parts; what follows from it."""
    try:
        for file, offset, length in job.parts:
            file.fetch(offset, length)
    except OSError as error:
        return [Note("error", f"{file.path}: can't be read at {offset}: {error}"), *job.failed]
    return job.then


def _groups(jobs: list[Job]) -> Iterator[list[Job]]:
    for is_flush, run in groupby(jobs, lambda job: isinstance(job, Flush)):
        if is_flush:
            yield list(run)
        else:
            for job in run:
                yield [job]
