"""Transactions."""

import sqlite3

from perseid.client import Message, ReceivedMessage, SendResult, TransactionProducer, TransactionState


# --8<-- [start:transfer]
class Transfers:
    """Transfers that are in the database and in the topic, or in neither."""

    def __init__(self, namesrv: str, database: sqlite3.Connection) -> None:
        self.database = database
        database.execute("CREATE TABLE IF NOT EXISTS transfers (id TEXT PRIMARY KEY, cents INT CHECK (cents > 0))")
        self.producer = TransactionProducer(namesrv, "transfers", self.was_saved, topics=["transfers"])

    async def transfer(self, id: str, cents: int) -> TransactionState:
        async def save(half: SendResult) -> TransactionState:
            try:
                with self.database:
                    self.database.execute("INSERT INTO transfers VALUES (?, ?)", (id, cents))
            except sqlite3.IntegrityError:
                return TransactionState.ROLLBACK  # no consumer sees the message
            return TransactionState.COMMIT

        return (await self.producer.send_in_transaction(Message("transfers", b"%d" % cents, keys=id), save)).state

    async def was_saved(self, half: ReceivedMessage) -> TransactionState:
        """A broker asks what became of a half message: the process that sent it did not tell."""
        [id] = half.keys
        row = self.database.execute("SELECT 1 FROM transfers WHERE id = ?", (id,)).fetchone()
        return TransactionState.COMMIT if row else TransactionState.ROLLBACK
# --8<-- [end:transfer]
