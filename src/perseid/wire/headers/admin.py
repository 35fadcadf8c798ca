"""Administration of a broker, resets of offsets, replicas' meta data (remoting.md §12, 15, 16)."""

from __future__ import annotations

from perseid.wire.headers.base import Header, Int, Long


class GetBrokerConfigResponse(Header):
    version: str
    """A DataVersion in JSON."""


class ResetOffsetRequest(Header):
    """To a broker (222), and from it to the clients (220)."""

    group: str
    topic: str
    timestamp: Long
    queue_id: Int = 0
    offset: Long | None = None
    is_force: bool = False


class GetConsumerStatusRequest(Header):
    """To a broker (223), and from it to the clients (221)."""

    topic: str
    group: str
    client_addr: str | None = None


class CloneGroupOffsetRequest(Header):
    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class ViewBrokerStatsDataRequest(Header):
    stats_name: str
    stats_key: str


class GetBrokerConsumeStatsRequest(Header):
    is_order: bool = False


class ResumeCheckHalfMessageRequest(Header):
    topic: str | None = None
    msg_id: str | None = None


class ExchangeBrokerHaInfoRequest(Header):
    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


class ExchangeBrokerHaInfoResponse(Header):
    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


class ResetMasterFlushOffsetRequest(Header):
    master_flush_offset: Long
