"""What a broker that becomes master makes of what it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.harness import NOW, Rig
from broker.streams import ALONE
from perseid.broker.replication.new_master import RECENT_MS
from perseid.wire.bodies import TopicConfig


def rows(rig: Rig) -> dict[str, tuple[int, int]]:
    """Of the topics of this test: queues to read from and to write to."""
    names = ("A", "B", "D")
    found = {name: rig.parts.topics.rows.get(name) for name in names}
    return {name: (row.read_queue_nums, row.write_queue_nums) for name, row in found.items() if row is not None}


@pytest.mark.parametrize("age_ms", [0, RECENT_MS, RECENT_MS + 1])
def test_topics_of_the_last_moments_come_with_their_messages(tmp_path: Path, age_ms: int) -> None:
    """Their rows were in no copy of the old master's table. An older topic that has no row was deleted."""
    rig = Rig(tmp_path, raft=ALONE, default_topic_queue_nums=4)
    for name, queues in (("A", 9), ("B", 2), ("%RETRY%g", 1)):
        rig.parts.topics.update(TopicConfig(name, queues, queues), rig.now)
    for name, queue_id in (("A", 6), ("A", 2), ("B", 1), ("%RETRY%g", 0)):
        rig.send(name, queue_id)
    first = rig.now
    rig.until(first + age_ms)
    rig.parts.topics.update(TopicConfig("D", 1, 1), rig.now)
    rig.send("D", 0)
    assert rig.parts.store.log.last_timestamp - first == age_ms
    rig.stop()
    (tmp_path / "config" / "topics.json").unlink()
    again = Rig(tmp_path, now=rig.now, raft=ALONE, default_topic_queue_nums=4)
    expected = {"A": (7, 7), "B": (4, 4)} if age_ms <= RECENT_MS else {}
    assert rows(again) == {**expected, "D": (4, 4)}
    told = [note.text.split()[1] for note in again.notes if "without a row" in note.text]
    assert {*told} - {"%RETRY%g"} == {*expected, "D"}
    retry = again.parts.topics.rows["%RETRY%g"]
    assert retry.read_queue_nums == 1, "as many as there were"
    assert again.send("D", 3).queue_offset == 0


def test_a_broker_alone_knows_all_its_topics(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.send("A", 0)
    rig.stop()
    (tmp_path / "config" / "topics.json").unlink()
    assert rows(Rig(tmp_path, now=NOW)) == {}


def test_who_leads_its_group_says_so_and_who_starts_what_it_found(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "group", raft=ALONE)
    rig.send("A", 0)
    rig.disk.unlock("lock")
    again = Rig(tmp_path / "group", now=rig.now, raft=ALONE)
    assert any(note.text.startswith("elected") for note in again.notes)
    plain = Rig(tmp_path / "plain")
    assert plain.saved[:1] == ["config/topics.json"], "what a first start makes is saved at once"
    plain.send("A", 0)
    plain.disk.unlock("lock")
    again = Rig(tmp_path / "plain", now=plain.now)
    assert not [note for note in again.notes if "timer" in note.text], "nothing waits, so nothing is taken in anew"
    again.disk.unlock("lock")
    with (tmp_path / "plain" / "commitlog" / f"{0:020d}").open("r+b") as log:
        log.seek(again.parts.store.log.end)
        log.write(b"half a record")
    found = Rig(tmp_path / "plain", now=plain.now)
    assert any("cut off 13 bytes" in note.text for note in found.notes if note.level == "info"), found.notes
