from __future__ import annotations

from pathlib import Path

import pytest

from perseid.base.errors import StoreError
from perseid.broker.consume import offsets as module
from perseid.broker.consume.offsets import ConsumerOffsets
from perseid.wire import fastjson

NOW = 1_700_000_000_000
STEP = 500


@pytest.fixture
def offsets() -> ConsumerOffsets:
    return ConsumerOffsets(NOW)


def commit(offsets: ConsumerOffsets, offset: int, queue_id: int = 0, topic: str = "T", group: str = "g") -> bool:
    return offsets.commit(topic, group, queue_id, offset, NOW + 1, STEP)


def test_commit_and_query(offsets: ConsumerOffsets) -> None:
    assert offsets.query("T", "g", 0) is None and not offsets.dirty
    assert commit(offsets, 7)
    assert offsets.query("T", "g", 0) == 7 and offsets.dirty
    assert offsets.query("T", "g", 1) is None and offsets.query("T", "h", 0) is None
    assert commit(offsets, 3)
    assert offsets.query("T", "g", 0) == 3, "a client may go back"


def test_the_version_rises_once_in_so_many_commits(offsets: ConsumerOffsets) -> None:
    for i in range(STEP - 1):
        commit(offsets, i)
    assert offsets.version.counter == 0
    commit(offsets, 1)
    assert (offsets.version.counter, offsets.version.timestamp) == (1, NOW + 1)


def test_a_reset_is_stronger_until_it_is_taken_up(offsets: ConsumerOffsets) -> None:
    commit(offsets, 100)
    offsets.reset("T", "g", 0, 5)
    assert offsets.has_reset("T", "g", 0) and offsets.query("T", "g", 0) == 5
    assert not commit(offsets, 101), "the client still commits its old position"
    assert offsets.query("T", "g", 0) == 5
    assert offsets.take_reset("T", "g", 0) == 5
    assert offsets.take_reset("T", "g", 0) is None and not offsets.has_reset("T", "g", 0)
    assert offsets.query("T", "g", 0) == 5, "it was committed as well"
    assert commit(offsets, 6) and offsets.query("T", "g", 0) == 6
    offsets.validate()


def test_impossible_resets_have_no_effect(offsets: ConsumerOffsets) -> None:
    offsets.reset("T", "g", -1, 5)
    offsets.reset("T", "g", 0, -5)
    assert offsets.query("T", "g", 0) is None and not offsets.dirty


def test_pull_offsets(offsets: ConsumerOffsets) -> None:
    assert offsets.pull_offset("T", "g", 0) is None
    commit(offsets, 3)
    assert offsets.pull_offset("T", "g", 0) == 3
    offsets.pulled("T", "g", 0, 9)
    assert offsets.pull_offset("T", "g", 0) == 9 and offsets.query("T", "g", 0) == 3


def test_a_deleted_topic_is_forgotten_whole(offsets: ConsumerOffsets) -> None:
    for topic in ("T", "U"):
        for group in ("g", "h"):
            commit(offsets, 5, topic=topic, group=group)
            offsets.pulled(topic, group, 0, 6)
            offsets.reset(topic, group, 1, 4)
    offsets.forget_topic("T")
    assert offsets.groups_of("T") == set() and offsets.groups_of("U") == {"g", "h"}
    assert not offsets.has_reset("T", "g", 1) and offsets.pull_offset("T", "g", 0) is None
    offsets.forget_group("g")
    assert offsets.topics_of("g") == set() and offsets.topics_of("h") == {"U"}
    assert not offsets.has_reset("U", "g", 1) and offsets.has_reset("U", "h", 1)
    offsets.validate()


def test_clone(offsets: ConsumerOffsets) -> None:
    commit(offsets, 5)
    commit(offsets, 6, queue_id=1)
    offsets.clone("T", "g", "copy")
    assert offsets.queues_of("T", "copy") == {0: 5, 1: 6}
    commit(offsets, 9)
    assert offsets.queues_of("T", "copy") == {0: 5, 1: 6}


def test_lowest_offsets_of_all_groups(offsets: ConsumerOffsets) -> None:
    commit(offsets, 5, group="a")
    commit(offsets, 8, group="b")
    commit(offsets, 2, group="gone")
    commit(offsets, 4, group="skipped")
    commit(offsets, 1, topic="U")
    lowest = offsets.min_per_queue("T", frozenset({"skipped"}), lambda queue_id: 3)
    assert lowest == {0: 5}


def test_the_number_of_offsets_is_bounded(offsets: ConsumerOffsets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OFFSETS", 2)
    for queue_id in range(5):
        commit(offsets, 1, queue_id=queue_id)
    commit(offsets, 1, group="h")
    offsets.pulled("T", "a", 0, 1)
    offsets.pulled("T", "b", 0, 1)
    offsets.pulled("T", "c", 0, 1)
    assert offsets.queues_of("T", "g") == {0: 1, 1: 1} and offsets.queues_of("T", "h") == {}
    assert offsets.pull_offset("T", "c", 0) is None
    commit(offsets, 9)
    assert offsets.query("T", "g", 0) == 9, "what is there may still move"
    offsets.validate()


# ---- the file ----


def test_a_file_written_by_java(offsets: ConsumerOffsets) -> None:
    text = (Path(__file__).parents[1] / "data" / "consumerOffset.json").read_bytes()
    offsets.load(text)
    assert offsets.queues_of("GoldenA", "golden_group") == {0: 32, 1: 23, 2: 27, 3: 17}
    assert offsets.pull_offset("SCHEDULE_TOPIC_XXXX", "golden_reader", 17) == 2
    assert offsets.topics_of("golden_reader") == set()
    assert not offsets.dirty
    assert fastjson.loads(offsets.to_json()) == fastjson.loads(text)
    offsets.validate()


def test_what_is_saved_comes_back_without_pending_resets(offsets: ConsumerOffsets) -> None:
    commit(offsets, 5, topic="%RETRY%g")
    offsets.pulled("T", "g", 2, 9)
    offsets.reset("T", "g", 0, 3)
    other = ConsumerOffsets(0)
    other.load(offsets.to_json())
    assert other.query("%RETRY%g", "g", 0) == 5 and other.query("T", "g", 0) == 3
    assert other.pull_offset("T", "g", 2) == 9 and not other.has_reset("T", "g", 0)
    assert other.version == offsets.version
    other.validate()


def test_for_slaves(offsets: ConsumerOffsets) -> None:
    commit(offsets, 12)
    commit(offsets, 9, queue_id=1)
    assert offsets.for_slaves() == (
        b'{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":%d},"offsetTable":{"T@g":{0:12,1:9}}}' % NOW
    )


def test_keys_that_no_broker_wrote_are_left_out(offsets: ConsumerOffsets) -> None:
    offsets.load(b'{"offsetTable":{"T@g":{0:1},"T":{0:1},"@g":{0:1},"T@":{0:1},"a@b@c":{0:1}}}')
    assert offsets.groups_of("T") == {"g"} and offsets.topics_of("g") == {"T"}


def test_a_file_that_is_none(offsets: ConsumerOffsets) -> None:
    with pytest.raises(StoreError, match=r"consumerOffset\.json"):
        offsets.load(b'{"offsetTable":{"T@g":{"x":1}}}')
