"""A client of a secured cluster."""

import asyncio
import os

from perseid.client import ClientTls, Message, Producer, Session, read_credentials

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")


# --8<-- [start:send]
async def main() -> None:
    folder = "data/security"
    session = Session(
        NAMESRV,
        credentials=read_credentials(f"{folder}/admin.credentials"),
        tls=ClientTls(f"{folder}/ca.pem", f"{folder}/client.pem", f"{folder}/client.key"),
    )
    async with Producer(session=session) as producer:
        print((await producer.send(Message("orders", b"signed and encrypted"))).status.name)


asyncio.run(main())
# --8<-- [end:send]
