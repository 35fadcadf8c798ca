"""What a member of a Raft group can be told. Names and defaults are DLedger's; the last group is ours."""

from __future__ import annotations

from dataclasses import dataclass

from perseid.base.config import option
from perseid.base.errors import ConfigError

MAX_PEERS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """Of one member. Times are milliseconds, sizes bytes."""

    group: str = option(
        "default",
        "The name of the group, the same on all members. A broker takes it from `dLegerGroup`, a controller from "
        "`controllerDLegerGroup`.",
        section="Group",
    )
    self_id: str = option(
        "n0",
        "Which of the peers this member is. A broker takes it from `dLegerSelfId`, a controller from "
        "`controllerDLegerSelfId`.",
    )
    peers: str = option(
        "n0-localhost:20911",
        "All members as `id-host:port;…`, this one too, at most 9; the same text on all of them. A broker takes them "
        "from `dLegerPeers`, a controller from `controllerDLegerPeers`.",
    )
    preferred_leader_ids: str = option(
        "",
        "The members that should lead, with `;` between them. A broker takes them from `preferredLeaderId`.",
    )

    heart_beat_time_interval_ms: int = option(
        2_000,
        "How often a leader sends heartbeats. The time that an election takes begins with it: `maxHeartBeatLeak` "
        "intervals of silence.",
        section="Elections",
        unit="ms",
        low=1,
    )
    max_heart_beat_leak: int = option(
        3,
        "A follower that has heard nothing for so many intervals asks for votes.",
        unit="intervals",
        low=1,
    )
    min_vote_interval_ms: int = option(
        300,
        "The shortest pause of a candidate between two rounds of votes.",
        unit="ms",
        low=1,
    )
    max_vote_interval_ms: int = option(
        1_000,
        "The longest pause of a candidate between two rounds. The pause is chosen at random, so that two candidates "
        "don't meet each time.",
        unit="ms",
        low=2,
    )
    min_take_leadership_vote_interval_ms: int = option(
        30,
        "The shortest such pause of a member that was asked to take over the lead.",
        unit="ms",
        low=1,
    )
    max_take_leadership_vote_interval_ms: int = option(
        100,
        "The longest such pause of a member that was asked to take over the lead.",
        unit="ms",
        low=2,
    )

    max_pending_requests_num: int = option(
        10_000,
        "How many entries may wait for a majority at once. Further appends are refused until some are through.",
        section="Appends",
        unit="entries",
        low=1,
    )
    max_wait_ack_time_ms: int = option(
        2_500,
        "How long an append waits for a majority. After that the sender gets a timeout; the entry may still be "
        "committed.",
        unit="ms",
        low=1,
    )
    max_push_time_out_ms: int = option(
        1_000,
        "How long a follower keeps entries that it can't write yet, because earlier ones are missing.",
        unit="ms",
        low=1,
    )

    max_leadership_transfer_wait_index: int = option(
        1_000,
        "The lead is only handed to a member that is less behind than this.",
        section="Handing over the lead",
        unit="entries",
        low=0,
    )
    leadership_transfer_wait_timeout: int = option(
        1_000,
        "How long a member that is asked to lead waits for the entries that it lacks.",
        unit="ms",
        low=1,
    )

    snapshot_threshold: int = option(
        1_000,
        "After so many applied entries a controller saves its state, so that a start reads fewer entries.",
        section="Files",
        unit="entries",
        low=1,
    )
    check_point_interval: int = option(
        3_000,
        "How often a member writes down how far its log is committed and on disk.",
        unit="ms",
        low=1,
    )
    mapped_file_size_for_entry_data: int = option(
        1 << 30,
        "The size of a file of entries. A broker takes it from `mappedFileSizeCommitLog`, a controller from "
        "`mappedFileSize`. It must stay as it is on a folder in use.",
        unit="bytes",
        low=256,
    )
    mapped_file_size_for_entry_index: int = option(
        32 * 5 * 1024 * 1024,
        "The size of a file of the entries' index, 32 bytes an entry. It must stay as it is on a folder in use.",
        unit="bytes",
        low=32,
    )

    sync_before_answer: bool = option(
        True,
        "Entries are on disk (fsync) before they count for a majority. With `false` they are only written, as by "
        "Java's DLedger: a power cut of several members may take what was acknowledged.",
        section="Safety and speed",
        ours=True,
    )
    check_peer_addresses: bool = option(
        True,
        "Votes, heartbeats and entries are taken only from the addresses of the peers. `false`: from anywhere, for "
        "networks that translate addresses.",
        ours=True,
    )
    push_batch_bytes: int = option(
        256 << 10,
        "How much of entries goes in one push to a follower.",
        unit="bytes",
        low=1,
        ours=True,
    )
    push_window_bytes: int = option(
        8 << 20,
        "How much of entries may be on its way to one follower without an answer.",
        unit="bytes",
        low=1,
        ours=True,
    )
    rpc_timeout_ms: int = option(
        3_000,
        "How long a member waits for another one's answer.",
        unit="ms",
        low=1,
        ours=True,
    )

    @property
    def silence_ms(self) -> int:
        """After so long without a sign a member is missed."""
        return self.heart_beat_time_interval_ms * self.max_heart_beat_leak


def peers_of(text: str) -> dict[str, str]:
    """Id → `host:port`. The first `-` ends an id; ConfigError when the text can't be read."""
    found: dict[str, str] = {}
    for part in text.split(";"):
        name, dash, address = part.strip().partition("-")
        host, colon, port = address.rpartition(":")
        if not (name and dash and host and colon and port.isdigit()):
            raise ConfigError(f"peers: {part!r} is no `id-host:port` (between members stands `;`)")
        if name in found:
            raise ConfigError(f"peers: {name} is there twice")
        found[name] = address
    if len(found) > MAX_PEERS:
        raise ConfigError(f"peers: {len(found)} members; {MAX_PEERS} are the most")
    return found
