"""Asyncio clients: producers, consumers and administration, for Perseid's and for the original's clusters."""

from perseid.client.admin import Admin
from perseid.client.errors import (
    BufferFull,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    InvalidMessage,
    NoRoute,
    NotStarted,
    RequestTimeout,
    SendFailed,
    ServerRefused,
)
from perseid.client.model import Message, MessageQueue, ReceivedMessage, SendResult, SendStatus
from perseid.client.producer import Producer
from perseid.client.pull import PullConsumer

__all__ = [
    "Admin",
    "BufferFull",
    "ClientError",
    "ConnectFailed",
    "ConnectionLost",
    "InvalidMessage",
    "Message",
    "MessageQueue",
    "NoRoute",
    "NotStarted",
    "Producer",
    "PullConsumer",
    "ReceivedMessage",
    "RequestTimeout",
    "SendFailed",
    "SendResult",
    "SendStatus",
    "ServerRefused",
]
