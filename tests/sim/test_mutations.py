"""A simulator that does not find planted defects is not strong enough: each is found within so many seeds.

A mutation changes the broker, the store or the driver at one place. Seeds are played until one fails that
does not fail without it.
"""

from functools import partial
from typing import Any

import pytest
from tests.store.test_long_lives import Life

from perseid.base.errors import StoreError
from perseid.base.machine import Feed, Flush
from perseid.broker.clients.locks import QueueLocks
from perseid.broker.consume.fetches import Fetches
from perseid.broker.kernel.intake import Intake
from perseid.broker.kernel.saves import Saves
from perseid.broker.produce.appender import Appender
from perseid.broker.scheduled.timers import TimerService
from perseid.core.layout import UNIT_BYTES
from perseid.sim.disk import SimFile
from perseid.sim.driver import NodeDriver
from perseid.sim.models.broker.run import Result, run
from perseid.sim.models.registry import MODELS
from perseid.sim.options import Options
from perseid.sim.selection import Selection
from perseid.store.appends import Appends
from perseid.store.commit_log import CommitLog
from perseid.store.consume_queue import ConsumeQueue
from perseid.store.flushing import Flusher
from perseid.store.recovery import Recovery
from perseid.store.segments import Folders, FolderSync, Segments
from perseid.store.timer.log import TimerLog
from perseid.store.timer.timers import TimerStore
from perseid.store.timer.wheel import Wheel
from perseid.wire.record import Record

from .planted import Mutation, seek

FIRST = 500


def no_fsync(patch: pytest.MonkeyPatch) -> None:
    """A Flush is carried out without a sync of its files; syncs during starts and saves are real."""

    def flush(self: NodeDriver, job: Any) -> None:
        for file in job.effect.files:
            if isinstance(file, SimFile) and file.syncing is not None:
                file.undo = {**file.undo, **file.syncing}
                file.syncing = None
        self._done(job)

    patch.setattr(NodeDriver, "_flush", flush)


def acknowledge_before_flush(patch: pytest.MonkeyPatch) -> None:
    """The answer to a send does not wait for the flush."""
    patch.setattr(Appender, "acknowledge", lambda self, request, reply, end_offset, wait: reply)


def plain_sends_acknowledged_before_flush(patch: pytest.MonkeyPatch) -> None:
    """The answers to the plain sends of a read do not wait for the flush."""
    real = Intake.take

    def take(self: Intake, reads: Any) -> None:
        real(self, reads)
        for one in self._durability.acks._waiting:
            if one.frames:
                self._turn.write(one.conn, one.frames)
                one.frames = b""

    patch.setattr(Intake, "take", take)


def no_folder_sync(patch: pytest.MonkeyPatch) -> None:
    """Creates are not followed by a sync of their folder."""
    patch.setattr(FolderSync, "sync", lambda self: None)


def no_folder_sync_after_rename(patch: pytest.MonkeyPatch) -> None:
    """A saved state file is renamed into place, and that is all."""

    def save_dir(self: NodeDriver, job: Any) -> None:
        self._done(job)

    patch.setattr(NodeDriver, "_save_dir", save_dir)


def recovery_truncates_nothing(patch: pytest.MonkeyPatch) -> None:
    """The log goes on behind whatever was written last, whole or not."""

    def truncate(self: Recovery, walk: Any) -> None:
        log, end = self._log, walk.offset
        start = log.segments.start_of(end)
        if start is not None:
            written = bytes(log.segments.view(start, log.segments.file_bytes)).rstrip(b"\0")
            end = max(end, start + len(written))
        log.set_end(end)

    patch.setattr(Recovery, "_truncate", truncate)


def stale_tail_kept(patch: pytest.MonkeyPatch) -> None:
    """What stands behind the log's end after a crash stays there, to come back behind newer records."""
    patch.setattr(Segments, "zero_from", lambda self, offset: 0)


