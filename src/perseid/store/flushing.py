"""What has to become durable, and when.

The log is flushed for those who wait (`flush`) and by the clock. Consume queues and index follow from the
log, so they only need to be durable once in a while: a *round* takes all that was written to them so far
and hands it out in pieces, so that flushes of the log get in between. When the last piece is durable, a
recovery need not read the log before the round's start again, and the next checkpoint says so. A checkpoint
only ever tells what is durable already.
"""

from __future__ import annotations

from perseid.base.deadlines import soonest
from perseid.base.machine import Effect, Feed, Flush, Millis, SaveState, Syncable
from perseid.store import checkpoint as checkpoints
from perseid.store.checkpoint import Checkpoint
from perseid.store.commit_log import FOLDER as LOG_FOLDER
from perseid.store.commit_log import PAGE_BYTES, CommitLog
from perseid.store.config import SYNC_FLUSH, StoreConfig
from perseid.store.confirm_gate import ConfirmGate
from perseid.store.index import Index
from perseid.store.queues import Queues
from perseid.store.results import CheckpointSaved, Flushed, PieceFlushed
from perseid.store.segments import Folders

PIECE_FILES = 16
"""At most so many files are synced in one go, before a waiting flush of the log has its turn."""
EVERYTHING = 1 << 62
SYNC_FLUSH_INTERVAL_MS = 10
"""With SYNC_FLUSH, messages that nobody waits for are flushed after this time."""

CHECKPOINT_RETRY_MS = 5_000
"""After a save of the checkpoint failed (a full disk)."""


