"""The HA stream between a master and a slave under a controller, and the file of epochs (ha-autoswitch.md §2, §6).

    slave → master   handshake  state 4 = 1, from last file 2, learner 2, broker id 8
                     report     state 4 = 2, offset 8                          the end of the slave's log
    master → slave   handshake  state 4 = 1, size 4, log end 8, last epoch 4, then entries (epoch 4, start 8)
                     packet     state 4 = 2, size 4, offset 8, epoch 4, its start 8, confirm offset 8, then bytes

Big endian; no magic, no checksum. A packet without bytes is a heartbeat. Each frame is sent whole: the original takes
12 bytes of a handshake for all of it.

An *epoch* is the term of one master: its entry says with which byte of the log it began. It ends where the next begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import NamedTuple

from perseid.base.errors import RemoteProtocolError
from perseid.base.machine import Buffer
from perseid.wire.hashing import crc32

HANDSHAKE = 1
TRANSFER = 2
STATE_BYTES = 4
SLAVE_HANDSHAKE_BYTES = 16
REPORT_BYTES = 12
MASTER_HANDSHAKE_BYTES = 20
PACKET_BYTES = 36
ENTRY_BYTES = 12
MAX_ENTRIES = 1_000
"""Of one handshake, as many as the original's buffer holds."""
NO_EPOCH = -1

_STATE = Struct(">i")
_SLAVE_HANDSHAKE = Struct(">ihhq")
_REPORT = Struct(">iq")
_MASTER_HANDSHAKE = Struct(">iiqi")
_PACKET = Struct(">iiqiqq")
_ENTRY = Struct(">iq")


class EpochEntry(NamedTuple):
    """An epoch, and the offset of its first byte."""

    epoch: int
    start: int


class SlaveHandshake(NamedTuple):
    """Who wants to follow, and how."""

    from_last_file: bool
    learner: bool
    broker_id: int


class Packet(NamedTuple):
    """What stands before `size` bytes of the log."""

    size: int
    offset: int
    epoch: int
    epoch_start: int
    confirm: int


def state_of(data: Buffer, at: int = 0) -> int:
    """The first number of a frame."""
    state: int = _STATE.unpack_from(data, at)[0]
    return state


# ---- slave → master ----


def encode_slave_handshake(broker_id: int, *, from_last_file: bool, learner: bool) -> bytes:
    """The first frame of a connection."""
    return _SLAVE_HANDSHAKE.pack(HANDSHAKE, from_last_file, learner, broker_id)


def decode_slave_handshake(data: Buffer, at: int = 0) -> SlaveHandshake:
    """What 16 bytes say; whatever a stranger sent, ids below 1 too."""
    _, last, learner, broker_id = _SLAVE_HANDSHAKE.unpack_from(data, at)
    return SlaveHandshake(last == 1, learner == 1, broker_id)


def encode_report(offset: int) -> bytes:
    """A report of a log that ends at `offset`."""
    return _REPORT.pack(TRANSFER, offset)


def decode_report(data: Buffer, at: int = 0) -> int:
    """The offset that 12 bytes tell; whatever a stranger sent."""
    offset: int = _REPORT.unpack_from(data, at)[1]
    return offset


# ---- master → slave ----


def encode_master_handshake(entries: Sequence[EpochEntry], end: int) -> bytes:
    """All epochs of a log that ends at `end`; of more than `MAX_ENTRIES` the last ones."""
    entries = entries[-MAX_ENTRIES:]
    last = entries[-1].epoch if entries else NO_EPOCH
    head = _MASTER_HANDSHAKE.pack(HANDSHAKE, ENTRY_BYTES * len(entries), end, last)
    return head + b"".join(_ENTRY.pack(*entry) for entry in entries)


def decode_master_handshake_head(data: Buffer, at: int = 0) -> tuple[int, int]:
    """Bytes of entries that follow, and the log's end. RemoteProtocolError: they can't be right."""
    _, size, end, _ = _MASTER_HANDSHAKE.unpack_from(data, at)
    if not 0 <= size <= ENTRY_BYTES * MAX_ENTRIES or size % ENTRY_BYTES or end < 0:
        raise RemoteProtocolError(f"a handshake with {size} bytes of epochs, of a log that ends at {end}")
    return size, end


def decode_entries(data: Buffer) -> list[EpochEntry]:
    """The epochs of a handshake. RemoteProtocolError: they don't ascend."""
    entries = [EpochEntry(*pair) for pair in _ENTRY.iter_unpack(data)]
    check_entries(entries)
    return entries


def encode_packet(packet: Packet) -> bytes:
    """What stands before `packet.size` bytes."""
    return _PACKET.pack(TRANSFER, *packet)


def decode_packet(data: Buffer, at: int = 0) -> Packet:
    """What 36 bytes say; whatever a stranger sent."""
    return Packet(*_PACKET.unpack_from(data, at)[1:])


# ---- the file ----


def check_entries(entries: Sequence[EpochEntry]) -> None:
    """RemoteProtocolError unless epochs and starts ascend, from 0 on."""
    epoch, start = NO_EPOCH, -1
    for entry in entries:
        if entry.epoch <= epoch or entry.start <= start:
            raise RemoteProtocolError(f"epoch {entry.epoch} from {entry.start} after {epoch} from {start}")
        epoch, start = entry


def encode_epoch_file(entries: Iterable[EpochEntry]) -> bytes:
    """The text of `epochFileCheckpoint`: how many, a checksum of what follows, a line each."""
    lines = [f"{entry.epoch}-{entry.start}\n" for entry in entries]
    block = "".join(lines).encode()
    return f"{len(lines)}\n{crc32(block) & 0x7FFFFFFF}\n".encode() + block


def decode_epoch_file(text: bytes) -> list[EpochEntry]:
    """The epochs of a file. RemoteProtocolError: it is torn, or another program's."""
    lines = text.decode("ascii", "replace").splitlines()
    try:
        count, checksum = int(lines[0]), int(lines[1])
        pairs = [line.split("-") for line in lines[2:] if line]
        entries = [EpochEntry(int(epoch), int(start)) for epoch, start in pairs]
    except (ValueError, IndexError):
        raise RemoteProtocolError(f"no file of epochs: {text[:60]!r}") from None
    block = "".join(f"{epoch}-{start}\n" for epoch, start in entries).encode()
    if count != len(entries) or (checksum and checksum != crc32(block) & 0x7FFFFFFF):
        raise RemoteProtocolError(f"{len(entries)} epochs, {count} and another checksum were written")
    check_entries(entries)
    return entries