def flushed_too_early(patch: pytest.MonkeyPatch) -> None:
    """What a Flush allows is carried out when it is asked for."""
    real = NodeDriver._carry_out

    def carry_out(self: NodeDriver, effects: Any) -> None:
        early: list[Any] = []
        for effect in effects:
            if isinstance(effect, Flush) and effect.then:
                early += [Flush(effect.files), *(then for then in effect.then if isinstance(then, Feed))]
            else:
                early.append(effect)
        real(self, early)

    patch.setattr(NodeDriver, "_carry_out", carry_out)


def page_cache_trusted(patch: pytest.MonkeyPatch) -> None:
    """After a crash the log's tail is synced, but not written again: a failed fsync has lost its pages."""
    patch.setattr(CommitLog, "write_again", lambda self, begin, end: None)


def folders_trusted(patch: pytest.MonkeyPatch) -> None:
    """After a crash the folders are taken to be as durable as they look."""
    patch.setattr(Folders, "distrust", lambda self: None)


def folders_above_a_changed_one_trusted(patch: pytest.MonkeyPatch) -> None:
    """After a crash the parents of a folder that the recovery itself has changed are taken to be durable."""

    def distrust(self: Folders) -> None:
        for folder in sorted(self._known | {""}):
            while folder not in self.changed:
                self.changed.add(folder)
                folder = folder.rpartition("/")[0]

    patch.setattr(Folders, "distrust", distrust)


def properties_without_an_end_trusted(patch: pytest.MonkeyPatch) -> None:
    """A record that was never flushed is read though its last byte is not the one that was written."""
    real = Recovery._doubt

    def doubt(self: Recovery, record: Record) -> str:
        why = real(self, record)
        return "" if why == "properties without an end" else why

    patch.setattr(Recovery, "_doubt", doubt)


