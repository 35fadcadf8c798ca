"""A broker's settings (25, 26) and its state (28), as operators see and change them. Source: broker.md §11."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseid.base.machine import Millis
from perseid.broker.kernel.asks import GET, UPDATE, of_cluster
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.kernel.route import Route
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.disk.port import Disk
from perseid.store.commit_log import CommitLog
from perseid.store.reads import Reads
from perseid.store.retention import Retention
from perseid.wire import bodies
from perseid.wire.bodies import DataVersion
from perseid.wire.codes import VERSION
from perseid.wire.codes import RequestCode as Code
from perseid.wire.headers.admin import GetBrokerConfigResponse

if TYPE_CHECKING:
    from perseid.broker.admin.live_settings import LiveSettings
    from perseid.broker.admin.stats import BrokerStats

VERSION_NAME = "V5_5_0"

_IDLE = {
    "dispatchMaxBuffer": "0",
    "getMessageEntireTimeMax": "0",
    "dispatchBehindBytes": "0",
    "pageCacheLockTimeMills": "0",
    "remainTransientStoreBufferNumbs": "0",
    "timerEnqueueTps": "0.0",
    "timerDequeueTps": "0.0",
    "EndTransactionQueueSize": "0",
    "EndTransactionThreadPoolQueueCapacity": "100000",
    **{f"{pool}ThreadPoolQueueSize": "0" for pool in ("send", "pull", "litePull", "query", "ack")},
    **{f"{pool}ThreadPoolQueueHeadWaitTimeMills": "0" for pool in ("send", "pull", "litePull", "query", "ack")},
    "sendThreadPoolQueueCapacity": "10000",
    "pullThreadPoolQueueCapacity": "100000",
    "litePullThreadPoolQueueCapacity": "100000",
    "queryThreadPoolQueueCapacity": "20000",
    "ackThreadPoolQueueCapacity": "100000",
}
"""What belongs to threads, locks and wheels that this broker doesn't have."""


def human_bytes(count: int) -> str:
    """`1536` → `1.5 KiB`, as the original writes sizes for people."""
    if count < 1024:
        return f"{count} B"
    power = min((count.bit_length() - 1) // 10, len(_UNITS))
    return f"{count / 1024**power:.1f} {_UNITS[power - 1]}iB"


_UNITS = "KMGTPE"

Details = Callable[[Millis], dict[str, str]]
"""A part's own rows of a broker's state."""


@dataclass(slots=True, kw_only=True)
class RuntimeRequests:
    """Requests about settings and state."""

    turn: Turn
    settings: Settings
    log: CommitLog
    reads: Reads
    retention: Retention
    disk: Disk
    stats: BrokerStats
    live: LiveSettings
    details: Sequence[Details]

    def routes(self) -> tuple[Route, ...]:
        """The rows of these requests."""
        return (
            Route(
                Code.UPDATE_BROKER_CONFIG, None, self.update_broker_config, before_role=True, asks=of_cluster(UPDATE)
            ),
            Route(Code.GET_BROKER_CONFIG, None, self.get_broker_config, before_role=True, asks=of_cluster(GET)),
            Route(Code.GET_BROKER_RUNTIME_INFO, None, self.get_runtime_info, before_role=True, asks=of_cluster(GET)),
        )

    # ---- configuration ----

    def update_broker_config(self, request: Request) -> None:
        """Change settings of the running broker: `live` answers, at the end of this turn or when they are kept.

        All or nothing: 16 for the black list, 1 for keys that need a restart or aren't known, or values that don't fit.
        (The original takes any key, and most have no effect.)
        """
        self.live.ask(request)

    def get_broker_config(self, request: Request) -> Reply:
        """All settings as they are now, as a properties text."""
        text = "".join(f"{key}={value}\n" for key, value in sorted(self.live.properties().items()))
        version = DataVersion(counter=0, state_version=0, timestamp=self.stats.started)
        return Reply(header=GetBrokerConfigResponse(version=version.to_json().decode()), body=text.encode())

    # ---- the broker's state ----

    def get_runtime_info(self, request: Request) -> Reply:
        """Counters, rates and offsets under the keys that the original's tools look for.

        Where the original counts the requests that wait for a thread, here nothing waits: those are 0, and so are
        the times of a page-cache lock and of a dispatch that runs behind the log.
        """
        info = self._store_info() | self._totals() | _IDLE
        for details in self.details:
            info |= details(self.turn.now)
        return Reply(body=bodies.KVTable(table=dict(sorted(info.items()))).to_json())

    def _store_info(self) -> dict[str, str]:
        stats, log = self.stats, self.log
        usage = self.disk.usage(log.segments.folder)
        used = str(self.retention.used_ratio)
        stored = stats.put_messages.total
        return {
            "bootTimestamp": str(stats.started),
            "runtime": stats.runtime_text(self.turn.now),
            "putMessageEntireTimeMax": str(stats.put_time_max_ms),
            "loopTurnMax": f"{stats.turn_max_ns / 1e6:.2f}",
            "loopLongTurns": str(stats.long_turns),
            "putMessageTimesTotal": str(stored),
            "putMessageFailedTimes": str(stats.put_failed_times),
            "putMessageSizeTotal": str(stats.put_bytes),
            "putMessageDistributeTime": stats.put_distribution(),
            "putMessageAverageSize": str(stats.put_bytes / max(1, stored)),
            "putTps": stats.put_messages.text(),
            "getFoundTps": stats.get_found.text(),
            "getMissTps": stats.get_missed.text(),
            "getTotalTps": stats.get_all.text(),
            "getTransferredTps": stats.transferred.text(),
            "putLatency99": f"{stats.put_latency_ms(0.99):.2f}",
            "putLatency999": f"{stats.put_latency_ms(0.999):.2f}",
            "commitLogDiskRatio": used,
            "commitLogDiskRatio_commitlog": used,
            "consumeQueueDiskRatio": used,
            "commitLogMinOffset": str(log.start),
            "commitLogMaxOffset": str(log.end),
            "commitLogDirCapacity": f"Total : {human_bytes(usage.total)}, Free : {human_bytes(usage.free)}.",
            "remainHowManyDataToFlush": human_bytes(log.end - log.flushed),
            "earliestMessageTimeStamp": str(self.reads.earliest_time()),
        }

    def _totals(self) -> dict[str, str]:
        stats, config = self.stats, self.settings.current
        put_yesterday, put_today = stats.put_total_mornings
        get_yesterday, get_today = stats.get_total_mornings
        return {
            "brokerActive": "true",
            "brokerVersion": str(VERSION),
            "brokerVersionDesc": VERSION_NAME,
            "msgPutTotalYesterdayMorning": str(put_yesterday),
            "msgPutTotalTodayMorning": str(put_today),
            "msgPutTotalTodayNow": str(stats.put_total),
            "msgGetTotalYesterdayMorning": str(get_yesterday),
            "msgGetTotalTodayMorning": str(get_today),
            "msgGetTotalTodayNow": str(stats.get_total),
            "startAcceptSendRequestTimeStamp": str(config.start_accept_send_request_time_stamp),
        }
