"""Request and reply."""

import logging

from perseid.client import ClientError, Consumer, Message, NoReply, Producer

log = logging.getLogger(__name__)


# --8<-- [start:serve]
async def serve(namesrv: str) -> None:
    async with Producer(namesrv) as producer, Consumer(namesrv, "squares", {"squares": "*"}) as consumer:
        async for request in consumer:
            try:
                await producer.reply(request, b"%d" % int(request.body) ** 2)
            except ClientError as error:
                log.info("nobody waits for this reply any more: %s", error)
# --8<-- [end:serve]


# --8<-- [start:ask]
async def ask(namesrv: str, number: int) -> int | None:
    async with Producer(namesrv) as producer:
        try:
            reply = await producer.request(Message("squares", b"%d" % number), timeout_ms=5_000)
        except NoReply:
            return None
        return int(reply.body)
# --8<-- [end:ask]
