"""What a member of a Raft group can be told. Names and defaults are DLedger's; the last group is ours."""

from __future__ import annotations

from dataclasses import dataclass

from perseid.base.config import option
from perseid.base.errors import ConfigError

MAX_PEERS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """Of one member. Times are milliseconds, sizes bytes."""

    group: str = "default"
    self_id: str = "n0"
    peers: str = "n0-localhost:20911"
    """`id-host:port;…`: all members, this one too; the same text on all of them."""
    preferred_leader_ids: str = ""
    """`;` between them."""
    heart_beat_time_interval_ms: int = option(2_000, low=1)
    max_heart_beat_leak: int = option(3, low=1)
    """A follower that heard nothing for so many intervals becomes a candidate."""
    min_vote_interval_ms: int = option(300, low=1)
    max_vote_interval_ms: int = option(1_000, low=2)
    min_take_leadership_vote_interval_ms: int = option(30, low=1)
    max_take_leadership_vote_interval_ms: int = option(100, low=2)
    max_pending_requests_num: int = option(10_000, low=1)
    """Appends that wait for a quorum at once."""
    max_wait_ack_time_ms: int = option(2_500, low=1)
    max_push_time_out_ms: int = option(1_000, low=1)
    max_leadership_transfer_wait_index: int = option(1_000, low=0)
    leadership_transfer_wait_timeout: int = option(1_000, low=1)
    snapshot_threshold: int = option(1_000, low=1)
    """Of a state machine; after so many entries its state is kept."""
    check_point_interval: int = option(3_000, low=1)
    mapped_file_size_for_entry_data: int = option(1 << 30, low=256)
    mapped_file_size_for_entry_index: int = option(32 * 5 * 1024 * 1024, low=32)

    sync_before_answer: bool = True
    """A vote and an append are on disk before they are answered; `false`: only written, as Java does it."""
    check_peer_addresses: bool = True
    """Votes, heartbeats and pushes are taken from the addresses of `peers` alone; `false`: from anywhere."""
    push_batch_bytes: int = option(256 << 10, low=1)
    """Of entries in one push."""
    push_window_bytes: int = option(8 << 20, low=1)
    """Of entries on their way to one follower."""
    rpc_timeout_ms: int = option(3_000, low=1)

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
