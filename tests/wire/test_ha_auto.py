"""The frames of AutoSwitch replication and the file of epochs, beside what the original's classes wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perseid.base.errors import RemoteProtocolError
from perseid.broker.replication.identity import Claim, Identity
from perseid.replication.auto_switch.epochs import Epochs, consistent_point
from perseid.wire import ha_auto
from perseid.wire.ha_auto import EpochEntry, Packet

VECTORS: dict[str, str] = json.loads((Path(__file__).parent / "ha-auto-vectors.json").read_text())
END, FIRST = 315, 210
TWO = [EpochEntry(1, 0), EpochEntry(2, FIRST)]


def entries(*pairs: tuple[int, int]) -> list[EpochEntry]:
    return [EpochEntry(*pair) for pair in pairs]


def test_a_slaves_frames_are_javas() -> None:
    hello = ha_auto.encode_slave_handshake(2, from_last_file=False, learner=False)
    assert hello.hex() == VECTORS["slaveHandshake.hex"] == VECTORS["realSlaveHandshake.hex"]
    assert ha_auto.decode_slave_handshake(hello) == (False, False, 2)
    for offset, key in ((0, "slaveTransferAck0"), (END, "slaveTransferAckEnd"), (FIRST, "realSlave.ackAfterData")):
        report = ha_auto.encode_report(offset)
        assert report.hex() == VECTORS[f"{key}.hex"]
        assert ha_auto.decode_report(report) == offset


def test_a_masters_frames_are_javas() -> None:
    hello = ha_auto.encode_master_handshake(TWO, END)
    assert hello.hex() == VECTORS["masterHandshake.hex"]
    size, end = ha_auto.decode_master_handshake_head(hello)
    assert (size, end) == (24, END)
    assert ha_auto.decode_entries(hello[ha_auto.MASTER_HANDSHAKE_BYTES :]) == TWO
    beat = ha_auto.encode_packet(Packet(0, END, 2, FIRST, END))
    assert beat.hex() == VECTORS["masterHeartbeat.hex"]
    first = bytes.fromhex(VECTORS["masterTransfer.first.frame.hex"])
    assert ha_auto.decode_packet(first) == (FIRST, 0, 2, FIRST, END), "B10: it names the next epoch"
    assert first[ha_auto.PACKET_BYTES :].hex() == VECTORS["commitlog.3msgs.hex"][: 2 * FIRST]


def test_our_first_packet_names_the_epoch_of_its_bytes() -> None:
    epochs = Epochs(TWO)
    assert epochs.owner(0) == (TWO[0], FIRST)
    assert epochs.owner(FIRST)[0] == epochs.owner(END)[0] == TWO[1]
    assert Epochs(entries((3, 100))).owner(5) == ((3, 100), 100), "a log that is older than its epochs"


def test_the_file_of_epochs_is_javas() -> None:
    listed = entries((1, 0), (2, 1000), (5, 4096))
    assert ha_auto.encode_epoch_file(listed).decode() == VECTORS["epochFile.text"]
    assert ha_auto.decode_epoch_file(VECTORS["epochFile.text"].encode()) == listed
    assert ha_auto.decode_epoch_file(b"1\n0\n7-9\n") == entries((7, 9)), "0: unchecked"
    assert ha_auto.encode_epoch_file([]) == b"0\n0\n" and ha_auto.decode_epoch_file(b"0\n0\n") == []


@pytest.mark.parametrize(
    "text",
    [b"", b"1\n", b"x\ny\n", b"1\n5\n1-0\n", b"2\n0\n1-0\n", b"2\n0\n2-0\n1-5\n", b"1\n0\n1-0-0\n", b"\xff\n0\n"],
)
def test_a_file_of_epochs_that_is_none(text: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        ha_auto.decode_epoch_file(text)


@pytest.mark.parametrize(
    ("ours", "end", "theirs", "their_end"),
    [
        (((1, 0), (2, 100)), 200, ((1, 0), (3, 150)), 400),
        (((1, 0), (2, 100)), 200, ((1, 0), (2, 100), (3, 180)), 400),
        (((1, 0),), 100, ((2, 0),), 100),
        (((1, 0), (2, 100)), 200, ((2, 100),), 150),
        (((1, 0), (2, 200)), 200, ((1, 0), (3, 200)), 300),
    ],
)
def test_the_consistent_point_is_javas(
    ours: tuple[tuple[int, int], ...], end: int, theirs: tuple[tuple[int, int], ...], their_end: int,
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    number = ["ours0", "ours1", "ours2", "ours3", "ours4"].index(request.node.callspec.id.split("-")[0])
    expected = int(VECTORS["findConsistent"].split()[number])
    assert consistent_point(entries(*ours), end, entries(*theirs), their_end) == expected


def test_adopting_a_masters_epochs() -> None:
    epochs = Epochs(entries((1, 0), (2, 100)))
    assert epochs.adopt(entries((1, 0), (3, 150)), 100)
    assert epochs.entries == entries((1, 0), (3, 150))
    assert not epochs.adopt(entries((1, 0), (3, 150)), 150), "the same entry at the end stays"
    assert epochs.adopt(entries((1, 0), (4, 120)), 120) and epochs.entries == entries((1, 0), (4, 120))


def test_beginning_an_epoch_drops_those_without_a_byte() -> None:
    epochs = Epochs(entries((1, 0), (2, 100)))
    epochs.begin(3, 100)
    assert epochs.entries == entries((1, 0), (3, 100))
    epochs.begin(4, 100)
    assert epochs.entries == entries((1, 0), (4, 100)), "the same master, and nothing was written"
    epochs.begin(5, 130)
    assert epochs.entries[-1] == (5, 130) and epochs.at_end(130) == 4 and epochs.at_end(131) == 5
    assert epochs.drop_before(100) and epochs.entries == entries((4, 100), (5, 130))


@pytest.mark.parametrize("head", [(-12, 5), (13, 5), (12 * 1001, 5), (12, -1)])
def test_a_handshake_that_lies_about_itself(head: tuple[int, int]) -> None:
    size, end = (number.to_bytes(width, "big", signed=True) for number, width in zip(head, (4, 8), strict=True))
    data = (1).to_bytes(4, "big") + size + end + bytes(4)
    with pytest.raises(RemoteProtocolError):
        ha_auto.decode_master_handshake_head(data)


def test_the_identity_files_are_javas() -> None:
    own = Identity("DefaultCluster", "broker-a", 2)
    assert own.encode().decode() == VECTORS["broker.brokerIdentity"]
    assert Claim(own, "127.0.0.1:10911;1700000000000").encode().decode() == VECTORS["broker.brokerIdentity-temp"]
