"""Acks of lite topics where nothing is known of what is out."""

from pathlib import Path

from broker.lites import GROUP, PARENT, ack, new, pop, send, subscribe
from perseid.wire.lite import queue_name

A = queue_name(PARENT, "a")


def test_an_ack_of_what_nobody_knows_to_be_out_passes_over_nothing(tmp_path: Path) -> None:
    """After a crash, or at another master: what is before it was not acknowledged."""
    rig = new(tmp_path)
    subscribe(rig, "a")
    for number in range(3):
        send(rig, "a", b"%d" % number)
    got = pop(rig, max_msg_num=3)
    rig.parts.lite.order.forget()
    assert ack(rig, got[2]).code == 13 and rig.parts.offsets.query(A, GROUP, 0) == 0
    assert ack(rig, got[0]).code == 0 and rig.parts.offsets.query(A, GROUP, 0) == 1