def file_of_the_next_unit_removed(patch: pytest.MonkeyPatch) -> None:
    """A queue's file may be removed though the next unit stands in it, when a later file was made ahead."""

    def remove_before(self: ConsumeQueue, log_start: int, durable: int) -> None:
        segments = self.segments
        while len(segments.starts) > 1:
            last = self.raw(segments.starts[1] // UNIT_BYTES - 1)
            if last is None or last.physical_offset >= log_start:
                return
            segments.remove(segments.starts[0])

    patch.setattr(ConsumeQueue, "remove_before", remove_before)


def files_behind_a_hole_removed(patch: pytest.MonkeyPatch) -> None:
    """Of a queue's files with a hole among them those before it are kept, though retention had removed them."""

    def load(self: ConsumeQueue, log_start: int) -> list[int]:
        missing = self.segments.load(self.size_key)
        if missing:
            self.segments.remove_from(missing[0])
        return missing

    patch.setattr(ConsumeQueue, "load", load)


def checkpoint_ahead(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint says of queues what is only written, not synced."""
    real = Flusher._durable

    def durable(self: Flusher) -> Any:
        checkpoint = real(self)
        checkpoint.replay_from = self._log.flushed
        return checkpoint

    patch.setattr(Flusher, "_durable", durable)


def offsets_before_the_log(patch: pytest.MonkeyPatch) -> None:
    """Offsets of groups are saved without a flush of the log before."""
    patch.setattr(Saves, "_behind_log", lambda self, paths: self._save(paths, []) if paths else None)


def batch_torn(patch: pytest.MonkeyPatch) -> None:
    """A batch forgets the queue entry of its last message."""
    real = Appends.append_batch

    def append_batch(self: Appends, messages: list[Any], now: int) -> Any:
        placed = real(self, messages, now)
        self.queues.table[messages[0].topic, messages[0].queue_id].end -= 1
        return placed

    patch.setattr(Appends, "append_batch", append_batch)


def locks_for_all(patch: pytest.MonkeyPatch) -> None:
    """Everybody gets every lock."""
    patch.setattr(QueueLocks, "lock", lambda self, group, queues, client, now: list(queues))


def fetched_pulls_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A pull that waited for the disk is never answered."""
    patch.setattr(Fetches, "fetched", lambda self, event, again: None)


def timers_a_second_early(patch: pytest.MonkeyPatch) -> None:
    """A message for a time waits in the slot before its own, and nobody looks whether its time has come."""
    real = TimerStore.slot_of

    def slot_of(self: TimerStore, deliver_at: int, stored_at: int) -> Any:
        return real(self, deliver_at - self.wheel.precision_ms, stored_at)

    patch.setattr(TimerStore, "slot_of", slot_of)
    patch.setattr(TimerService, "is_early", lambda self, found: False)


def wheel_not_written(patch: pytest.MonkeyPatch) -> None:
    """The checkpoint of the timers is saved without the slots of the wheel."""
    patch.setattr(Wheel, "write", lambda self, images: [self._open()])


def timers_called_delivered(patch: pytest.MonkeyPatch) -> None:
    """The checkpoint of the timers calls delivered what is not yet due."""
    real = TimerStore.progress

    def progress(self: TimerStore, now: int, *, master: bool) -> Any:
        found = real(self, now, master=master)
        found.read_ms += 10_000
        return found

    patch.setattr(TimerStore, "progress", progress)


def units_of_a_crash_trusted(patch: pytest.MonkeyPatch) -> None:
    """A start goes on behind all units that it finds, whether their messages are there or not."""
    patch.setattr(TimerStore, "_is_of", lambda self, unit, record: True)
    real = TimerStore.load

    def load(self: TimerStore, *given: Any) -> list[str]:
        notes = real(self, *given)
        self.queue_offset += 1
        return notes

    patch.setattr(TimerStore, "load", load)


def file_of_the_timer_logs_end_removed(patch: pytest.MonkeyPatch) -> None:
    """All files of the timer log go whose messages are gone, while there is one behind them."""

    def remove_before(self: TimerLog, physical_offset: int) -> None:
        starts = self.segments.starts
        while len(starts) > 1:
            last = self.unit(starts[0] + self._last_in_file)
            if last is None or last.physical_offset >= physical_offset:
                return
            self.segments.remove(starts[0])

    patch.setattr(TimerLog, "remove_before", remove_before)


PLANTED: list[Mutation] = [
    no_fsync,
    acknowledge_before_flush,
    plain_sends_acknowledged_before_flush,
    flushed_too_early,
    no_folder_sync,
    no_folder_sync_after_rename,
    recovery_truncates_nothing,
    page_cache_trusted,
    folders_trusted,
    checkpoint_ahead,
    offsets_before_the_log,
    batch_torn,
    locks_for_all,
    fetched_pulls_forgotten,
    properties_without_an_end_trusted,
    folders_above_a_changed_one_trusted,
]
OF_STORES: list[Mutation] = [
    stale_tail_kept,
    file_of_the_next_unit_removed,
    files_behind_a_hole_removed,
]
"""Those that a store's own drawn life meets sooner than a broker's whole one."""
TIMED: list[Mutation] = [
    timers_a_second_early,
    wheel_not_written,
    timers_called_delivered,
    units_of_a_crash_trusted,
]


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.sim
@pytest.mark.parametrize("mutation", PLANTED + TIMED)
def test_a_planted_defect_is_found(mutation: Mutation) -> None:
    options = Options(slaves=0, transactions=False, timed=mutation in TIMED, features=())
    seek(mutation, partial(run, options=options), first=FIRST)


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.sim
def test_a_planted_defect_of_a_full_disk_is_found() -> None:
    play = partial(MODELS["broker"].run, options=Options(selection=Selection(swarm=True)))
    seek(file_of_the_timer_logs_end_removed, play, promise="no unexpected exception", first=289409250541)


def live(seed: int) -> Result:
    """A store's life (`tests/store/test_long_lives.py`); its failure, if it broke a promise or could not be loaded."""
    result = Result(seed)
    try:
        Life(seed).run()
    except (AssertionError, StoreError) as error:
        result.failure = f"a store's life: {type(error).__name__}: {error}"
    return result


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.parametrize("mutation", OF_STORES)
def test_a_planted_defect_is_found_by_a_store_alone(mutation: Mutation) -> None:
    seek(mutation, live)
