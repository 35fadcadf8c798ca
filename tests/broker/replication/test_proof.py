"""A slave that comes back compares its last record with the master's: it follows nobody with another history."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.harness import Rig
from perseid.base.machine import Closed, Frames, Note, Opened
from perseid.replication.config import ReplicationConfig
from perseid.wire import command
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode
from perseid.wire.command import Command

MASTER, HA_PORT = "10.0.0.1:10911", "10.0.0.1:10912"
MAIN, HA = 500, 501


class World:
    """A slave with so many records, and a master that is this test."""

    def __init__(self, root: Path, count: int = 3) -> None:
        whole = Rig(root)
        for number in range(count):
            whole.send("T", 0, b"m%d" % number)
        offset = whole.parts.store.reads.last_record()
        self.offset = -1 if offset is None else offset
        self.record = b"" if offset is None else bytes(whole.parts.store.reads.record_at(offset) or b"")
        self.end = whole.parts.store.log.end
        whole.stop()
        whole.disk.unlock("lock")
        self.rig = Rig(root, broker_role="SLAVE", broker_id=1, replication=ReplicationConfig(ha_master_address=HA_PORT))
        self.rig.parts.registration.master_address = MASTER
        self.open()

    def open(self) -> None:
        """Whoever is dialled is there."""
        for _ in range(5):
            dialled, self.rig.dialled = self.rig.dialled, []
            for address in dialled:
                conn, listener = (HA, "ha") if address == HA_PORT else (MAIN, "")
                self.rig.streams.setdefault(HA, bytearray())
                self.rig.handle(Opened(conn, address, "10.0.0.2:5", listener, address))

    def asked(self) -> list[Command]:
        """What the master is asked for."""
        found = [one for one in self.rig.sent.get(MAIN, []) if one.code == Code.VIEW_MESSAGE_BY_ID]
        self.rig.sent[MAIN] = []
        return found

    def answer(self, code: int, body: bytes = b"", remark: str = "") -> None:
        *_, one = self.asked()
        assert int(one.ext["offset"] or -1) == self.offset
        self.rig.handle(Frames(MAIN, command.encode_response(one.opaque, code, None, body, remark=remark)))

    @property
    def follows(self) -> bool:
        """Did it report its log's end, which asks for what comes next?"""
        return bool(self.rig.streams[HA])

    def notes(self, level: str) -> list[Note]:
        return [note for note in self.rig.notes if note.level == level]


def test_the_same_record_is_the_same_history(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert not world.follows, "nothing before the proof"
    world.answer(0, world.record)
    assert bytes(world.rig.streams[HA]) == world.end.to_bytes(8, "big")
    assert not world.notes("error")


@pytest.mark.parametrize(
    ("code", "remark", "words"),
    [
        (0, "", "the histories differ. Wipe this slave's store"),
        (ResponseCode.SYSTEM_ERROR, "can not find message by the offset", "Wipe the store of the one that is wrong"),
    ],
)
def test_another_history_is_never_followed(tmp_path: Path, code: int, remark: str, words: str) -> None:
    world = World(tmp_path)
    world.answer(code, world.record[:-1] + b"?" if code == 0 else b"", remark)
    (note,) = world.notes("error")
    assert words in note.text and HA in world.rig.closed
    for _ in range(40):
        world.rig.until(world.rig.now + 1_000)
        world.open()
        if world.rig.sent.get(MAIN):
            world.answer(code, b"other", remark)
    assert not world.follows
    assert 1 < len(world.notes("error")) < 20, "it looks again now and then: somebody may have mended the other one"


def test_a_master_that_can_not_be_asked_is_asked_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.answer(ResponseCode.SYSTEM_BUSY, remark="later")
    assert not world.follows and not world.notes("error")
    assert any("can't be asked" in note.text for note in world.notes("warning"))
    world.rig.until(world.rig.now + 10_000)
    world.open()
    world.rig.handle(Closed(MAIN, "lost"))
    assert not world.follows and not world.notes("error")
    for _ in range(10):
        world.rig.until(world.rig.now + 1_000)
        world.open()
        if world.rig.sent.get(MAIN):
            break
    world.answer(0, world.record)
    assert world.follows


def test_what_can_not_be_compared_is_said(tmp_path: Path) -> None:
    """Nobody told where the master takes requests: its HA port alone proves nothing."""
    world = World(tmp_path, count=0)
    assert world.follows and not world.asked(), "there is nothing to compare"
    assert not any("unproven" in note.text for note in world.rig.notes)
