"""Who reads how much from the disk, and how much anybody may: cold-data flow control (codes 2001 to 2003).

Pulls of what is not in memory are counted by group, in windows of 5 s. With `coldDataFlowControlEnable` a group that
has read its limit in this window, or any group once all together have read `globalColdReadThreshold`, is refused (2)
until the next window; pulls of what is in memory never are. A group's limit is `cgColdReadThreshold` or what an
operator set, which is forgotten with the process, as in the original.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseid.base.errors import RequestRefused
from perseid.base.machine import Millis
from perseid.wire import fastjson
from perseid.wire.codes import ResponseCode

if TYPE_CHECKING:
    from perseid.broker.config import BrokerConfig

WINDOW_MS = 5_000
FORGOTTEN_MS = 60_000
"""A group that has read nothing from the disk for so long is not shown any more."""
MAX_GROUPS = 10_000
"""Groups that are counted, or have a limit of their own; others are only part of the sum."""


@dataclass(slots=True)
class _Reads:
    """Of one group: bytes in this window, the first and the last time."""

    bytes: int
    since: Millis
    last: Millis


class ColdReads:
    """The reads of one broker."""

    def __init__(self) -> None:
        self.limits: dict[str, int] = {}
        self._reads: dict[str, _Reads] = {}
        self._sum = 0
        self._window: Millis = 0

    def admit(self, config: BrokerConfig, group: str, size: int, now: Millis) -> None:
        """A pull of `group` is about to read `size` bytes from the disk. RequestRefused(2) when it may not."""
        self._roll(now)
        reads = self._reads.get(group)
        if config.cold_data_flow_control_enable and (
            (reads is not None and reads.bytes >= self.limits.get(group, config.cg_cold_read_threshold))
            or self._sum >= config.global_cold_read_threshold
        ):
            raise RequestRefused(
                ResponseCode.SYSTEM_BUSY, "This consumer group is reading cold data. It has been flow control"
            )
        self._sum += size
        if reads is not None:
            reads.bytes += size
            reads.last = now
        elif len(self._reads) < MAX_GROUPS:
            self._reads[group] = _Reads(size, now, now)

    def set_limits(self, limits: dict[str, int]) -> None:
        """Bytes a window for groups. RequestRefused(1): too many groups have one."""
        if len(self.limits.keys() | limits.keys()) > MAX_GROUPS:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"at most {MAX_GROUPS} groups can have a limit")
        self.limits.update(limits)

    def info(self, config: BrokerConfig, now: Millis) -> bytes:
        """The body of code 2003."""
        self._roll(now)
        runtime = {
            group: {"coldAcc": reads.bytes, "createTimeMills": reads.since, "lastColdReadTimeMills": reads.last}
            for group, reads in self._reads.items()
        }
        return fastjson.dumps(
            {
                "runtimeTable": runtime,
                "configTable": self.limits,
                "cgColdReadThreshold": config.cg_cold_read_threshold,
                "globalColdReadThreshold": config.global_cold_read_threshold,
                "globalAcc": self._sum,
            }
        )

    def _roll(self, now: Millis) -> None:
        """Begin a new window when it is time."""
        if now - self._window < WINDOW_MS:
            return
        self._window = now
        self._sum = 0
        self._reads = {group: reads for group, reads in self._reads.items() if now - reads.last < FORGOTTEN_MS}
        for reads in self._reads.values():
            reads.bytes = 0
