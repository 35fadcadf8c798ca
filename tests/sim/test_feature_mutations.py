"""Defects planted into what features rely on: a promise of the feature is broken by a seed of its model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from perseid.broker import capabilities, node
from perseid.broker.composition import Parts
from perseid.broker.kernel.capability import Capability, Timer
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.metadata.topics import TopicTable
from perseid.broker.pop.order import ConsumeOrder
from perseid.broker.pop.service import PopService
from perseid.broker.produce.appender import Appender
from perseid.broker.produce.inner_batches import InnerBatches
from perseid.broker.static_topics import mappings
from perseid.broker.static_topics import requests as mapped
from perseid.broker.static_topics.mappings import TopicMappings
from perseid.broker.static_topics.requests import StaticTopicRequests
from perseid.sim.features.mapped import OLDER
from perseid.sim.features.played import KNOWN
from perseid.sim.models.registry import MODELS
from perseid.sim.options import Options
from perseid.sim.selection import Selection
from perseid.store import inner
from perseid.store.compaction.queue import CompactedQueue
from perseid.wire.codes import RequestCode as Code
from perseid.wire.pop import Ack, Checkpoint

from .planted import Mutation, seek
from .regressions import FEATURED

FIRST = 700_000

# ---- pop ----


def acks_count_when_they_are_shown(patch: pytest.MonkeyPatch) -> None:
    """A message whose ack is written, and not committed yet, is shown again when its time is over."""
    real = PopService._written

    def written(self: PopService, queue_id: int, stored: Any, record: Any) -> None:
        real(self, queue_id, stored, record)
        if isinstance(record, Ack):
            self._told.clear()

    patch.setattr(PopService, "_written", written)


def a_new_master_knows_no_pops(patch: pytest.MonkeyPatch) -> None:
    """What the last master handed out is forgotten."""
    real = capabilities.arrange

    def arrange(parts: Parts, found: tuple[Capability, ...], settle: Callable[[], None]) -> tuple[Timer, ...]:
        for one in found:
            begin = partial(_begin_at_the_end, parts)
            one.hooks = tuple(hook._replace(lead=begin, at_start=False) if hook.name == "pop" else hook
                              for hook in one.hooks)  # fmt: skip
            one.loads += (parts.pop.start,) if one.name == "pop" and not parts.roles.is_slave else ()
        return real(parts, found, settle)

    patch.setattr(node, "arrange", arrange)


def _begin_at_the_end(parts: Parts) -> None:
    parts.pop.start(parts.turn.now)
    for queue in parts.pop._queues:
        queue.at = queue.end
    parts.pop.loaded = True
    parts.pop._open.clear()
    parts.pop._due.clear()
    for queue in parts.pop._queues:
        queue.open.clear()


def pops_answered_at_once(patch: pytest.MonkeyPatch) -> None:
    """A pop is answered before its checkpoint is committed."""
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
            self.acknowledge = lambda ack, queue: delattr(self, "acknowledge")  # type: ignore[method-assign]
        return stored

    patch.setattr(PopService, "open", opened)


# ---- batches ----


def units_of_one_message(patch: pytest.MonkeyPatch) -> None:
    """A start takes a record of several messages for one."""
    patch.setattr(inner, "span", lambda record: None)


def batches_answered_at_once(patch: pytest.MonkeyPatch) -> None:
    """A batch is answered before all in sync have it."""
    real = InnerBatches.send

    def send(self: InnerBatches, *rest: Any) -> Any:
        self.appender.acknowledge = lambda request, reply, end_offset, wait: reply  # type: ignore[method-assign]
        try:
            return real(self, *rest)
        finally:
            del self.appender.acknowledge

    patch.setattr(InnerBatches, "send", send)


def a_new_master_knows_no_topics(patch: pytest.MonkeyPatch) -> None:
    """Topics that were made by request go with the master of whom they were asked."""
    real = TopicTable.bump

    def bump(self: TopicTable, now: int, state_version: int | None = None) -> None:
        if (state_version or 0) > 1:
            for name in [name for name in self.rows if not self.is_system(name)]:
                self.delete(name, now)
        real(self, now, state_version)

    patch.setattr(TopicTable, "bump", bump)


# ---- lite ----


def nothing_is_blocked(patch: pytest.MonkeyPatch) -> None:
    """Of a lite topic messages are handed out while others are out."""
    patch.setattr(ConsumeOrder, "blocked", lambda self, *arguments: False)


def an_ack_counts_for_all_before_it(patch: pytest.MonkeyPatch) -> None:
    """An ack moves the group behind its message, whatever is not acknowledged before it."""
    real = ConsumeOrder.acknowledged

    def acknowledged(self: ConsumeOrder, *arguments: Any) -> int | None:
        following = real(self, *arguments)
        return None if following is None else max(following, arguments[3] + 1)

    patch.setattr(ConsumeOrder, "acknowledged", acknowledged)


# ---- compaction ----


def files_outlive_the_log(patch: pytest.MonkeyPatch) -> None:
    """After a crash a compacted topic keeps what the log has lost."""
    patch.setattr(CompactedQueue, "fit_the_log", lambda self: False)


def the_last_one_goes_too(patch: pytest.MonkeyPatch) -> None:
    """A compaction leaves out the last message of each key, too."""
    real = CompactedQueue._map

    def mapped(self: CompactedQueue, part: Any, unit: Any) -> None:
        real(self, part, unit)
        self._keys = {key: max(offset, unit.base + 1) for key, offset in self._keys.items()}

    patch.setattr(CompactedQueue, "_map", mapped)


# ---- static topics ----


def a_start_knows_no_mappings(patch: pytest.MonkeyPatch) -> None:
    """A start does not read the mappings."""
    patch.setattr(TopicMappings, "load", lambda self, text: None)


def any_epoch_is_taken(patch: pytest.MonkeyPatch) -> None:
    """A broker takes whatever mapping it is told."""
    patch.setattr(mappings, "_check_change", lambda old, new: None)


def a_slave_keeps_its_first_mapping(patch: pytest.MonkeyPatch) -> None:
    """A slave does not copy what becomes of a mapping."""
    real = TopicMappings.adopt
    patch.setattr(TopicMappings, "adopt", lambda self, rows, version: not self.rows and real(self, rows, version))


def an_item_begins_at_the_beginning(patch: pytest.MonkeyPatch) -> None:
    """Answers to sends count what was in the queue before it became an item."""
    real = mapped._sent
    patch.setattr(mapped, "_sent", lambda queue_id, item, reply: real(queue_id, replace(item, start_offset=0), reply))


def nothing_follows_an_item(patch: pytest.MonkeyPatch) -> None:
    """A reader at the end of an item is not sent on to the next one."""
    patch.setattr(mapped, "following", lambda items, item: None)


def sends_go_where_they_went(patch: pytest.MonkeyPatch) -> None:
    """A logical queue that was moved takes messages where it was before."""
    real = StaticTopicRequests._send

    def send(self: StaticTopicRequests, request: Any, detail: Any, handler: Any) -> Any:
        before = {queue_id: items[:1] for queue_id, items in detail.hosted_queues.items()}
        return real(self, request, replace(detail, hosted_queues=before), handler)

    patch.setattr(StaticTopicRequests, "_send", send)


EARLY, ENDLESS = "nothing comes before its time", "what was begun comes to its end"
PLANTED: list[tuple[str, str, Mutation, str]] = [
    ("pop", "dledger", acks_count_when_they_are_shown, EARLY),
    ("pop", "dledger", more_time_without_the_ack, EARLY),
    ("pop", "ha", a_new_master_knows_no_pops, ENDLESS),
    ("pop", "ha", pops_answered_at_once, "a message is handed out once"),
    ("batches", "broker", units_of_one_message, ""),
    ("batches", "ha", batches_answered_at_once, ""),
    ("batches", "ha", a_new_master_knows_no_topics, "a topic stays"),
    ("lite", "broker", nothing_is_blocked, "one at a time"),
    ("compaction", "broker", the_last_one_goes_too, "the last one of a key stays"),
    ("compaction", "ha", the_last_one_goes_too, "the last one of a key stays"),
    ("lite", "ha", an_ack_counts_for_all_before_it, "nothing is passed over"),
    ("static", "broker", a_start_knows_no_mappings, OLDER),
    ("static", "acting", any_epoch_is_taken, OLDER),
    ("static", "ha", a_slave_keeps_its_first_mapping, ENDLESS),
    ("static", "dledger", an_item_begins_at_the_beginning, ""),
    ("static", "broker", nothing_follows_an_item, ENDLESS),
    ("static", "broker", sends_go_where_they_went, "a logical queue goes on in its last item"),
]
"""Feature, model, defect, and the promise that it breaks ("": any)."""


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.sim
@pytest.mark.parametrize(
    ("feature", "model", "mutation", "promise"),
    PLANTED,
    ids=[f"{feature}-{model}-{mutation.__name__}" for feature, model, mutation, _ in PLANTED],
)
def test_a_planted_defect_is_found(feature: str, model: str, mutation: Mutation, promise: str) -> None:
    seek(mutation, partial(MODELS[model].run, options=Options(features=(feature,))), promise=promise, first=FIRST)


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.sim
def test_files_that_outlive_the_log_are_found() -> None:
    options = Options(features=("compaction",), selection=Selection(swarm=True, rarities=False))
    play = partial(MODELS["broker"].run, options=options)
    seek(files_outlive_the_log, play, promise="a place keeps its message", first=FIRST)


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.parametrize(("model", "seed"), FEATURED)
def test_a_seed_that_once_failed(model: str, seed: int) -> None:
    drawn, alone = seed > 10_000_000, seed < 9_300_000
    features = None if drawn else ("static",) if alone else tuple(KNOWN[model])
    result = MODELS[model].run(seed, Options(features=features))
    assert not result.failure, result.failure
