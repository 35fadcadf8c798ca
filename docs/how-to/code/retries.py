"""Retries and dead letters."""

import logging

from perseid.client import Consumer, Message, Producer, PullConsumer, PushOptions

log = logging.getLogger(__name__)


# --8<-- [start:consume]
class BankIsDown(Exception):
    """Try again later."""


class Declined(Exception):
    """Will never work."""


async def charge(body: bytes) -> None:
    """Stands for your work."""
    if body == b"declined":
        raise Declined
    if body == b"down":
        raise BankIsDown


async def consume(namesrv: str) -> None:
    options = PushOptions(max_reconsume_times=3)
    async with Consumer(namesrv, "billing", {"orders": "*"}, from_where="first", options=options) as consumer:
        async for message in consumer:
            try:
                await charge(message.body)
            except BankIsDown:
                consumer.retry_later(message)  # after 10 s, 30 s, 1 min; then to the dead letters
            except Declined:
                consumer.retry_later(message, delay_level=-1)  # to the dead letters at once
# --8<-- [end:consume]


# --8<-- [start:again]
async def send_again(namesrv: str, group: str) -> int:
    """Give a group its dead letters once more, those that were not given again yet; how many."""
    count = 0
    async with Producer(namesrv) as producer, PullConsumer(namesrv, f"{group}-dead-letters") as dead:
        for queue in await dead.queues(f"%DLQ%{group}"):
            begin = await dead.committed(queue) or await dead.min_offset(queue)
            async for messages in dead.read(queue, begin, await dead.max_offset(queue)):
                for message in messages:
                    again = Message(
                        f"%RETRY%{group}",  # only this group reads it
                        message.body,
                        tag=message.tag,
                        keys=message.keys,
                        properties={"RETRY_TOPIC": message.properties["RETRY_TOPIC"]},
                    )
                    await producer.send(again)
                    await dead.commit(queue, message.queue_offset + 1)
                    count += 1
    return count
# --8<-- [end:again]
