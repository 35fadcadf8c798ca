"""Administration of a broker, replicas' meta data (remoting.md §15, 16)."""

from __future__ import annotations

from perseid.wire.headers.base import Header, Long
from perseid.wire.headers.offsets import CloneGroupOffsetRequest as CloneGroupOffsetRequest
from perseid.wire.headers.offsets import GetConsumerStatusRequest as GetConsumerStatusRequest
from perseid.wire.headers.offsets import ResetOffsetRequest as ResetOffsetRequest


class GetBrokerConfigResponse(Header):
    """Of 26; the body is properties text."""

    version: str
    """A DataVersion in JSON."""


class ViewBrokerStatsDataRequest(Header):
    """315."""

    stats_name: str
    stats_key: str


class GetBrokerConsumeStatsRequest(Header):
    """317."""

    is_order: bool = False


class ResumeCheckHalfMessageRequest(Header):
    """323."""

    topic: str | None = None
    msg_id: str | None = None


class ExchangeBrokerHaInfoRequest(Header):
    """906: between the replicas of a broker name."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


class ExchangeBrokerHaInfoResponse(Header):
    """Of 906."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


class ResetMasterFlushOffsetRequest(Header):
    """908."""

    master_flush_offset: Long
