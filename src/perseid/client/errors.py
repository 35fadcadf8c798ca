"""The errors of clients: one tree, whose root is `ClientError`.

Each class says two things (an instance may know better than its class):

- `retryable`: the same call may succeed later, with nothing changed.
- `outcome_unknown`: the request may have been carried out: a message may be stored. False: it was not.

docs/reference/errors.md has them in a table. `RetryLater` is none of them: handlers raise it.
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
    """The root of the client's errors: catch this one to catch them all."""

    retryable = False
    """The same call may succeed later, with nothing changed."""
    outcome_unknown = False
    """The request may have been carried out."""


class UsageError(ClientError):
    """An argument, or an order of calls, that can't work; nothing was sent."""


class NotStarted(UsageError):
    """A client was used before `start()` (or outside its `async with`), after `stop()`, or in another event loop."""


class InvalidMessage(UsageError):
    """A message that no broker would take; it was not sent."""


class BadSettings(UsageError, ConfigError):
    """Credentials or files of TLS that can't be used."""


class InvalidBody(ClientError):
    """The body of a received message is not what its reader takes (`ReceivedMessage.decode`)."""


class BufferFull(ClientError):
    """More messages wait in the client than it may hold: await some of them first."""

    retryable = True


class NoRoute(ClientError):
    """The name servers know no broker for a topic that can take the request."""

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
    """A server was reached, and no connection with TLS came about: mostly a certificate that is not trusted."""

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
    """An answer came that can't be read: the request may or may not have been carried out."""

    outcome_unknown = True


class ServerRefused(ClientError):
    """A server answered with an error code; `code` is the original's response code, `remark` its text."""

    def __init__(self, code: int, remark: str | None, address: str) -> None:
        super().__init__(f"{address} answered {code_name(code)}: {remark or 'no remark'}")
        self.code = code
        self.remark = remark or ""
        self.address = address
        self.retryable = code in RETRYABLE_CODES
        self.outcome_unknown = code in UNKNOWN_CODES


class SendFailed(ClientError):
    """A message was not acknowledged by any broker that was tried; `__cause__` is the last error."""

    retryable = True

    def __init__(self, text: str, attempts: int, *, outcome_unknown: bool = False) -> None:
        super().__init__(text)
        self.attempts = attempts
        self.outcome_unknown = outcome_unknown


class NoReply(ClientError):
    """A request got no reply in time; its message may or may not have been consumed."""

    retryable = True
    outcome_unknown = True

    def __init__(self, topic: str, timeout_ms: int) -> None:
        super().__init__(f"no reply to the request in {topic} within {timeout_ms} ms: does who consumes it reply?")
        self.topic = topic


class NoController(ClientError):
    """No controller was active in time: a change may have been carried out by one that was."""

    retryable = True
    outcome_unknown = True


class NoLeader(ClientError):
    """No member of a Raft group led in time: nothing has happened."""

    retryable = True


class OutcomeUnknown(ClientError):
    """An append to a Raft group may have happened, or may yet."""

    outcome_unknown = True


def code_name(code: int) -> str:
    """A response code for people: `TOPIC_NOT_EXIST (17)`."""
    try:
        return f"{ResponseCode(code).name} ({code})"
    except ValueError:
        return f"code {code}"
