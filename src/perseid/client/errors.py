"""The errors of clients. `ClientError` is the base class of all of them.

Each class has two attributes (instances of some classes have their own values):

- `retryable`: the same call may succeed later, with nothing changed.
- `outcome_unknown`: the request may have been carried out, so a message may be stored. False: it was not.

docs/reference/errors.md has them in a table. `RetryLater` is not one of them: handlers raise it.
"""

from __future__ import annotations

from perseid.base.errors import ConfigError, PerseidError, RemoteProtocolError
from perseid.wire.codes import ResponseCode

RETRYABLE_CODES = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.GO_AWAY,
        ResponseCode.NOT_LEADER_FOR_QUEUE,
        ResponseCode.RPC_UNKNOWN,
        ResponseCode.RPC_TIME_OUT,
        ResponseCode.CONTROLLER_NOT_LEADER,
    }
)
UNKNOWN_CODES = frozenset({ResponseCode.SYSTEM_ERROR, ResponseCode.RPC_UNKNOWN, ResponseCode.RPC_TIME_OUT})
"""A broker answers SYSTEM_ERROR also when it lost its mastership after it had stored a message."""


class ClientError(PerseidError):
    """The base class of the client's errors: catch it to catch all of them."""

    retryable = False
    """The same call may succeed later, with nothing changed."""
    outcome_unknown = False
    """The request may have been carried out."""


class UsageError(ClientError):
    """A wrong argument, or calls in a wrong order. Nothing was sent."""


class NotStarted(UsageError):
    """A client was used before `start()` (or outside its `async with`), after `stop()`, or in another event loop."""


class InvalidMessage(UsageError):
    """A message that no broker would accept. It was not sent."""


class BadSettings(UsageError, ConfigError):
    """Credentials or TLS files that can't be read, or don't belong together."""


class InvalidBody(ClientError):
    """The serializer can't read the body of a received message (`ReceivedMessage.decode`)."""


class BufferFull(ClientError):
    """The client's buffer is full: await the results of some messages first."""

    retryable = True


class NoRoute(ClientError):
    """The topic does not exist, or the name servers know no broker of it that can take the request."""

    retryable = True

    def __init__(self, topic: str, hint: str) -> None:
        super().__init__(f"no route for topic {topic!r}: {hint}")
        self.topic = topic


class NoNameServer(ClientError):
    """No name server answered."""

    retryable = True


class ConnectFailed(ClientError):
    """A server could not be reached."""

    retryable = True

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"can't connect to {address}: {reason}; check that it runs and that the address is right")
        self.address = address
        self.reason = reason


class TlsFailed(ConnectFailed):
    """A server was reached, but the TLS handshake failed, mostly because a certificate is not trusted."""

    retryable = False


class ConnectionLost(ClientError):
    """A connection ended before the answer came: the request may or may not have been carried out."""

    retryable = True
    outcome_unknown = True

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"the connection to {address} ended before the answer: {reason}")
        self.address = address


class RequestTimeout(ClientError):
    """No answer in time: the request may or may not have been carried out."""

    retryable = True
    outcome_unknown = True

    def __init__(self, address: str, timeout_ms: int) -> None:
        super().__init__(f"{address} did not answer within {timeout_ms} ms")
        self.address = address


class BadAnswer(ClientError, RemoteProtocolError):
    """The answer can't be read: the request may or may not have been carried out."""

    outcome_unknown = True


class ServerRefused(ClientError):
    """A server answered with an error. `code` is RocketMQ's response code, `remark` the server's text."""

    def __init__(self, code: int, remark: str | None, address: str) -> None:
        super().__init__(f"{address} answered {code_name(code)}: {remark or 'no remark'}")
        self.code = code
        self.remark = remark or ""
        self.address = address
        self.retryable = code in RETRYABLE_CODES
        self.outcome_unknown = code in UNKNOWN_CODES


class SendFailed(ClientError):
    """No broker acknowledged the message. `attempts` is the number of attempts, `__cause__` the last error."""

    retryable = True

    def __init__(self, text: str, attempts: int, *, outcome_unknown: bool = False) -> None:
        super().__init__(text)
        self.attempts = attempts
        self.outcome_unknown = outcome_unknown


class NoReply(ClientError):
    """A request got no reply in time. Its message may or may not have been consumed."""

    retryable = True
    outcome_unknown = True

    def __init__(self, topic: str, timeout_ms: int) -> None:
        super().__init__(
            f"no reply to the request in {topic} within {timeout_ms} ms: check that its consumer runs and replies"
        )
        self.topic = topic


class NoController(ClientError):
    """No controller was active in time. One that was active before may have carried out the change."""

    retryable = True
    outcome_unknown = True


class NoLeader(ClientError):
    """A Raft group had no leader in time. Nothing was changed."""

    retryable = True


class OutcomeUnknown(ClientError):
    """An append to a Raft group was not answered. The entry may be in its log, or get there later."""

    outcome_unknown = True


def code_name(code: int) -> str:
    """A response code with its name: `TOPIC_NOT_EXIST (17)`."""
    try:
        return f"{ResponseCode(code).name} ({code})"
    except ValueError:
        return f"code {code}"
