"""All parts of the shop that run in the background."""

import logging
from contextlib import AsyncExitStack
from typing import Self

from orders.billing import Billing, Cards
from orders.database import Database
from orders.ledger import Ledger
from orders.reminders import Reminders
from orders.stock import Stock

log = logging.getLogger(__name__)


# --8<-- [start:service]
class Service:
    """Runs them all: `async with Service(namesrv, database, cards): …`."""

    def __init__(self, namesrv: str, database: Database, cards: Cards) -> None:
        self.clients = [
            *Stock(namesrv, database).clients,
            *Billing(namesrv, database, cards).clients,
            *Ledger(namesrv, database).clients,
            *Reminders(namesrv, database).clients,
        ]
        self.running = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for client in self.clients:
            await self.running.enter_async_context(client)
        log.info("serving")
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.running.aclose()

# --8<-- [end:service]
