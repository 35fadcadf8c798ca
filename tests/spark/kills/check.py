"""Is each message there once? What was acknowledged, what the topics hold, and what readers make of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from tests.spark.kills.driver import ARCHIVED, COPIED, SOURCE, TARGET
from tests.spark.kills.load import Place, digest_of

from perseid.client import PullOptions
from perseid.client.blocking import BlockingPullConsumer

Copy = tuple[Place, str, Place, bytes]
"""Where a copied message stands, its key, where it came from, its digest."""


@dataclass
class Found:
    """What the checks counted."""

    source: int
    """Messages in the source topic."""
    acknowledged: int
    repeats: int = 0
    """Messages that the target topic holds again."""


def check(namesrv: str, folder: Path, acknowledged: Mapping[Place, bytes], jobs: Iterable[str]) -> Found:
    """AssertionError when something is missing, twice, changed, or out of order."""
    topic = {(queue, offset): digest_of(body) for (queue, offset), body, _ in _messages(namesrv, SOURCE)}
    wrong = [place for place, digest in acknowledged.items() if topic.get(place) != digest]
    assert not wrong, f"{len(wrong)} acknowledged messages are not where they were acknowledged: {sorted(wrong)[:10]}"
    found = Found(len(topic), len(acknowledged))
    if "archive" in jobs:
        rows = pq.read_table(folder / ARCHIVED).to_pylist()
        table = [((row["queueId"], row["queueOffset"]), digest_of(row["value"])) for row in rows]
        check_once("the table", table, topic)
    if "sink" in jobs:
        by_client = list(_copies(namesrv, dedupe=True))
        by_source = [
            ((row["queueId"], row["queueOffset"]), row["keys"], _place(row["came"]), digest_of(row["value"]))
            for row in pq.read_table(folder / COPIED).to_pylist()
        ]
        for reader, copies in (("perseid.client", by_client), ("the source", sorted(by_source))):
            check_once(f"the target, read by {reader}", [(came, digest) for _, _, came, digest in copies], topic)
            check_order(reader, copies)
        assert by_client == sorted(by_source), "both readers see the same copies"
        found.repeats = sum(1 for _ in _messages(namesrv, TARGET)) - len(topic)
    return found


def check_once(what: str, rows: list[tuple[Place, bytes]], topic: Mapping[Place, bytes]) -> None:
    """Each message of the topic is there, once, as it was."""
    counts = Counter(place for place, _ in rows)
    twice = sorted(place for place, count in counts.items() if count > 1)
    assert not twice, f"{what}: {len(twice)} messages are there more than once: {twice[:10]}"
    missing = sorted(topic.keys() - counts.keys())
    assert not missing, f"{what}: {len(missing)} of {len(topic)} messages are missing: {missing[:10]}"
    wrong = [place for place, digest in rows if topic.get(place) != digest]
    assert not wrong, f"{what}: {len(wrong)} messages are not those of the topic: {wrong[:10]}"


def check_order(reader: str, copies: list[Copy]) -> None:
    """The messages of a queue of the source with one key stand in one queue, in the order in which they came."""
    last: dict[tuple[int, str], Copy] = {}
    for copy in copies:
        place, key, came, _ = copy
        before = last.get((came[0], key))
        if before is not None:
            assert before[0][0] == place[0] and before[2] < came, f"{reader}: {copy} stands behind {before}"
        last[came[0], key] = copy


def _messages(namesrv: str, topic: str, *, dedupe: bool = False) -> Iterable[tuple[Place, bytes, dict[str, Any]]]:
    with BlockingPullConsumer(namesrv, "kills-check", options=PullOptions(dedupe=dedupe)) as consumer:
        for queue in consumer.queues(topic):
            for found in consumer.read(queue, 0, consumer.max_offset(queue)):
                for message in found:
                    yield (queue.queue_id, message.queue_offset), message.body, message.properties


def _copies(namesrv: str, *, dedupe: bool) -> Iterable[Copy]:
    for place, body, properties in _messages(namesrv, TARGET, dedupe=dedupe):
        yield place, properties["KEYS"], _place(properties["from"]), digest_of(body)


def _place(text: str) -> Place:
    queue, offset = text.split()
    return int(queue), int(offset)