class Flusher:
    """Knows how far one store is durable, and makes it so."""

    def __init__(
        self, config: StoreConfig, log: CommitLog, index: Index, folders: Folders, queues: Queues,
        gate: ConfirmGate | None,
    ) -> None:  # fmt: skip
        """`gate`: of a replicated store, whose checkpoint says what is confirmed."""
        self._config = config
        self._log = log
        self._index = index
        self._folders = folders
        self._queues = queues
        self._gate = gate
        self.checkpoint = Checkpoint()
        """What is durable now."""
        self.saved_replay_from = 0
        self.saved_log_end = 0
        """A start knows that the log was durable up to here."""
        self._unsaved = False
        self._most = EVERYTHING
        """The checkpoint says of no byte from there on that it is durable: they are about to be cut."""
        self._floor = EVERYTHING
        """A start reads the log from there on, or from before: units of it are about to go (`hold_back`)."""
        self._held: tuple[int, int] | None = None
        """Units from this offset of the log on went for records before the other one: until these are durable, a start
        reads the log from there on."""
        self._saving = False
        """A checkpoint is on its way to the disk."""
        self._urgent = False
        """The next one is to be saved at once."""
        self._cuts: list[int] = []
        """Where the log was cut in this life. What a flush covers that was asked for before a cut ends there."""
        self._pieces: list[list[Syncable]] = []
        self._round: tuple[int, int, Millis, int] | None = None
        """What the running round makes durable: the log's end, its last record and that one's time, the newest
        record in the index."""
        self._log_at: Millis = 0
        self._log_thorough_at: Millis = 0
        self._round_at: Millis = 0
        self._checkpoint_at: Millis = 0
        self.hurry = False
        """The next tick begins a round."""

    @property
    def promised(self) -> int:
        """A start expects the log up to here at least."""
        return max(self.saved_replay_from, self.saved_log_end if self._log.is_found_whole else 0)

    def load(self, checkpoint: Checkpoint) -> None:
        """What a recovery found, and made, is durable."""
        self.checkpoint = checkpoint
        self.saved_replay_from = max(checkpoint.replay_from, 0)
        self.saved_log_end = max(checkpoint.log_end, 0)

    def start(self, now: Millis) -> None:
        self._log_at = self._log_thorough_at = self._round_at = self._checkpoint_at = now

    # ---- the log ----

    @property
    def needs_flush(self) -> bool:
        """Something of the log is not yet handed out to be flushed."""
        return self._log.end > self._log.issued

    def flush(self, then: list[Effect]) -> Flush:
        """Make all that the log holds now durable, then `then`."""
        log = self._log
        files: list[Syncable] = []
        if log.end > log.issued:
            files += log.segments.files_between(log.issued, log.end)
            files += self._folders.take(LOG_FOLDER)
            log.issued = log.end
        return Flush(files, [Feed(Flushed(log.end, log.last_timestamp, len(self._cuts))), *then])

    def _log_due(self) -> Millis | None:
        log, config = self._log, self._config
        if log.end <= log.issued:
            return None
        if config.flush_disk_type == SYNC_FLUSH:
            return self._log_at + SYNC_FLUSH_INTERVAL_MS
        if log.end // PAGE_BYTES - log.issued // PAGE_BYTES >= config.flush_commit_log_least_pages:
            return self._log_at + config.flush_interval_commit_log
        return self._log_thorough_at + config.flush_commit_log_thorough_interval

    # ---- queues and index ----

    def _round_due(self) -> Millis | None:
        if self._round is not None or self._log.end <= self.checkpoint.replay_from:
            return None
        behind = self._log.end - self.checkpoint.replay_from > self._config.replay_limit_bytes
        if (self.hurry or behind) and self._floor == EVERYTHING:
            return 0
        return self._round_at + self._config.flush_consume_queue_thorough_interval

    def _begin_round(self, now: Millis) -> list[Effect]:
        self._round_at = now
        self.hurry = False
        log = self._log
        self._round = min(log.end, self._floor), log.last_offset, log.last_timestamp, self._index.end_offset
        # All folders go first, for the log's may be among them: a later flush of the log must not overtake them.
        folders: list[Syncable] = [*self._folders.take()]
        files = self.take_dirty()
        self._pieces = [folders + files[:PIECE_FILES]]
        self._pieces += [files[i : i + PIECE_FILES] for i in range(PIECE_FILES, len(files), PIECE_FILES)]
        return self._next_piece()

    def take_dirty(self) -> list[Syncable]:
        """The files of queues and index that were written since a round took them last."""
        return self._queues.take_dirty() + list(self._index.take_dirty())

    def _next_piece(self) -> list[Effect]:
        if self._pieces:
            return [Flush(self._pieces[0], [Feed(PieceFlushed())])]
        assert self._round is not None
        c = self.checkpoint
        c.replay_from, c.last_record, c.queues_timestamp, c.index_end = self._round
        c.index_timestamp = c.queues_timestamp
        self._round = None
        self._unsaved = True
        return []

    # ---- the checkpoint ----

    def _durable(self) -> Checkpoint:
        """What a checkpoint may say. A round can be ahead of the log's own flush: the log leads."""
        c, end = self.checkpoint, min(self._log.durable_end, self._most)
        if self._held is not None and end >= self._held[1]:
            self._held = None
        begin = end if self._held is None else min(self._held[0], end)
        return Checkpoint(
            c.log_timestamp,
            c.queues_timestamp,
            c.index_timestamp,
            c.master_flushed_offset,
            c.confirm_offset if self._gate is None else min(self._gate.confirmed, end),
            log_end=end,
            replay_from=min(c.replay_from, begin),
            last_record=c.last_record,
            index_end=c.index_end,
        )

    def _save_due(self) -> Millis | None:
        if self._urgent and not self._saving:
            return 0
        return self._checkpoint_at + self._config.checkpoint_interval_ms if self._unsaved else None

    def _save(self, now: Millis) -> list[Effect]:
        self._checkpoint_at = now
        self._unsaved = self._urgent = False
        self._saving = True
        checkpoint = self._durable()
        saved = Feed(CheckpointSaved(checkpoint.replay_from, checkpoint.log_end))
        return [SaveState(checkpoints.PATH, checkpoints.encode(checkpoint), [saved])]

    def not_saved(self, now: Millis) -> None:
        """The checkpoint could not be saved: the old one stays true, a new one is tried later."""
        self._unsaved, self._saving = True, False
        self._checkpoint_at = now + CHECKPOINT_RETRY_MS

    def final_checkpoint(self) -> bytes:
        """The checkpoint of a store all of which is durable."""
        log, c = self._log, self.checkpoint
        log.flushed = log.issued = c.replay_from = log.end
        c.last_record = log.last_offset
        c.log_timestamp = c.queues_timestamp = c.index_timestamp = log.last_timestamp
        c.index_end = self._index.end_offset
        self.saved_replay_from = log.end
        self._unsaved = False
        return checkpoints.encode(self._durable())

    def confirm(self, upto: int) -> None:
        """Readers may see the log up to there: every replica that counts has it. The checkpoint is to say so."""
        assert self._gate is not None and upto <= self._log.end, f"confirmed up to {upto} of {self._log.end}"
        if self._gate.confirm(upto):
            self._unsaved = True

    # ---- a queue that begins anew ----

    def hold_back(self, offset: int) -> bool:
        """May durable units of records from `offset` of the log on go? Not before a checkpoint is durable that lets a
        start read the log from there: it writes them again, unless it finds what they went for. False: ask again when
        the checkpoint that this asks for is saved."""
        if offset < self._floor:
            self._floor = offset
            self._urgent = self.saved_replay_from > offset or self._saving
            self.checkpoint.replay_from = min(self.checkpoint.replay_from, offset)
            if self._round is not None:
                self._round = min(self._round[0], offset), *self._round[1:]
        return not self._saving and self.saved_replay_from <= self._floor

    def let_go(self) -> None:
        """What the units went for is in the log: the next round makes all of it durable, if not yet in the log."""
        if self._floor < EVERYTHING:
            floor = self._floor if self._held is None else min(self._floor, self._held[0])
            self._held = floor, self._log.end
            self._floor, self._urgent, self.hurry = EVERYTHING, False, True

    # ---- a cut ----

    def clamp(self, end: int) -> Checkpoint:
        """The log is about to end at `end`: the checkpoint to save first. It promises nothing beyond from now on."""
        c = self.checkpoint
        self._most = end
        c.replay_from = min(c.replay_from, end)
        self.saved_replay_from = min(self.saved_replay_from, end)
        self.saved_log_end = min(self.saved_log_end, end)
        c.index_end = min(c.index_end, end - 1)
        if c.last_record >= end:
            c.last_record = -1
        if self._round is not None:
            upto, last, timestamp, index_end = self._round
            self._round = min(upto, end), last if last < end else -1, timestamp, min(index_end, end - 1)
        return self._durable()

    def truncated(self, end: int, index_end: int) -> None:
        """The log ends there; `index_end` is what is left in the index."""
        self.checkpoint.index_end = min(self.checkpoint.index_end, index_end)
        self._most = EVERYTHING
        if self._held is not None:
            self._held = self._held[0], min(self._held[1], end)
        self._cuts.append(end)
        self._unsaved = True

    # ---- events ----

    def handle(self, event: object) -> list[Effect]:
        """Take in that something became durable."""
        if isinstance(event, Flushed):
            upto = min((event.upto, *self._cuts[event.cuts :]))
            if upto > self._log.flushed:
                self._log.flushed = upto
                self._log.issued = max(self._log.issued, upto)  # a cut takes back what was issued
                self.checkpoint.log_timestamp = event.timestamp
                self._unsaved = True
        elif isinstance(event, PieceFlushed):
            if self._round is not None:
                del self._pieces[:1]
                return self._next_piece()
        elif isinstance(event, CheckpointSaved):
            self.saved_replay_from = min(event.replay_from, self._most)  # it was on its way when the cut began
            self.saved_log_end = min(event.log_end, self._most)
            self._saving = False
        return []

    def tick(self, now: Millis) -> list[Effect]:
        effects: list[Effect] = []
        due = self._log_due()
        if due is not None and due <= now:
            self._log_at = now
            if now - self._log_thorough_at >= self._config.flush_commit_log_thorough_interval:
                self._log_thorough_at = now
            effects.append(self.flush([]))
        due = self._round_due()
        if due is not None and due <= now:
            effects += self._begin_round(now)
        due = self._save_due()
        if due is not None and due <= now:
            effects += self._save(now)
        return effects

    def next_deadline(self) -> Millis | None:
        return soonest(self._log_due(), self._round_due(), self._save_due())

    def unfinished(self) -> list[Syncable]:
        """All that may not be durable yet, for a last sync at the stop."""
        log = self._log
        files: list[Syncable] = [*log.files_between(log.flushed, log.end)]
        for piece in self._pieces:
            files += piece
        self._pieces = []
        self._round = None
        return files + self.take_dirty() + list(self._folders.take_again())
