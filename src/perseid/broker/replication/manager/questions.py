"""Who is master of the set? Asked of the controllers, again and again; where there is none, they are asked to elect
one."""

from __future__ import annotations

from typing import Protocol

from perseid.base.machine import Millis
from perseid.broker.kernel.settings import Settings
from perseid.broker.replication.controllers import FIND_MS, Controllers
from perseid.broker.replication.manager.enrolment import RETRY_MS, Enrolment
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.controller import ElectMasterResponseBody, SyncStateSet
from perseid.wire.headers import controller as headers


class Announced(Protocol):
    """Takes the role that an answer names."""

    def __call__(
        self, master_id: int | None, address: str | None, epoch: int, members: SyncStateSet, now: Millis
    ) -> None:
        """The controller says who is master in `epoch`, and who is in sync."""


class Questions:
    """Those of one broker."""

    def __init__(
        self, settings: Settings, controllers: Controllers, enrolment: Enrolment, announced: Announced
    ) -> None:
        self._settings = settings
        self._controllers = controllers
        self._enrolment = enrolment
        self._announced = announced
        self._ask_at: Millis | None = None
        self._asked_at: Millis = -FIND_MS

    def ask(self, now: Millis) -> None:
        """Who is master, and who is in sync?"""
        self._asked_at = now
        self._ask_at = now + self._settings.current.sync_broker_metadata_period
        header = headers.GetReplicaInfoRequest(broker_name=self._settings.current.broker_name)

        def told(reply: Command, now: Millis) -> None:
            said = reply.header(headers.GetReplicaInfoResponse)
            body = SyncStateSet.from_json(reply.body)
            if said.master_epoch is not None:
                self._announced(said.master_broker_id, said.master_address, said.master_epoch, body, now)

        def failed(code: int, why: str, now: Millis) -> None:
            if code == ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST:
                self._enrolment.go_on(now)
            elif code:
                self._controllers.complain(f"controller {self._controllers.leader}: {why}")

        if not self._controllers.ask_leader(RequestCode.CONTROLLER_GET_REPLICA_INFO, header, b"", now, told, failed):
            self._ask_at = now + FIND_MS

    def ask_soon(self, now: Millis) -> None:
        """Somebody says that there is another master: ask the controllers, though not each time."""
        soon = max(now, self._asked_at + FIND_MS)
        if self._ask_at is None or soon < self._ask_at:
            self._ask_at = soon

    def ask_at(self, at: Millis) -> None:
        """Ask then, whenever it was to be done."""
        self._ask_at = at

    def elect(self, now: Millis) -> None:
        """There is no master: let the controller choose one."""
        config = self._settings.current
        header = headers.ElectMasterRequest(
            cluster_name=config.broker_cluster_name, broker_name=config.broker_name,
            broker_id=self._enrolment.broker_id, invoke_time=now,
        )  # fmt: skip

        def told(reply: Command, now: Millis) -> None:
            said = reply.header(headers.ElectMasterResponse)
            members = ElectMasterResponseBody.from_json(reply.body).sync_state_set
            if said.master_epoch is not None and said.sync_state_set_epoch is not None:
                body = SyncStateSet(sync_state_set=members, sync_state_set_epoch=said.sync_state_set_epoch)
                self._announced(said.master_broker_id, said.master_address, said.master_epoch, body, now)

        def failed(code: int, why: str, now: Millis) -> None:
            self._ask_at = min(self._ask_at or now + RETRY_MS, now + RETRY_MS)
            if code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
                self._enrolment.go_on(now)
            elif code:
                self._controllers.complain(f"controller {self._controllers.leader}: no master is elected: {why}")

        self._controllers.ask_leader(RequestCode.CONTROLLER_ELECT_MASTER, header, b"", now, told, failed)

    def tick(self, now: Millis) -> None:
        """Ask when it is time."""
        if self._ask_at is not None and self._ask_at <= now:
            self.ask(now)

    def next_deadline(self) -> Millis | None:
        return self._ask_at
