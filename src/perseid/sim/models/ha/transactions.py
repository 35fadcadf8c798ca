"""A producer of transactions of a broker set: whoever is master knows what is open, and asks.

- nothing is read of a half, nor stands in its topic, before its producer said "commit", and never where it says "roll
  back";
- a half that was acknowledged, and that no change of masters has lost, is delivered in the end, if it is to be;
- all comes to an end, whichever broker began it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perseid.broker.kernel import messages
from perseid.sim.driver import EPOCH_MS
from perseid.sim.models.ha.clients import MASTER, Client
from perseid.sim.models.ha.queues import QUEUES, TOPIC
from perseid.sim.scheduler import US_PER_MS
from perseid.wire import properties as props
from perseid.wire.bodies import HeartbeatData, ProducerData
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.send import (
    CheckTransactionStateRequest,
    EndTransactionRequest,
    SendMessageRequestV2,
    SendMessageResponse,
)
from perseid.wire.names import AUTO_CREATE_TOPIC
from perseid.wire.record import SYS_TRANSACTION_COMMIT, SYS_TRANSACTION_ROLLBACK, decode

if TYPE_CHECKING:
    from perseid.sim.models.ha.cluster import Ha

GROUP = "tp"
COMMITS, SAID = 0.6, 0.5
"""So many are to be committed; of so many it is said without being asked."""
BEAT_MS = (1_000, 4_000)
ROUTE_AGAIN = 0.3
"""After so many of the heartbeats the route is asked for again: an old master takes them, too."""
SIZES = (12, 40, 300)


class Transactions(Client):
    """Begins one transaction after the other."""

    def __init__(self, ha: Ha, name: str, pause_ms: int) -> None:
        super().__init__(ha, name, pause_ms)
        self.ending = False
        self._number = 0

    def begin(self) -> None:
        super().begin()
        self._beat()

    def wind_down(self) -> None:
        """Begin no more, but answer questions."""
        self.ending = True

    def work(self) -> None:
        if self.ending:
            return
        if MASTER not in self.brokers:
            self.find(self.work)
            return
        self._number += 1
        key = f"{self.name}.{self._number}"
        body = f"{key}.".encode().ljust(self.random.choice(SIZES), b"x")
        self.ha.history.opens(body, commit=self.random.random() < COMMITS)
        properties = props.encode({props.UNIQ_KEY: key, props.TRAN_MSG: "true", props.PGROUP: GROUP})
        header = SendMessageRequestV2(
            producer_group=GROUP, topic=TOPIC, default_topic=AUTO_CREATE_TOPIC, default_topic_queue_nums=QUEUES,
            queue_id=self.random.randrange(QUEUES), sys_flag=4, flag=0,
            born_timestamp=EPOCH_MS + self.scheduler.now_us // US_PER_MS, properties=properties.decode(),
        )  # fmt: skip

        def answered(reply: Command | None) -> None:
            if reply is None or reply.code != ResponseCode.SUCCESS:
                self.brokers.clear()
            elif self.random.random() < SAID:
                said = reply.header(SendMessageResponse)
                place = said.queue_offset, int(said.msg_id[-16:], 16)
                self.later(0, 1_000, lambda: self._decide(body, *place, asked=False))
            self.later(0, 2 * self.pause_ms, self.work)

        self.ask(self.brokers[MASTER], RequestCode.SEND_MESSAGE_V2, header, answered, body)

    def _beat(self) -> None:
        """Say who we are, so that questions come."""
        data = HeartbeatData(client_id=f"{self.name}@1", producer_data_set=[ProducerData(group_name=GROUP)])

        def answered(reply: Command | None) -> None:
            if reply is None or self.random.random() < ROUTE_AGAIN:
                self.brokers.clear()

        if MASTER in self.brokers:
            self.ask(self.brokers[MASTER], RequestCode.HEART_BEAT, None, answered, data.to_json())
            self.later(*BEAT_MS, self._beat)
        else:
            self.find(self._beat)

    def asked(self, command: Command) -> None:
        super().asked(command)
        if command.code == RequestCode.CHECK_TRANSACTION_STATE:
            header = command.header(CheckTransactionStateRequest)
            body = decode(command.body).body
            self.ha.history.decisions.check_asked(body)
            self.ha.count("asked about a half")
            place = header.tran_state_table_offset, header.commit_log_offset
            self.later(0, 500, lambda: self._decide(body, *place, asked=True))

    def _decide(self, body: bytes, offset: int, physical: int, *, asked: bool) -> None:
        if MASTER not in self.brokers:
            return  # the next master asks
        commit = self.ha.history.decides(body)
        header = EndTransactionRequest(
            producer_group=GROUP, tran_state_table_offset=offset, commit_log_offset=physical, msg_id="id",
            commit_or_rollback=SYS_TRANSACTION_COMMIT if commit else SYS_TRANSACTION_ROLLBACK,
            from_transaction_check=asked,
        )  # fmt: skip
        what = ("committed" if commit else "rolled back") + (" when asked" if asked else " unasked")

        def answered(reply: Command | None) -> None:
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                self.ha.count(what)

        self.ask(self.brokers[MASTER], RequestCode.END_TRANSACTION, header, answered)

    def unfinished(self) -> str:
        """What the master has still to ask about; "": nothing."""
        master = self.ha.master
        if master is None or master.broker is None:
            return "there is no master"
        service, store = master.broker.parts.transactions, master.broker.parts.store
        if service.loading:
            return f"{master.name} takes up its halves"
        for place in service.places():
            half = messages.stored_at(store.reads, place)
            return f"{half.body[:20] if half is not None else b'?'!r} at {place} of {master.name} is open"
        return ""
