"""Elections, splits and repairs as texts that can be read: `tests/transcripts/raft/*.txt`.

PERSEID_REWRITE_TRANSCRIPTS=1 writes the texts anew; read what has changed before it is kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from perseid.wire.dledger import DLedgerRequest

from .harness import append, entries, written
from .stage import Stage

FOLDER = Path(__file__).parents[1] / "transcripts" / "raft"


def led_by(stage: Stage, name: str, *bodies: str) -> Stage:
    """`name` leads in term 1, all have the bodies; none of it is in the transcript."""
    stage.start()
    for other in set(stage.seats) - {name}:
        stage[other].forget(DLedgerRequest.VOTE)
    stage.play(
        20_000, lambda: stage[name].raft.member.is_leader or any(seat.raft.leader for seat in stage.seats.values())
    )
    leader = stage.leader.name
    stage.play(100)
    if leader != name:
        stage.transfer(leader, name)
        stage.play(3_000, lambda: stage[name].raft.member.is_leader)
    assert stage.leader.name == name
    for body in bodies:
        append(stage[name], body.encode())
    stage.play(1_100)
    stage.lines.clear()
    stage.lines.append(f"        {name} leads in term {stage[name].raft.member.term}, all logs are: {' '.join(bodies)}")
    return stage


def first_election() -> Stage:
    """Three members start at once. Each votes for itself, so that nobody has a quorum in term 0; who waits least asks
    again, in the next term, and the others have not voted in that one."""
    stage = Stage()
    stage.start()
    stage.play(2_000, lambda: any(seat.raft.leader for seat in stage.seats.values()))
    stage.play(20)
    assert stage.leader.raft.member.term > 0
    return stage


def leader_dies() -> Stage:
    """A leader's process is killed. Its sockets close, its followers ask one another whether they hear it, and the one
    with the longer log leads 20 ms later: nobody waits for three intervals of 2 s."""
    stage = led_by(Stage(), "n0", "a", "b")
    stage.part("n0", "n2")
    stage.append("n0", "c")
    stage.play(5)
    stage.say("n0 is killed; n2 has not got entry 2")
    stage.kill("n0")
    stage.play(100, lambda: stage["n1"].raft.member.is_leader)
    stage.play(5)
    stage.append("n1", "d")
    stage.play_until_committed(3, "n1", "n2")
    return stage


def leader_vanishes() -> Stage:
    """A leader's machine vanishes without a word. Both followers wait for three intervals and ask at the same moment,
    first in the old term, where both have voted for n0 already. They wait for different times, and the next term is
    decided."""
    stage = led_by(Stage(), "n0", "a")
    stage.say("n0 has no power any more, and nobody is told")
    stage.kill("n0", power=True)
    stage.play(30_000, lambda: any(stage[name].raft.member.is_leader for name in ("n1", "n2")))
    stage.play(5)
    return stage


def partition() -> Stage:
    """A leader is cut off and goes on writing alone: nothing of it is acknowledged. The others elect a leader and write
    on. When all hear one another again the old leader's entries are cut, and the new one's stand in their place."""
    stage = led_by(Stage(), "n0", "a")
    stage.say("n0 is cut off from n1 and n2")
    stage.part("n0")
    stage.append("n0", "lost1", "lost2")
    stage.play(30_000, lambda: any(stage[name].raft.member.is_leader for name in ("n1", "n2")))
    new = stage.leader.name
    stage.append(new, "kept")
    stage.play_until_committed(1, "n1", "n2")
    stage.say("all hear one another again")
    stage.heal()
    stage.play_until_committed(1)
    assert [bytes(body) for body in stage["n0"].bodies] == [b"a", b"kept"]
    return stage


def catching_up() -> Stage:
    """A follower was away while entries 1 to 5 were written, and has one of its own that nobody else has. The leader
    looks for the last entry that both have (COMPARE), has what is behind it cut (TRUNCATE), and sends the rest."""
    stage = Stage()
    ours, theirs = entries(1, 1, 2, 2, 2, 2, text="x"), entries(1, 1, 1, text="x")
    for name in ("n0", "n1"):
        written(stage[name].disk, ours, term=2)
    written(stage["n2"].disk, theirs, term=2)
    stage.start("n0", "n1")
    stage.play(30_000, lambda: any(seat.raft.leader for seat in stage.seats.values()))
    stage.append(stage.leader.name, "y")
    stage.play_until_committed(6, "n0", "n1")
    stage.lines[:] = [f"        {stage.leader.name} leads; entries 0 to 6 are committed, and n2 is down"]
    stage.say("n2 starts")
    stage.start("n2")
    stage.play_until_committed(6)
    assert stage["n2"].bodies == stage["n0"].bodies
    return stage


def transfer() -> Stage:
    """An operator lets n2 lead. The leader takes no more appends; n2 goes to the next term as soon as its log is as
    long, and asks for votes at once: the group is without a leader for 20 ms."""
    stage = led_by(Stage(), "n0", "a")
    stage.transfer("n0", "n2")
    stage.append("n0", "refused")
    stage.play(3_000, lambda: stage["n2"].raft.member.is_leader)
    stage.append("n2", "b")
    stage.play_until_committed(1)
    return stage


def preferred_leader() -> Stage:
    """n1 is preferred. It was away; another one leads. When it is back and near enough, the leader asks it to take
    over."""
    stage = Stage(preferred_leader_ids="n1")
    stage.start("n0", "n2")
    stage.play(30_000, lambda: any(seat.raft.leader for seat in stage.seats.values()))
    stage.append(stage.leader.name, "a")
    stage.play_until_committed(0, "n0", "n2")
    stage.lines[:] = [f"        {stage.leader.name} leads, and n1 is down"]
    stage.say("n1 starts")
    stage.start("n1")
    stage.play(30_000, lambda: stage["n1"].raft.member.is_leader)
    stage.play(20)
    assert stage.leader.name == "n1"
    return stage


def older_terms() -> Stage:
    """Figure 8 of the Raft paper. A leader has an entry of an older term on a quorum, and must not call it committed:
    somebody with a later entry could still lead and cut it. It is committed by being before one of its own term."""
    stage = Stage()
    written(stage["n0"].disk, entries(1, 2), term=3, vote="n0")
    for name in ("n1", "n2"):
        written(stage[name].disk, entries(1), term=3)
    stage.lines.append("        n0 alone has entry 1, of term 2")
    stage.start()
    stage.play(30_000, lambda: stage["n0"].raft.member.is_leader)
    stage.play(1_500)
    assert all(seat.raft.log.end == 1 and seat.raft.committed == -1 for seat in stage.seats.values())
    stage.say("all have entry 1; it is not committed")
    stage.append("n0", "own-2")
    stage.play_until_committed(2)
    return stage


def crash_before_a_save() -> Stage:
    """A member's power goes after it has decided to vote and before its vote is on disk. The vote never left, so it
    may be given to another one in the same term (here to itself): no term has two leaders."""
    stage = Stage()
    for seat in stage.seats.values():
        written(seat.disk, entries(1), term=1)
    stage.start("n1")
    stage.play(1)
    stage["n1"].hold = True
    stage.start("n0")
    stage.play(3_000, lambda: any(b"voteLeader=n0" in getattr(held, "data", b"") for held in stage["n1"].held))
    term = stage["n0"].raft.member.term
    assert stage["n1"].raft.member.vote == "n0"
    stage.say("n1 has decided to vote for n0, its disk is not ready yet, and its power goes")
    stage.kill("n1")
    stage.again("n1", power=True)
    stage.play(2)
    assert (stage["n1"].raft.member.term, stage["n1"].raft.member.vote) != (term, "n0")
    stage.play(10_000, lambda: any(seat.raft.leader for seat in stage.seats.values()))
    stage.play(5)
    return stage


def disk_fails() -> Stage:
    """A follower's disk fails to sync. It may have lost what it was given, so that it answers nothing and ends; the
    other two are a quorum and go on."""
    stage = led_by(Stage(), "n0", "a")
    stage["n2"].disk.failing["sync"] = 1
    stage.append("n0", "b")
    stage.play_until_committed(1, "n0", "n1")
    assert stage["n2"].stopped is not None and stage["n0"].raft.member.is_leader
    return stage


def one_connection() -> Stage:
    """The connection between a leader and one follower is cut. The follower asks, the leader answers: it stays the
    leader, of the same term."""
    stage = led_by(Stage(), "n0", "a")
    term = stage["n0"].raft.member.term
    stage.say("the leader's connection to n1 is cut")
    (conn,) = [conn for conn, peer in stage["n0"].dialled.items() if peer == "n1"]
    stage["n0"].cut(conn)
    stage["n1"].cut(stage["n1"]._links["n0"])
    stage.play(8_000)
    stage.append("n0", "b")
    stage.play_until_committed(1)
    assert stage["n0"].where == ("leader", term, "n0")
    return stage


SCENARIOS: list[Callable[[], Stage]] = [
    first_election, leader_dies, leader_vanishes, partition, catching_up, transfer, preferred_leader, older_terms,
    crash_before_a_save, disk_fails, one_connection,
]  # fmt: skip


def played(scenario: Callable[[], Stage]) -> str:
    about = " ".join((scenario.__doc__ or "").split())
    lines, line = [], ""
    for word in about.split():
        if len(line) + len(word) > 110:
            lines, line = [*lines, line], ""
        line = f"{line} {word}".strip()
    return "\n".join([*lines, line, "", scenario().end()]) + "\n"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_transcript_is_what_happens(scenario: Callable[[], Stage]) -> None:
    path = FOLDER / f"{scenario.__name__}.txt"
    text = played(scenario)
    if os.environ.get("PERSEID_REWRITE_TRANSCRIPTS"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_each_transcript_has_its_scenario() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.txt")) == sorted(one.__name__ for one in SCENARIOS)
