"""END_TRANSACTION (37), a producer's decision about a half, and RESUME_CHECK_HALF_MESSAGE (323), an operator's about
one that was set aside. Source: broker.md §8."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseid.base.errors import RemoteProtocolError, RequestRefused
from perseid.broker.kernel import messages
from perseid.broker.kernel.asks import PUB, UPDATE, of_topic
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.kernel.roles import Roles
from perseid.broker.kernel.route import Route
from perseid.broker.transactions.service import is_half, names_another
from perseid.store.reads import Reads
from perseid.store.results import AppendRefused
from perseid.wire import ids
from perseid.wire import properties as props
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode
from perseid.wire.headers.admin import ResumeCheckHalfMessageRequest
from perseid.wire.headers.send import EndTransactionRequest
from perseid.wire.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC
from perseid.wire.record import SYS_TRANSACTION_COMMIT, SYS_TRANSACTION_MASK, Record

if TYPE_CHECKING:
    from perseid.broker.produce.appender import Appender
    from perseid.broker.transactions.service import TransactionService

ROLLBACK = SYS_TRANSACTION_MASK
NOT_THIS_ONE = "another transaction stands there: the word's own is gone"
NOT_RESUMED = "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."


@dataclass(slots=True, kw_only=True)
class TransactionRequests:
    """Requests that decide transactions."""

    reads: Reads
    appender: Appender
    roles: Roles
    transactions: TransactionService

    def routes(self) -> tuple[Route, ...]:
        """The rows of these requests."""
        return (
            Route(
                Code.END_TRANSACTION,
                EndTransactionRequest,
                self.end_transaction,
                keeps_checks=True,
                asks=of_topic(PUB, exact=True),
            ),
            Route(
                Code.RESUME_CHECK_HALF_MESSAGE, ResumeCheckHalfMessageRequest, self.resume_check, asks=of_topic(UPDATE)
            ),
        )

    def end_transaction(self, request: Request) -> Reply | None:
        """Deliver a half, or drop it. One that says neither changes nothing: the producer is asked again later."""
        header: EndTransactionRequest = request.header
        if self.roles.is_slave:
            raise RequestRefused(ResponseCode.SLAVE_NOT_AVAILABLE, "a slave decides nothing: ask its master")
        if header.commit_or_rollback not in (SYS_TRANSACTION_COMMIT, ROLLBACK):
            return Reply()
        if request.command.is_oneway and self.transactions.gather(request):
            return None
        self.appender.check_load()
        half = self._half(header)
        if not header.from_transaction_check and self.transactions.is_late(half):
            raise RequestRefused(
                ResponseCode.ILLEGAL_OPERATION, "the time for a word about this transaction is over: it is asked for"
            )
        offset = self.transactions.current(half.queue_offset)
        try:
            end = self.transactions.decide(offset, half, commit=header.commit_or_rollback == SYS_TRANSACTION_COMMIT)
        except AppendRefused as refused:
            raise self.appender.refusal(refused) from None
        if request.command.is_oneway:
            return None
        return self.appender.acknowledge(request, Reply(), end, wait=True)

    def resume_check(self, request: Request) -> Reply | None:
        """Put a half back that was set aside, to be asked about once more from the beginning."""
        header: ResumeCheckHalfMessageRequest = request.header
        if self.roles.is_slave:
            raise RequestRefused(ResponseCode.SLAVE_NOT_AVAILABLE, "a slave asks nobody: turn to its master")
        self.appender.check_load()
        try:
            place = ids.parse_offset_message_id(header.msg_id or "")[1]
        except RemoteProtocolError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{NOT_RESUMED} {error}") from None
        half = messages.stored_at(self.reads, place)
        if half is None or half.topic != CHECK_MAX_TIME_TOPIC or not is_half(half):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{NOT_RESUMED} No half was set aside at {place}.")
        try:
            end = self.transactions.resume(half)
        except AppendRefused as refused:
            raise self.appender.refusal(refused) from None
        return self.appender.acknowledge(request, Reply(), end, wait=True)

    def _half(self, header: EndTransactionRequest) -> Record:
        """The half that a decision is about; refused in the order of broker.md §8."""
        half = messages.stored_at(self.reads, header.commit_log_offset)
        if half is None or half.topic != HALF_TOPIC:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        if half.props.get(props.PGROUP) != header.producer_group:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if half.queue_offset != header.tran_state_table_offset:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        if names_another(header, half):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, NOT_THIS_ONE)
        if not is_half(half):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "the half names no topic and queue")
        return half
