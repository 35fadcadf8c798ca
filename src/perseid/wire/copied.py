"""Offsets as slaves copy them from their master, and tell it of their own (codes 43 and 45)."""

from __future__ import annotations

import msgspec

from perseid.wire.bodies import DataVersion
from perseid.wire.body import Body
from perseid.wire.headers.base import Int, Long


class ConsumerOffsets(Body):
    """Committed offsets (code 43): `topic@group` → queue id → offset; groups of light queues have a table of their
    own, without queues."""

    offset_table: dict[str, dict[Int, Long]] = msgspec.field(default_factory=dict)
    data_version: DataVersion | None = None
    lmq_offset_table: dict[str, Long] | None = None


class SlavesOffsets(ConsumerOffsets):
    """The same from a slave, for its master. `perseid_ahead` (ours): the text of such a body, of what was committed to
    it and has not come to its master; None: it does not know."""

    perseid_ahead: str | None = None


class DelayOffsets(Body):
    """How far each delay level is delivered (code 45)."""

    offset_table: dict[Int, Long] = msgspec.field(default_factory=dict)
    data_version: DataVersion | None = None
