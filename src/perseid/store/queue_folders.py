"""The folders of consume queues of both kinds: which there are, and what is loaded from them."""

from __future__ import annotations

from collections.abc import Callable

from perseid.disk.port import Disk
from perseid.store import batch_queue, simple_queue
from perseid.store.batch_queue import BatchQueue
from perseid.store.config import StoreConfig
from perseid.store.consume_queue import ConsumeQueue
from perseid.store.results import QueueKey
from perseid.store.segments import Folders
from perseid.store.simple_queue import SimpleQueue

FOLDERS = (simple_queue.FOLDER, batch_queue.FOLDER)


def may_be(topic: str, queue_id: int) -> bool:
    """Can there be such a queue? Its folders have these names."""
    return bool(topic) and "/" not in topic and "\0" not in topic and topic not in (".", "..") and queue_id >= 0


def of_topic(topic: str) -> list[str]:
    """Where the queues of a topic may be."""
    return [f"{kind}/{topic}" for kind in FOLDERS]


def folder(topic: str, queue_id: int, batch: bool) -> str:
    """That of a queue of one kind."""
    return f"{FOLDERS[batch]}/{topic}/{queue_id}"


def made(
    disk: Disk, folders: Folders, config: StoreConfig, topic: str, queue_id: int, batch: bool
) -> ConsumeQueue:
    """A queue without files."""
    if batch:
        return BatchQueue(disk, folders, topic, queue_id, config.batch_consume_queue_file_bytes)
    return SimpleQueue(disk, folders, topic, queue_id, config.consume_queue_file_bytes)


def load(
    disk: Disk,
    queues: dict[QueueKey, ConsumeQueue],
    log_start: int,
    made: Callable[[str, int, bool], ConsumeQueue],
) -> list[str]:
    """Take in the files of all queues into `queues`, of objects that `made` makes; returns those that are missing
    between others. Where both kinds are there of one queue, that with batches counts: a topic of that name was there
    before it."""
    gaps: list[str] = []
    for kind in FOLDERS:
        for topic in disk.list(kind):
            for number in disk.list(f"{kind}/{topic[:-1]}") if topic.endswith("/") else []:
                if number.endswith("/") and number[:-1].isascii() and number[:-1].isdigit():
                    queue = made(topic[:-1], int(number[:-1]), kind == batch_queue.FOLDER)
                    missing = queue.load(log_start)
                    gaps += [queue.segments.path(start) for start in missing]
                    if queue.segments.starts:
                        queues[queue.topic, queue.queue_id] = queue
    return gaps
