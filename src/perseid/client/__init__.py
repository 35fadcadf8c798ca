"""Asyncio clients for clusters of Perseid and RocketMQ: producers, consumers, administration.

    async with Producer("host:9876") as producer:
        await producer.send(Message("orders", b"…", tag="new", keys=["4711"]))

    async with Consumer("host:9876", "billing", {"orders": "new || paid"}) as consumer:
        async for message in consumer:
            await charge(message.body)

    consumer = PushConsumer("host:9876", "billing", {"orders": "new || paid"}, handle, concurrency=5)
    sys.exit(asyncio.run(run_until_signal(consumer)))

| to | use |
|---|---|
| send | `Producer` (in batches with `linger_ms`), `OrderedProducer` (in order), `TransactionProducer` |
| share messages with a group | `Consumer` (a loop), `PushConsumer` (a handler), `PopConsumer`, `LiteConsumer` |
| read queues of your choice | `PullConsumer` |
| turn objects into bodies, and back | `Json`, `Msgpack`, `Protobuf`, `Functions` (`perseid.client.serializers`) |
| trace and count | `Hook` (`perseid.client.hooks`), `perseid.client.otel`, `producer.metrics`, `consumer.metrics` |
| run until SIGTERM | `run_until_signal` |
| administer | `Admin` |

`perseid.client.blocking` has the same clients for code without asyncio.
"""

from perseid.client.admin import Admin, BrokerEpochs, Cluster, QueueLag, QueueStats, SlaveStatus
from perseid.client.consumer import PushConsumer, RetryLater
from perseid.client.credentials import read_credentials
from perseid.client.errors import (
    BadAnswer,
    BadSettings,
    BufferFull,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    InvalidBody,
    InvalidMessage,
    NoController,
    NoLeader,
    NoNameServer,
    NoReply,
    NoRoute,
    NotStarted,
    OutcomeUnknown,
    RequestTimeout,
    SendFailed,
    ServerRefused,
    TlsFailed,
    UsageError,
)
from perseid.client.hooks import Consuming, Hook, Outgoing, Receiving, SendCall, Sending
from perseid.client.lite import Begin, LiteConsumer
from perseid.client.metrics import ConsumerMetrics, Latency, ProducerMetrics
from perseid.client.model import Message, MessageQueue, ReceivedMessage, SendResult, SendStatus
from perseid.client.options import (
    ConsumeMode,
    FlowLimits,
    OrderedProducerOptions,
    PopOptions,
    ProducerOptions,
    PullOptions,
    PushOptions,
)
from perseid.client.ordered import OrderedProducer
from perseid.client.pop import PopConsumer, PoppedMessage
from perseid.client.producer import Producer
from perseid.client.pull import PullConsumer
from perseid.client.pulling import PullResult, PullStatus
from perseid.client.routes import TopicRoute
from perseid.client.run import run_until_signal
from perseid.client.serializers import Functions, Json, Msgpack, Protobuf, Serializer
from perseid.client.session import Session
from perseid.client.stream import Consumer
from perseid.client.subscription import Sql
from perseid.client.tls import ClientTls
from perseid.client.tracing import Tracer
from perseid.client.transactions import TransactionProducer, TransactionResult, TransactionState
from perseid.security.credentials import Credentials

__all__ = [
    "Admin",
    "BadAnswer",
    "BadSettings",
    "Begin",
    "BrokerEpochs",
    "BufferFull",
    "ClientError",
    "ClientTls",
    "Cluster",
    "ConnectFailed",
    "ConnectionLost",
    "ConsumeMode",
    "Consumer",
    "ConsumerMetrics",
    "Consuming",
    "Credentials",
    "FlowLimits",
    "Functions",
    "Hook",
    "InvalidBody",
    "InvalidMessage",
    "Json",
    "Latency",
    "LiteConsumer",
    "Message",
    "MessageQueue",
    "Msgpack",
    "NoController",
    "NoLeader",
    "NoNameServer",
    "NoReply",
    "NoRoute",
    "NotStarted",
    "OrderedProducer",
    "OrderedProducerOptions",
    "OutcomeUnknown",
    "Outgoing",
    "PopConsumer",
    "PopOptions",
    "PoppedMessage",
    "Producer",
    "ProducerMetrics",
    "ProducerOptions",
    "Protobuf",
    "PullConsumer",
    "PullOptions",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "PushOptions",
    "QueueLag",
    "QueueStats",
    "ReceivedMessage",
    "Receiving",
    "RequestTimeout",
    "RetryLater",
    "SendCall",
    "SendFailed",
    "SendResult",
    "SendStatus",
    "Sending",
    "Serializer",
    "ServerRefused",
    "Session",
    "SlaveStatus",
    "Sql",
    "TlsFailed",
    "TopicRoute",
    "Tracer",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "UsageError",
    "read_credentials",
    "run_until_signal",
]
