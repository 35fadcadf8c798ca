"""Defects planted into POP, each of which breaks the promise that it should within so many seeds; and seeds that once
failed."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from perseid.base.machine import Millis
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.metadata.topics import TopicConfig
from perseid.broker.pop.gathered import Gathered
from perseid.broker.pop.requests import PopRequests
from perseid.broker.pop.service import Open, PopService
from perseid.broker.produce.appender import Appender
from perseid.sim.models.broker.run import run
from perseid.sim.options import Options
from perseid.sim.selection import Selection
from perseid.wire.codes import RequestCode as Code
from perseid.wire.pop import Ack, Checkpoint, retry_topic_v1

from .planted import Mutation, seek

FIRST = 20_000

REGRESSIONS = {
    24: "a checkpoint of one second was taken for one of the original's, and waited for ever after the clock went back",
    39: "the same, with slaves",
}


def offsets_as_saved(patch: pytest.MonkeyPatch) -> None:
    """A start trusts the saved offsets: checkpoints that moved them since are not heeded."""
    real = PopService._read

    def read(self: PopService, *arguments: Any) -> None:
        moved, self._move = self._move, lambda *_: None  # type: ignore[method-assign]
        try:
            real(self, *arguments)
        finally:
            self._move = moved  # type: ignore[method-assign]

    patch.setattr(PopService, "_read", read)


def checkpoints_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A start begins at the end of the revive log."""
    real = PopService.start

    def start(self: PopService, now: Millis) -> None:
        reads = self._reads
        for queue in range(8):
            end = reads.max_offset(self.topic, queue)
            if end:
                self._commit(self.topic, "CID_RMQ_SYS_REVIVE_GROUP", queue, end - 1)
        real(self, now)

    patch.setattr(PopService, "start", start)


def progress_past_what_is_open(patch: pytest.MonkeyPatch) -> None:
    """Progress is told of all that was read."""

    def tell(self: PopService) -> None:
        for queue in self._queues if self.loaded else ():
            self._commit(self.topic, "CID_RMQ_SYS_REVIVE_GROUP", queue.id, queue.at - 1)

    patch.setattr(PopService, "tell_progress", tell)


def acks_in_memory(patch: pytest.MonkeyPatch) -> None:
    """An ack closes its checkpoint, and is not written."""

    def acknowledge(self: PopService, ack: Ack, queue_id: int) -> None:
        if self._open.get(ack.key) is not None:
            self._acknowledge(self._queues[queue_id], 0, ack)

    patch.setattr(PopService, "acknowledge", acknowledge)


def one_ack_of_a_turn_written(patch: pytest.MonkeyPatch) -> None:
    """Of the acks of a checkpoint that share a turn all are answered, and the first one alone is written."""
    real = PopService._write_gathered

    def write(self: PopService, queue_id: int, gathered: Gathered) -> None:
        real_joined = gathered.joined
        with pytest.MonkeyPatch.context() as within:
            first = real_joined._replace(offsets=real_joined.offsets[:1])
            within.setattr(Gathered, "joined", property(lambda self: first))
            real(self, queue_id, gathered)

    patch.setattr(PopService, "_write_gathered", write)


def revived_too_early(patch: pytest.MonkeyPatch) -> None:
    """What is not acknowledged comes again after half of its time."""
    real = PopService._schedule

    def schedule(self: PopService, one: Open) -> None:
        if one.checkpoint is not None:
            one.due = min(one.due, one.checkpoint.pop_time + one.checkpoint.invisible_time // 2)
        real(self, one)

    patch.setattr(PopService, "_schedule", schedule)


def never_revived(patch: pytest.MonkeyPatch) -> None:
    """What is not acknowledged is closed when its time is over."""

    def revive(self: PopService, one: Open) -> bool:
        self._close(one)
        return True

    patch.setattr(PopService, "_revive", revive)


def one_message_of_a_checkpoint_revived(patch: pytest.MonkeyPatch) -> None:
    """Of several messages that are not acknowledged the first one alone comes again."""
    real = PopService._revive

    def revive(self: PopService, one: Open) -> bool:
        if one.checkpoint is not None:
            one.owed += one.left[1:]
        return real(self, one)

    patch.setattr(PopService, "_revive", revive)


def handed_out_before_the_flush(patch: pytest.MonkeyPatch) -> None:
    """Pops are answered before what they wrote is durable."""
    real = Appender.acknowledge

    def acknowledge(self: Appender, request: Request, reply: Reply, end_offset: int, wait: bool) -> Reply | None:
        at_once = request.command.code == Code.POP_MESSAGE
        return reply if at_once else real(self, request, reply, end_offset, wait)

    patch.setattr(Appender, "acknowledge", acknowledge)


def more_time_without_the_ack(patch: pytest.MonkeyPatch) -> None:
    """Another time for a message leaves the old checkpoint open."""
    real = PopService.open

    def opened(self: PopService, checkpoint: Checkpoint, next_offset: int) -> Any:
        stored = real(self, checkpoint, next_offset)
        if checkpoint.again is not None:
            patched = self.acknowledge
            self.acknowledge = lambda ack, queue: delattr(self, "acknowledge")  # type: ignore[method-assign]
            del patched
        return stored

    patch.setattr(PopService, "open", opened)


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.sim
@pytest.mark.parametrize(
    ("mutation", "promise"),
    [
        (offsets_as_saved, "a message is handed out once"),
        (checkpoints_forgotten, "a message is handed out once"),
        (progress_past_what_is_open, "nothing popped is lost"),
        (acks_in_memory, "what is acknowledged does not come again"),
        (one_ack_of_a_turn_written, "what is acknowledged does not come again"),
        (revived_too_early, "nothing comes before its time"),
        (never_revived, "nothing popped is lost"),
        (one_message_of_a_checkpoint_revived, "nothing popped is lost"),
        (handed_out_before_the_flush, "a message is handed out once"),
        (more_time_without_the_ack, "nothing comes before its time"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_planted_defect_is_found(mutation: Mutation, promise: str) -> None:
    seek(mutation, partial(run, options=Options(slaves=0, features=())), promise=promise, first=FIRST)


def old_retry_topic_left(patch: pytest.MonkeyPatch) -> None:
    """Since `enableRetryTopicV2` is set nobody looks into the retry topic that there was before."""
    real = PopRequests.places

    def places(self: PopRequests, header: Any, row: TopicConfig) -> list[tuple[str, int]]:
        before = retry_topic_v1(header.topic, header.consumer_group)
        left = self.settings.current.enable_retry_topic_v2
        return [place for place in real(self, header, row) if not (left and place[0] == before)]

    patch.setattr(PopRequests, "places", places)


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.sim
def test_a_planted_defect_of_a_setting_that_few_set_is_found() -> None:
    play = partial(run, options=Options(slaves=0, features=(), selection=Selection(swarm=True)))
    seek(old_retry_topic_left, play, promise="nothing popped is lost", first=50_000)


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.parametrize("seed", REGRESSIONS)
def test_seeds_that_once_failed(seed: int) -> None:
    result = run(seed, Options(features=()))
    assert not result.failure, result.failure
    assert result.counts["popped again"]
