"""Messages for a later time."""

from perseid.client import Message, Producer


async def send(namesrv: str, at_ms: int) -> None:
    # --8<-- [start:send]
    async with Producer(namesrv) as producer:
        await producer.send(Message("reminders", b"in 90 seconds", delay_ms=90_000))
        await producer.send(Message("reminders", b"at a time", deliver_at_ms=at_ms))  # since 1970, UTC
        await producer.send(Message("reminders", b"level 3", delay_level=3))  # 10 s, for old brokers, too
    # --8<-- [end:send]


# --8<-- [start:recall]
async def send_and_recall(namesrv: str) -> None:
    async with Producer(namesrv) as producer:
        sent = await producer.send(Message("reminders", b"never mind", delay_ms=90_000))
        await producer.recall("reminders", sent.recall_handle)
# --8<-- [end:recall]
