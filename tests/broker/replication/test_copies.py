"""What a slave copies of its master: pages, versions, failures, and offsets that were committed to the slave."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.harness import Rig
from perseid.base.machine import ConnectFailed, Opened
from perseid.broker.consume.offsets import ConsumerOffsets
from perseid.broker.replication import copies
from perseid.wire import command
from perseid.wire.bodies import DataVersion
from perseid.wire.codes import RequestCode
from perseid.wire.headers.topics import CreateTopicRequest

MASTER = "10.0.0.1:10911"
CONN = 500


class Two:
    """A master and a slave whose questions are carried to it."""

    def __init__(self, root: Path) -> None:
        self.master = Rig(root / "master")
        self.slave = Rig(root / "slave", broker_role="SLAVE", broker_id=1)
        self.asked: list[int] = []

    def meet(self) -> None:
        """The slave learns where the master is."""
        rig = self.slave
        rig.parts.turn.now = rig.now
        rig.parts.turn.begin(rig.now)
        rig.parts.replicas.copies.follow(MASTER, rig.now)
        rig._carry_out(rig.parts.turn._effects)
        rig.handle(Opened(CONN, MASTER, "10.0.0.2:4000", "", MASTER))
        self.carry()

    def carry(self) -> None:
        """Questions to the master, answers back, until there are none."""
        while questions := [c for c in self.slave.sent.pop(CONN, []) if not c.is_response]:
            for one in questions:
                self.asked.append(one.code)
                answer = self.master.ask(one.code, one.ext, bytes(one.body))
                frame = command.encode_response(one.opaque, answer.code, answer.ext, bytes(answer.body))
                self.slave.handle(command_frames(frame))

    def topic(self, name: str, queues: int = 4) -> None:
        header = CreateTopicRequest(
            topic=name, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=6,
            topic_filter_type="SINGLE_TAG",
        )  # fmt: skip
        assert self.master.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header).code == 0

    def later(self) -> None:
        """The next round."""
        for rig in (self.slave, self.master):
            rig.until(rig.now + copies.CHECK_MS)
        self.carry()


def command_frames(frame: bytes) -> object:
    from perseid.base.machine import Frames

    return Frames(CONN, frame)


def test_the_first_round_comes_at_once_and_brings_everything(tmp_path: Path) -> None:
    two = Two(tmp_path)
    two.topic("T", 7)
    two.master.parts.groups.find("group", two.master.config, two.master.now)
    two.master.parts.offsets.commit("T", "group", 0, 5, two.master.now, 1)
    two.meet()
    ours, theirs = two.slave.parts, two.master.parts
    assert two.asked == [21, 43, 45, 60, 61, 201, 402]
    assert ours.topics.rows == theirs.topics.rows and ours.topics.version == theirs.topics.version
    assert ours.groups.rows == theirs.groups.rows and ours.groups.version == theirs.groups.version
    assert ours.offsets.query("T", "group", 0) == 5
    assert "config/topics.json" in two.slave.saved and "config/subscriptionGroup.json" in two.slave.saved


def test_what_changes_and_goes_follows(tmp_path: Path) -> None:
    two = Two(tmp_path)
    two.topic("T")
    two.topic("U")
    two.meet()
    assert two.master.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 0
    two.topic("U", 9)
    two.later()
    assert two.slave.parts.topics.rows == two.master.parts.topics.rows and "T" not in two.slave.parts.topics
    saved = len(two.slave.saved)
    two.later()
    assert len(two.slave.saved) == saved, "what is the same is not saved again"


def test_tables_of_several_pages_come_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "PAGE_ROWS", 3)
    two = Two(tmp_path)
    for number in range(10):
        two.topic(f"T{number}")
    two.meet()
    assert two.slave.parts.topics.rows == two.master.parts.topics.rows
    assert two.asked.count(21) > 3 and two.slave.parts.groups.rows == two.master.parts.groups.rows


def test_a_master_that_is_away_is_one_line_until_it_is_back(tmp_path: Path) -> None:
    two = Two(tmp_path)
    two.meet()
    rig = two.slave
    notes = len(rig.notes)
    rig.leave(CONN)
    for _ in range(4):
        rig.until(rig.now + copies.CHECK_MS)
        rig.handle(ConnectFailed(MASTER, "refused"))
    assert sum("copied again later" in note.text for note in rig.notes[notes:]) == 1


# ---- offsets ----


def table(offset: int) -> dict[str, dict[int, int]]:
    return {"T@g": {0: offset}}


def test_a_commit_to_the_slave_stays_until_the_master_has_reached_it() -> None:
    offsets = ConsumerOffsets(0)
    offsets.follow()
    offsets.adopt(table(5), None)
    offsets.commit("T", "g", 0, 9, 0, 1)
    offsets.adopt(table(5), DataVersion(counter=3))
    assert offsets.query("T", "g", 0) == 9 and offsets.version.counter == 3
    offsets.adopt(table(10), None)
    assert offsets.query("T", "g", 0) == 10
    offsets.adopt(table(2), None)
    assert offsets.query("T", "g", 0) == 2, "a group that was set back is set back here too"
    offsets.validate()


def test_what_the_master_does_not_know_any_more_goes() -> None:
    offsets = ConsumerOffsets(0)
    offsets.follow()
    offsets.adopt({"T@g": {0: 1, 1: 2}, "U@g": {0: 3}}, None)
    offsets.adopt({"T@g": {0: 1}}, None)
    assert offsets.query("T", "g", 1) is None and offsets.query("U", "g", 0) is None
    offsets.validate()
