"""Requests that brokers send to consumers: members changed, offsets were reset, an operator asks for the state."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from perseid.client.connection import Connection
from perseid.client.model import MessageQueue, ReceivedMessage
from perseid.wire import bodies, fastjson, record
from perseid.wire.codes import VERSION, RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.clients import (
    ConsumeMessageDirectlyRequest,
    GetConsumerRunningInfoRequest,
    NotifyConsumerIdsChangedRequest,
)
from perseid.wire.headers.offsets import GetConsumerStatusRequest, ResetOffsetRequest

if TYPE_CHECKING:
    from perseid.client.consumer import PushConsumer

log = logging.getLogger("perseid.client")


def register(consumer: PushConsumer) -> None:
    """Answer the brokers' requests for a consumer."""
    session = consumer.session
    session.consumers[consumer.group] = consumer
    if RequestCode.NOTIFY_CONSUMER_IDS_CHANGED not in session.handlers:
        for code, handler in HANDLERS.items():
            session.handlers[code] = _bind(session.consumers, handler)


def unregister(consumer: PushConsumer) -> None:
    """Answer them no more."""
    consumer.session.consumers.pop(consumer.group, None)


_Served = Callable[[dict[str, Any], Connection, Command], Awaitable[None] | None]


def _bind(consumers: dict[str, Any], handler: _Served) -> Callable[[Connection, Command], Awaitable[None] | None]:
    return lambda connection, command: handler(consumers, connection, command)


def _members_changed(consumers: dict[str, Any], connection: Connection, command: Command) -> None:
    consumer = consumers.get(command.header(NotifyConsumerIdsChangedRequest).consumer_group)
    if consumer is not None:
        consumer.assignment.rebalance_soon()


def _offsets_reset(consumers: dict[str, Any], connection: Connection, command: Command) -> None:
    header = command.header(ResetOffsetRequest)
    consumer = consumers.get(header.group)
    if consumer is None or not command.body:
        return
    table = bodies.ResetOffsetBody.from_json(command.body).offset_table
    for queue, offset in table.items():
        assigned = consumer.assignment.queues.get(MessageQueue(queue.topic, queue.broker_name, queue.queue_id))
        if assigned is not None and queue.topic == header.topic:
            log.warning("%s: an operator reset the offset of group %s to %d", assigned.queue, header.group, offset)
            consumer.assignment.restart(assigned, offset)


def _status(consumers: dict[str, Any], connection: Connection, command: Command) -> None:
    header = command.header(GetConsumerStatusRequest)
    consumer = consumers.get(header.group)
    table = {} if consumer is None else consumer.offsets
    body = bodies.GetConsumerStatusBody(
        {bodies.MessageQueue(*queue): offset for queue, offset in table.items() if queue.topic == header.topic}
    )
    connection.reply(command, body=body.to_json())


def _running_info(consumers: dict[str, Any], connection: Connection, command: Command) -> None:
    header = command.header(GetConsumerRunningInfoRequest)
    consumer = consumers.get(header.consumer_group)
    if consumer is None:
        _unknown_group(connection, command, header.consumer_group)
        return
    info = running_info(consumer)
    if header.jstack_enable:
        info["jstack"] = _stacks()
    connection.reply(command, body=fastjson.dumps(info))


async def _consume_directly(consumers: dict[str, Any], connection: Connection, command: Command) -> None:
    header = command.header(ConsumeMessageDirectlyRequest)
    consumer: PushConsumer | None = consumers.get(header.consumer_group)
    if consumer is None:
        _unknown_group(connection, command, header.consumer_group)
        return
    message = ReceivedMessage(record.decode(command.body), header.broker_name or "")
    clock = asyncio.get_running_loop().time
    began = clock()
    with consumer.busy():
        failure = await consumer.handle(message)
    result = bodies.ConsumeMessageDirectlyResult(
        order=consumer.mode.is_ordered,
        consume_result="CR_SUCCESS" if failure is None else "CR_LATER",
        remark=None if failure is None else str(failure),
        spent_time_mills=int((clock() - began) * 1000),
    )
    connection.reply(command, body=result.to_json())


HANDLERS: dict[int, _Served] = {
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: _members_changed,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: _offsets_reset,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: _status,
    RequestCode.GET_CONSUMER_RUNNING_INFO: _running_info,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _consume_directly,
}
"""The requests that a push consumer answers."""


def _unknown_group(connection: Connection, command: Command, group: str) -> None:
    connection.reply(command, ResponseCode.SYSTEM_ERROR, remark=f"this client has no consumer of group {group}")


def running_info(consumer: PushConsumer) -> dict[str, Any]:
    """A consumer's state for mqadmin's consumerStatus, in the original's shape."""
    queues: dict[bodies.MessageQueue, dict[str, object]] = {}
    for queue, assigned in consumer.assignment.queues.items():
        process_queue = assigned.process_queue
        lowest = process_queue.lowest()
        queues[bodies.MessageQueue(*queue)] = {
            "commitOffset": consumer.offsets.get(queue, -1),
            "cachedMsgMinOffset": lowest.queue_offset if lowest else 0,
            "cachedMsgMaxOffset": lowest.queue_offset + process_queue.span if lowest else 0,
            "cachedMsgCount": len(process_queue.messages),
            "cachedMsgSizeInMiB": process_queue.bytes >> 20,
            "transactionMsgMinOffset": 0,
            "transactionMsgMaxOffset": 0,
            "transactionMsgCount": 0,
            "locked": consumer.mode.needs_locks and assigned.locked,
            "tryUnlockTimes": 0,
            "lastLockTimestamp": 0,
            "droped": process_queue.dropped,
            "lastPullTimestamp": assigned.last_pull_ms,
            "lastConsumeTimestamp": assigned.last_done_ms,
        }
    return {
        "properties": {
            "PROP_NAMESERVER_ADDR": ";".join(consumer.session.names.addresses),
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_CONSUMEORDERLY": "true" if consumer.mode.is_ordered else "false",
            "PROP_THREADPOOL_CORE_SIZE": str(consumer.options.concurrency),
            "PROP_CONSUMER_START_TIMESTAMP": str(consumer.started_ms),
            "PROP_CLIENT_VERSION": f"V{VERSION}",
        },
        "subscriptionSet": [subscription.data() for subscription in consumer.subscriptions.values()],
        "mqTable": queues,
        "mqPopTable": {},
        "statusTable": {
            topic: {
                "pullRT": 0.0,
                "pullTPS": 0.0,
                "consumeRT": 0.0,
                "consumeOKTPS": 0.0,
                "consumeFailedTPS": 0.0,
                "consumeFailedMsgs": consumer.counts.failed,
            }
            for topic in consumer.subscriptions
        },
    }


def _stacks() -> str:
    """Where each task of the event loop waits: what a thread dump is to Java."""
    lines: list[str] = []
    for task in sorted(asyncio.all_tasks(), key=lambda t: t.get_name()):
        lines.append(task.get_name())
        lines.extend(f"  {f.f_code.co_filename}:{f.f_lineno} {f.f_code.co_name}" for f in task.get_stack(limit=5))
    return "\n".join(lines)
