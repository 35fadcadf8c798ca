"""Errors of clients; each text says what to do next."""

from __future__ import annotations

from perseid.base.errors import PerseidError


class ClientError(PerseidError):
    """The root of the client's errors: catch this one to catch them all."""


class NotStarted(ClientError):
    """A client was used before `start()` (or outside its `async with`), or after `stop()`."""


class InvalidMessage(ClientError):
    """A message that no broker would take; it was not sent."""


class InvalidBody(ClientError):
    """The body of a received message is not what its reader takes (`ReceivedMessage.decode`)."""


class NoRoute(ClientError):
    """The name servers know no broker for a topic."""

    def __init__(self, topic: str, hint: str) -> None:
        super().__init__(f"no route for topic {topic!r}: {hint}")
        self.topic = topic


class ConnectFailed(ClientError):
    """A server could not be reached."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"can't connect to {address}: {reason}; check that it runs and that the address is right")
        self.address = address


class ConnectionLost(ClientError):
    """A connection ended before the answer came: the request may or may not have been carried out."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"the connection to {address} ended before the answer: {reason}")
        self.address = address


class RequestTimeout(ClientError):
    """No answer in time: the request may or may not have been carried out."""

    def __init__(self, address: str, timeout_ms: int) -> None:
        super().__init__(f"{address} did not answer within {timeout_ms} ms")
        self.address = address


class NoReply(ClientError):
    """A request got no reply in time; its message may or may not have been consumed."""

    def __init__(self, topic: str, timeout_ms: int) -> None:
        super().__init__(f"no reply to the request in {topic} within {timeout_ms} ms: does who consumes it reply?")
        self.topic = topic


class ServerRefused(ClientError):
    """A server answered with an error code; `code` is the original's response code, `remark` its text."""

    def __init__(self, code: int, remark: str | None, address: str) -> None:
        super().__init__(f"{address} answered {code_name(code)}: {remark or 'no remark'}")
        self.code = code
        self.remark = remark or ""
        self.address = address


class SendFailed(ClientError):
    """A message was not acknowledged by any broker that was tried; `__cause__` is the last error."""

    def __init__(self, text: str, attempts: int) -> None:
        super().__init__(text)
        self.attempts = attempts


class BufferFull(ClientError):
    """More messages wait in the client than it may hold: await some of them first."""


def code_name(code: int) -> str:
    """A response code for people: `TOPIC_NOT_EXIST (17)`."""
    from perseid.wire.codes import ResponseCode

    try:
        return f"{ResponseCode(code).name} ({code})"
    except ValueError:
        return f"code {code}"
