"""Who a broker is, through crashes at each step."""

from __future__ import annotations

from random import Random

import pytest

from perseid.broker.replication.identity import CLAIM_PATH, PATH, Claim, Identity, IdentityRefused, load
from perseid.sim.disk import SimDisk

OWN = Identity("C", "b", 2)


def disk(**files: bytes) -> SimDisk:
    made = SimDisk(Random(1))
    for path, text in files.items():
        made.write({"identity": PATH, "claim": CLAIM_PATH}[path], text)
    return made


def test_nothing_a_claim_an_identity_and_both() -> None:
    claim = Claim(OWN, "10.0.0.1:1;5")
    assert load(disk(), "C", "b") is None
    assert load(disk(claim=claim.encode()), "C", "b") == claim
    assert load(disk(identity=OWN.encode()), "C", "b") == OWN
    assert load(disk(identity=OWN.encode(), claim=claim.encode()), "C", "b") == OWN


def test_a_torn_claim_is_made_anew() -> None:
    assert load(disk(claim=b"C#b#2"), "C", "b") is None
    assert load(disk(claim=b"C#b##x"), "C", "b") is None


@pytest.mark.parametrize("text", [b"C#b", b"C#b#x", b"C##2", b"C#b#2#3", b"D#b#2", b"C#c#2", b"C#b#0", b"\xff#b#1"])
def test_an_identity_that_is_not_ours(text: bytes) -> None:
    with pytest.raises(IdentityRefused, match=PATH):
        load(disk(identity=text), "C", "b")
