"""What slaves and operators ask about replication: HA status (907), and what a slave copies besides topics, groups and
consumer offsets (45, 402, 60, 61). Source: ha-classic.md §11, broker.md §10.1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseid.base.errors import RequestRefused
from perseid.broker.kernel.asks import GET, UPDATE, of_cluster
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.kernel.roles import Roles
from perseid.broker.kernel.route import Route
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.store.store import MessageStore
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode
from perseid.wire.controller import EpochEntryCache, SyncStateSet
from perseid.wire.headers import admin as admin_headers
from perseid.wire.headers.controller import (
    ExchangeHaInfoRequest,
    ExchangeHaInfoResponse,
    NotifyBrokerRoleChangedRequest,
)
from perseid.wire.headers.namesrv import NotifyMinBrokerIdChangeRequest

if TYPE_CHECKING:
    from perseid.broker.replication.modes.mode import ReplicationMode
    from perseid.broker.replication.replicas import Replicas
    from perseid.broker.scheduled.delay import DelayService
    from perseid.broker.scheduled.timers import TimerService


@dataclass(slots=True, kw_only=True)
class ReplicationRequests:
    """Requests of and about replicas."""

    turn: Turn
    settings: Settings
    store: MessageStore
    roles: Roles
    mode: ReplicationMode
    replicas: Replicas
    timers: TimerService
    delay: DelayService

    def routes(self) -> tuple[Route, ...]:
        """The rows of these requests."""
        return (
            Route(
                Code.NOTIFY_BROKER_ROLE_CHANGED,
                NotifyBrokerRoleChangedRequest,
                self.notify_role_changed,
                before_role=True,
                asks=of_cluster(UPDATE),
            ),
            Route(Code.GET_BROKER_EPOCH_CACHE, None, self.get_epoch_cache, before_role=True, asks=of_cluster(GET)),
            Route(
                Code.EXCHANGE_BROKER_HA_INFO,
                ExchangeHaInfoRequest,
                self.exchange_ha_info,
                before_role=True,
                asks=of_cluster(UPDATE),
            ),
            Route(
                Code.NOTIFY_MIN_BROKER_ID_CHANGE,
                NotifyMinBrokerIdChangeRequest,
                self.notify_min_id,
                asks=of_cluster(UPDATE),
            ),
            Route(Code.GET_BROKER_HA_STATUS, None, self.get_ha_status, before_role=True, asks=of_cluster(GET)),
            Route(
                Code.RESET_MASTER_FLUSH_OFFSET,
                admin_headers.ResetMasterFlushOffsetRequest,
                self.reset_master_flush_offset,
                asks=of_cluster(UPDATE),
            ),
            Route(
                Code.GET_ALL_DELAY_OFFSET, None, self.get_all_delay_offset, while_isolated=False, asks=of_cluster(GET)
            ),
            Route(Code.GET_TIMER_CHECK_POINT, None, self.get_timer_checkpoint, asks=of_cluster(GET)),
            Route(Code.GET_TIMER_METRICS, None, self.get_timer_metrics, asks=of_cluster(GET)),
        )

    def get_ha_status(self, request: Request) -> Reply:
        """The followers of this broker, and how far behind each one is; of a slave, the master that it follows."""
        return Reply(body=self.replicas.status(self.turn.now).to_json())

    def notify_role_changed(self, request: Request) -> Reply | None:
        """A controller says who is master. Whoever is none is not believed, RequestRefused(16); but the controllers are
        asked."""
        body = request.command.body
        self.mode.take_role(
            request.header, lambda: SyncStateSet.from_json(body), request.conn.peer, self.turn.now
        )
        return Reply()

    def get_epoch_cache(self, request: Request) -> Reply:
        """Which bytes of our log are of which master's epoch."""
        config = self.settings.current
        cache = EpochEntryCache(
            cluster_name=config.broker_cluster_name, broker_name=config.broker_name,
            broker_id=self.mode.broker_id, epoch_list=self.mode.epochs(), max_offset=self.store.log.end,
        )  # fmt: skip
        return Reply(body=cache.to_json())

    def exchange_ha_info(self, request: Request) -> Reply:
        """Where our HA port is, of a master; nothing, of a slave. With an address: a master that prepares to come back
        wants this slave to follow; ignored where no slave acts for its master."""
        header: ExchangeHaInfoRequest = request.header
        acting = self.mode.acting
        if header.master_ha_address is not None and acting.slaves_act:
            master = _address(header.master_address, "masterAddress")
            ha_address = _address(header.master_ha_address, "masterHaAddress")
            acting.invited(master, ha_address, request.conn.peer, self.turn.now)
            return Reply(header=ExchangeHaInfoResponse())
        if self.roles.is_slave and not acting.isolated:
            return Reply(header=ExchangeHaInfoResponse())
        return Reply(
            header=ExchangeHaInfoResponse(
                master_ha_address=self.mode.ha_address,
                master_flush_offset=self.store.log.flushed,
                master_address=self.settings.current.address,
            )
        )

    def notify_min_id(self, request: Request) -> Reply:
        """A name server says which replica has the smallest id now; where no slave acts for its master, nothing
        follows. Whoever is none is not believed, RequestRefused(16): members are asked for anyhow."""
        header: NotifyMinBrokerIdChangeRequest = request.header
        acting = self.mode.acting
        if not acting.slaves_act:
            return Reply()
        if not acting.is_name_server(request.conn.peer, self.turn.now):
            raise RequestRefused(ResponseCode.NO_PERMISSION, "only a name server of this broker may say who is there")
        if header.min_broker_id is None or header.min_broker_id < 0:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"minBrokerId={header.min_broker_id}: 0 or more is wanted")
        if header.broker_name not in (None, self.settings.current.broker_name):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"brokerName={header.broker_name}: this is another set")
        ha_address = _address(header.ha_broker_addr, "haBrokerAddr") if header.ha_broker_addr else None
        acting.min_changed(
            header.min_broker_id, _address(header.min_broker_addr, "minBrokerAddr"), ha_address, self.turn.now
        )
        return Reply()

    def reset_master_flush_offset(self, request: Request) -> Reply:
        """Forget how far a master's log was durable. A master has no master, so nothing changes, as in the original; a
        slave here goes by its master's history and not by such a number: RequestRefused(1)."""
        if self.roles.is_slave:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, "a slave compares histories with its master: there is no offset to reset"
            )
        return Reply()

    def get_all_delay_offset(self, request: Request) -> Reply | None:
        """How far each delay level is delivered: the text of config/delayOffset.json."""
        return self.replicas.told_durably(request, Reply(body=self.delay.to_json()))

    def get_timer_checkpoint(self, request: Request) -> Reply:
        """How far the timer wheel is: 56 bytes, as they stand in its file."""
        if not self.timers.enabled:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "The checkpoint is null")
        escaped = self.timers.escape.done(self.turn.now)
        header = escaped.fields() if escaped is not None else None
        return Reply(header=header, body=self.timers.checkpoint(self.turn.now))

    def get_timer_metrics(self, request: Request) -> Reply:
        """How many timer messages wait, by topic."""
        if not self.timers.enabled:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "The timer message store is null")
        return Reply(body=self.timers.metrics.to_json())


def _address(text: str | None, name: str) -> str:
    """`host:port`, as it was given; refused when it is none."""
    host, _, port = (text or "").rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port[:6]) < 65_536:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{name}={(text or '')[:80]!r}: host:port is wanted")
    return text or ""
