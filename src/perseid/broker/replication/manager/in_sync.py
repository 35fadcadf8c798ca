"""The set of replicas in sync, as the controllers agree on it."""

from __future__ import annotations

from collections.abc import Callable

from perseid.base.machine import Millis
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.replication.controllers import Controllers
from perseid.replication.auto_switch.in_sync import Proposal
from perseid.replication.auto_switch.node import AutoSwitchReplication
from perseid.wire.body import Body
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.controller import SyncStateSet
from perseid.wire.headers import controller as headers


class InSyncAgreement:
    """That of one broker, while it is master."""

    def __init__(
        self, turn: Turn, settings: Settings, controllers: Controllers, replication: AutoSwitchReplication
    ) -> None:
        self._turn = turn
        self._settings = settings
        self._controllers = controllers
        self._replication = replication

    def agree(self, members: list[int], set_epoch: int, epoch: int, now: Millis) -> None:
        """The controllers' set, of the master of this epoch."""
        master = self._replication.master
        if master is not None and master.in_sync.agree(members, set_epoch, now):
            self._turn.note("info", f"in sync: {sorted(members)}, set {set_epoch} of master epoch {epoch}")

    def propose(
        self, proposal: Proposal, epoch_now: Callable[[], int], ask_again: Callable[[Millis], None]
    ) -> None:
        """Ask the controller for another set; `InSync` hears what came of it. `epoch_now`: of our mastership;
        `ask_again`: asks who is master, where a refusal says that it may be somebody else."""
        now, epoch, config = self._turn.now, epoch_now(), self._settings.current
        master = self._replication.master
        assert master is not None
        in_sync, members = master.in_sync, sorted(proposal.members)

        def told(reply: Command, now: Millis) -> None:
            body = SyncStateSet.from_json(reply.body)
            if self._replication.master is master and epoch == epoch_now():
                self.agree(body.sync_state_set, body.sync_state_set_epoch, epoch, now)
            in_sync.failed(proposal, now, refused=False)  # unless it is agreed to by now

        def failed(code: int, why: str, now: Millis) -> None:
            refused = code >= ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH and code != ResponseCode.CONTROLLER_NOT_LEADER
            stranger = code == ResponseCode.CONTROLLER_INVALID_REPLICAS
            in_sync.failed(proposal, now, refused=refused, stranger=stranger)
            if refused and code != ResponseCode.CONTROLLER_BROKER_NOT_ALIVE:
                leader = self._controllers.leader
                self._controllers.complain(f"controller {leader}: {members} are not taken for in sync: {why}")
                ask_again(now)

        header = headers.AlterSyncStateSetRequest(
            broker_name=config.broker_name, master_broker_id=self._replication.broker_id, master_epoch=epoch,
            invoke_time=now,
        )  # fmt: skip
        body: Body = SyncStateSet(sync_state_set=members, sync_state_set_epoch=in_sync.epoch)
        code = RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET
        if not self._controllers.ask_leader(code, header, body.to_json(), now, told, failed):
            in_sync.failed(proposal, now, refused=True)
