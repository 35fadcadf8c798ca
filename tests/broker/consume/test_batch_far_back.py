"""Topics of batches, far back in the log: what is not in memory is waited for, and comes in smaller answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.harness import NOW, SMALL, Rig
from broker.metadata.test_batch_topics import PULL, TOPIC, messages, send, send_batch
from broker.requests import SUBSCRIPTION, SUSPEND, pull_header
from perseid.wire.bodies import TopicConfig
from perseid.wire.command import Command
from perseid.wire.record import decode_all

from .test_fetches import LOG, Memory

UNITS = f"batchconsumequeue/{TOPIC}/0/00000000000000000000"


def made(root: Path, **store: Any) -> Rig:
    """100 batches of 3, of which the last few are hot."""
    rig = Rig(root, store=replace(SMALL, **store))
    kind = {"+queue.type": "BatchCQ"}
    rig.parts.topics.update(TopicConfig(topic_name=TOPIC, attributes=kind, read_queue_nums=1, write_queue_nums=1), NOW)
    for number in range(100):
        assert send_batch(rig, *[b"%d" % (3 * number + n) for n in range(3)]).code == 0
    return rig


def tell(rig: Rig, offset: int, *, flag: int = SUBSCRIPTION, **fields: Any) -> int:
    return rig.tell(PULL, pull_header(topic=TOPIC, queue_offset=offset, sys_flag=flag, **fields))


def test_a_pull_waits_for_units_and_then_for_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory(monkeypatch)
    rig = made(tmp_path, hot_bytes=2_000)
    memory.cold = {LOG, UNITS}
    first = tell(rig, 4, max_msg_nums=9)
    assert rig.answer(first) is None and [part[0].path for part in rig.fetches[0].parts] == [UNITS]
    rig.fetch()
    answer = rig.answer(first)
    assert answer is not None and messages(answer)[0] == (3, b"3")
    second = tell(rig, 12, max_msg_nums=9)
    ((file, at, size),) = rig.fetches[0].parts
    assert file.path == LOG
    assert decode_all(bytes(file.view(at, size)))[0].queue_offset == 12, "from the first that is wanted"
    rig.fetch()
    answer = rig.answer(second)
    assert answer is not None and messages(answer)[0] == (12, b"12")


@pytest.mark.parametrize(("hot_bytes", "offset"), [(64 << 20, 0), (2_000, 297), (2_000, 300), (2_000, 400)])
def test_nothing_is_waited_for_that_is_hot_or_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hot_bytes: int, offset: int
) -> None:
    """Whatever the kernel says of it: the whole log is hot, its end is, or the queue does not have the offset."""
    memory = Memory(monkeypatch)
    rig = made(tmp_path, hot_bytes=hot_bytes)
    memory.cold = {LOG, UNITS} if offset != 297 else {LOG}
    opaque = tell(rig, offset, flag=SUBSCRIPTION | SUSPEND)
    assert not rig.fetches
    answer: Command | None = rig.answer(opaque)
    if offset < 300:
        assert answer is not None and messages(answer)[0] == (offset, b"%d" % offset)
    elif offset == 300:
        assert answer is None, "it waits for a message, and for no disk"
        memory.cold.clear()
        send(rig, b"300")
        answer = rig.answer(opaque)
        assert answer is not None and messages(answer) == [(300, b"300")]


@pytest.mark.parametrize(
    ("limits", "least", "most"),
    [
        ({"max_transfer_count_on_message_in_disk": 6}, 6, 6),
        ({"max_transfer_bytes_on_message_in_disk": 700}, 3, 9),
        ({}, 8, 12),
    ],
)
def test_an_answer_from_far_back_is_a_smaller_one(
    tmp_path: Path, limits: dict[str, int], least: int, most: int
) -> None:
    """As of other queues; the last records, which are in memory, come by the limits of memory."""
    rig = made(tmp_path, **{"access_message_in_memory_max_ratio": 0, "physical_memory_bytes": 1, **limits})
    answer = rig.ask(PULL, pull_header(topic=TOPIC, queue_offset=0, sys_flag=SUBSCRIPTION))
    assert least <= len(messages(answer)) <= most
    assert int(answer.ext["nextBeginOffset"]) == len(messages(answer))
    near = made(tmp_path / "near", **limits)
    answer = near.ask(PULL, pull_header(topic=TOPIC, queue_offset=0, sys_flag=SUBSCRIPTION))
    assert len(messages(answer)) > most
