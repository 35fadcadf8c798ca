"""What the nodes of a DLedger 0.3.2 group say to one another, and how its entries stand on disk (dledger.md §2, 7).

Requests and responses are remoting commands without ext fields: all is in a JSON body. The header of a response always
says 200; what it means is the body's `code`. Members that Java derives (`count`, `batch`, …) are neither read nor
written.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from typing import Any

import msgspec

from perseid.base.machine import Buffer
from perseid.wire.body import Body
from perseid.wire.headers.base import Int, Long

HEADER_CODE = 200
"""Of every response."""
MAX_ENTRIES = 10_000
"""Of one push."""


class DLedgerRequest(IntEnum):
    """Request codes. PULL (51003) is never answered by the original, and unknown here."""

    METADATA = 50000
    APPEND = 50001
    GET = 50002
    VOTE = 51001
    HEART_BEAT = 51002
    PUSH = 51004
    LEADERSHIP_TRANSFER = 51005


class Code(IntEnum):
    """What a response means."""

    UNKNOWN = -1
    SUCCESS = 200
    TIMEOUT = 300
    NETWORK_ERROR = 302
    UNKNOWN_GROUP = 400
    UNKNOWN_MEMBER = 401
    UNEXPECTED_MEMBER = 402
    EXPIRED_TERM = 403
    NOT_LEADER = 404
    NOT_FOLLOWER = 405
    INCONSISTENT_STATE = 406
    INCONSISTENT_TERM = 407
    INCONSISTENT_INDEX = 408
    INCONSISTENT_LEADER = 409
    INDEX_OUT_OF_RANGE = 410
    UNEXPECTED_ARGUMENT = 411
    REPEATED_PUSH = 413
    DISK_ERROR = 414
    DISK_FULL = 415
    TERM_NOT_READY = 416
    FALL_BEHIND_TOO_MUCH = 417
    TAKE_LEADERSHIP_FAILED = 418
    REQUEST_WITH_EMPTY_BODYS = 420
    INTERNAL_ERROR = 500
    TERM_CHANGED = 501
    WAIT_QUORUM_ACK_TIMEOUT = 502
    LEADER_PENDING_FULL = 503
    ILLEGAL_MEMBER_STATE = 504
    LEADER_NOT_READY = 505
    LEADER_TRANSFERRING = 506


class Vote:
    """Vote results, by their names."""

    UNKNOWN = "UNKNOWN"
    ACCEPT = "ACCEPT"
    UNKNOWN_LEADER = "REJECT_UNKNOWN_LEADER"
    UNEXPECTED_LEADER = "REJECT_UNEXPECTED_LEADER"
    EXPIRED_LEDGER_TERM = "REJECT_EXPIRED_LEDGER_TERM"
    SMALL_LEDGER_END_INDEX = "REJECT_SMALL_LEDGER_END_INDEX"
    EXPIRED_VOTE_TERM = "REJECT_EXPIRED_VOTE_TERM"
    ALREADY_HAS_LEADER = "REJECT_ALREADY_HAS_LEADER"
    ALREADY_VOTED = "REJECT_ALREADY_VOTED"
    TERM_NOT_READY = "REJECT_TERM_NOT_READY"
    TERM_SMALL_THAN_LEDGER = "REJECT_TERM_SMALL_THAN_LEDGER"
    TAKING_LEADERSHIP = "REJECT_TAKING_LEADERSHIP"


class Push:
    """Kinds of a push."""

    APPEND = "APPEND"
    COMMIT = "COMMIT"
    COMPARE = "COMPARE"
    TRUNCATE = "TRUNCATE"


# ---- entries ----

ENTRY_MAGIC, BLANK_MAGIC = 1, -1
ENTRY_HEADER = Struct(">iiqqqiiii")
"""magic, size, index, term, pos, channel, chainCrc, bodyCrc, bodySize"""
ENTRY_HEADER_BYTES = ENTRY_HEADER.size
BLANK = Struct(">ii")
BLANK_BYTES = 8
INDEX_UNIT = Struct(">iqiqq")
"""magic, pos, size, index, term"""
INDEX_UNIT_BYTES = INDEX_UNIT.size


class Entry(msgspec.Struct, rename="camel"):
    """One entry of a log. `pos` is where it stands in the data files; the checksums are always 0, as from Java."""

    index: Long = -1
    term: Long = -1
    pos: Long = 0
    body: bytes = b""
    magic: Int = ENTRY_MAGIC
    channel: Int = 0
    size: Int = 0

    @property
    def disk_bytes(self) -> int:
        """What it takes on disk."""
        return ENTRY_HEADER_BYTES + len(self.body)

    def same(self, other: Entry) -> bool:
        """As a COMPARE sees it: all but the checksums."""
        ours = self.magic, self.index, self.term, self.pos, self.channel, self.body
        return ours == (other.magic, other.index, other.term, other.pos, other.channel, other.body)

    def encode(self) -> tuple[Buffer, Buffer]:
        """Header and body as they stand on disk."""
        size = self.disk_bytes
        head = (ENTRY_MAGIC, size, self.index, self.term, self.pos, self.channel, 0, 0, len(self.body))
        return ENTRY_HEADER.pack(*head), self.body

    def unit(self) -> Buffer:
        """Its place in the index."""
        return INDEX_UNIT.pack(ENTRY_MAGIC, self.pos, self.disk_bytes, self.index, self.term)

    def json(self) -> str:
        """Its text in a push."""
        return (
            f'{{"body":"{_base64(self.body)}","bodyCrc":0,"chainCrc":0,"channel":{self.channel},"index":{self.index},'
            f'"magic":{self.magic},"pos":{self.pos},"size":{self.disk_bytes},"term":{self.term}}}'
        )


def _base64(data: Buffer) -> str:
    return b2a_base64(data, newline=False).decode("ascii")


# ---- bodies ----


class Message(Body):
    """What every body begins with."""

    group: str | None = None
    remote_id: str | None = None
    local_id: str | None = None
    leader_id: str | None = None
    term: Long = -1
    code: Int = Code.SUCCESS


class VoteRequest(Message):
    """leaderId and localId are the candidate."""

    ledger_end_index: Long = -1
    ledger_end_term: Long = -1


class VoteResponse(Message):
    """The names of the request come back in it."""

    vote_result: str = Vote.UNKNOWN


class HeartBeatRequest(Message):
    """From a leader."""


class HeartBeatResponse(Message):
    """A success has no term."""


class PushEntryRequest(Message):
    """One entry, or a batch of them, or none (COMMIT)."""

    type: str = Push.APPEND
    commit_index: Long = -1
    entry: Entry | None = None
    batch_entry: list[Entry] = msgspec.field(default_factory=list)

    @property
    def entries(self) -> list[Entry]:
        """What it carries, in the one form or the other."""
        return self.batch_entry or ([self.entry] if self.entry is not None else [])

    @property
    def first(self) -> int | None:
        """The index of the first one."""
        return self.entries[0].index if self.entries else None

    @property
    def count(self) -> int:
        return len(self.entries)

    @property
    def body_bytes(self) -> int:
        """Of their bodies, about."""
        return sum(len(entry.body) for entry in self.entries)

    def to_json(self) -> bytes:
        return push_text(self, self.type, self.commit_index, self.entries)

    def to_json_with(self, entries: bytes, count: int) -> bytes:
        """The same with `count` entries whose texts, with commas between them, are made already."""
        return _push(self, self.type, self.commit_index, entries, count)


def push_text(base: Message, kind: str, commit_index: int, entries: Sequence[Entry]) -> bytes:
    """A push as Java writes it; more than one entry are a batch."""
    return _push(base, kind, commit_index, ",".join([entry.json() for entry in entries]).encode(), len(entries))


def _push(base: Message, kind: str, commit_index: int, entries: bytes, count: int) -> bytes:
    head = f'],"code":{Code.SUCCESS:d},"commitIndex":{commit_index},'
    tail = (
        f'"group":"{base.group}","leaderId":"{base.leader_id}","localId":"{base.local_id}",'
        f'"remoteId":"{base.remote_id}","term":{base.term},"type":"{kind}"}}'
    )
    batch, single = (entries, b"") if count != 1 else (b"", b'"entry":%b,' % entries)
    return b"".join((b'{"batchEntry":[', batch, head.encode(), single, tail.encode()))


class PushEntryResponse(Message):
    """`index` is the first one's; `beginIndex` and `endIndex` are the follower's range."""

    index: Long | None = None
    count: Int = 0
    begin_index: Long = -1
    end_index: Long = -1

    def to_json(self) -> bytes:
        names_nobody = self.remote_id is self.local_id is self.leader_id is None
        if self.group is None or self.index is None or not names_nobody:
            return super().to_json()
        return (  # one for each push, in a third of the time
            f'{{"beginIndex":{self.begin_index},"code":{self.code:d},"count":{self.count},"endIndex":{self.end_index},'
            f'"group":"{self.group}","index":{self.index},"term":{self.term}}}'
        ).encode()


class AppendEntryRequest(Message):
    """Of a client. The batch form (`batchMsgs`) can't be told apart by the original's server; here it can."""

    body: bytes | None = None
    batch_msgs: list[bytes] = msgspec.field(default_factory=list)

    def to_json(self) -> bytes:
        batch = ",".join(f'"{_base64(body)}"' for body in self.batch_msgs)
        members = (
            f'"batchMsgs":[{batch}]' if batch else "",
            f'"body":"{_base64(self.body)}"' if self.body is not None else "",
            f'"code":{self.code:d}',
            f'"group":"{self.group}"',
            f'"leaderId":"{self.leader_id}"' if self.leader_id is not None else "",
            f'"localId":"{self.local_id}"' if self.local_id is not None else "",
            f'"remoteId":"{self.remote_id}"',
            f'"term":{self.term}',
        )
        return f"{{{','.join(filter(None, members))}}}".encode()


class AppendEntryResponse(Message):
    """Where the entry stands."""

    index: Long = -1
    pos: Long = -1


class GetEntriesRequest(Message):
    """One entry, whatever else is asked for."""

    begin_index: Long | None = None
    max_size: Int = 0


class GetEntriesResponse(Message):
    """What was asked for."""

    entries: list[Entry] = msgspec.field(default_factory=list)

    def to_json(self) -> bytes:
        entries = ",".join(entry.json() for entry in self.entries)
        leader = f'"leaderId":"{self.leader_id}",' if self.leader_id else ""
        group = f'"group":"{self.group}",' if self.group else ""
        return f'{{"code":{self.code:d},"entries":[{entries}],{group}{leader}"term":{self.term}}}'.encode()


class MetadataRequest(Message):
    """Asked by clients; and by our followers, of all peers, when the leader's connection is gone. `wants_status` is
    ours."""

    wants_status: bool | None = None


class MetadataResponse(Message):
    """Ours are `hears`: does this node hear the leader that it names; and `status`, when it is asked for."""

    peers: dict[str, str] = msgspec.field(default_factory=dict)
    hears: bool | None = None
    status: dict[str, Any] | None = None


class LeadershipTransferRequest(Message):
    """To the leader: let `transfereeId` lead; and from it to that member, with the index that its log has to reach."""

    transfer_id: str | None = None
    transferee_id: str | None = None
    take_leadership_ledger_index: Long = -1


class LeadershipTransferResponse(Message):
    """Only code and term."""
