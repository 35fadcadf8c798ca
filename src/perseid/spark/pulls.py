"""The pulls of one task: a range of a queue, from one broker, over a plain socket that the task's own thread waits on.

A broker gives 32 messages for a pull, unless it is configured otherwise, so what a pull costs counts as much as what a
message does; an event loop, a thread for it and a future for each pull cost more than all else together. And several
pulls are under way: when one gave N messages, the ones after it are asked for N further on each, before it is known
that they begin there. As long as that guess holds twice as many are guessed; what was guessed wrong is thrown away.

    ask at, at + N, at + 2N, …  →  the answer to `at` goes on at `at + N`: the next one is what was wanted
                                →  it goes on elsewhere: the others are thrown away, ask there

Finding the broker, and trying again, is the caller's.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple, Self

from perseid import core
from perseid.base.errors import RemoteProtocolError
from perseid.base.machine import Buffer
from perseid.client.connection import CONNECT_TIMEOUT_MS
from perseid.client.credentials import credentials_here
from perseid.client.errors import ConnectFailed, ConnectionLost, RequestTimeout, ServerRefused
from perseid.client.model import MessageQueue
from perseid.client.pulling import GRACE_MS, SUBSCRIPTION
from perseid.client.subscription import Subscription
from perseid.client.tls import ClientTls, why
from perseid.security.credentials import Credentials
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command, decode_all, encode_request
from perseid.wire.headers.pull import PullMessageRequest, PullMessageResponse

MOST_MESSAGES = 1024
"""Asked for in one pull; brokers answer with as many as they are configured for, by default 32."""
MOST_GUESSED = 32
"""Pulls under way at most. When half of them are answered, as many are asked in one piece: what a send costs most is
waking the broker."""
BUFFER_BYTES = 1 << 20
"""Read at once; an answer that is longer gets a buffer of its own size."""
MAX_OPAQUE = 2**31 - 1

_GOES_ON = frozenset(
    {ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED}
)  # fmt: skip


class _Pull(NamedTuple):
    """One that is under way."""

    opaque: int
    offset: int


class Pulls:
    """A connection to `address` (`host:port`), made within `with`, for pulls of one queue."""

    def __init__(
        self,
        address: str,
        group: str,
        queue: MessageQueue,
        subscription: Subscription,
        tls: ClientTls | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self._address, self._group, self._queue, self._subscription = address, group, queue, subscription
        self._credentials = credentials or credentials_here()
        self._tls = tls
        self._socket: socket.socket | None = None
        self._buffer = bytearray(BUFFER_BYTES)
        self._begin = self._end = 0
        """The part of the buffer that is not taken yet."""
        self._answers: dict[int, Command] = {}
        self._opaque = 0
        self.reached = -1
        """Up to where the answers told of all messages that are there."""

    def __enter__(self) -> Self:
        host, _, port = self._address.rpartition(":")
        try:
            self._socket = socket.create_connection((host, int(port)), CONNECT_TIMEOUT_MS / 1000)
        except (OSError, ValueError) as error:
            raise ConnectFailed(self._address, str(error)) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is not None:
            try:
                self._socket = self._tls.secured(self._socket, self._address)
            except OSError as error:
                self._socket.close()
                raise ConnectFailed(self._address, why(error, self._address)) from error
        self._socket.settimeout(GRACE_MS / 1000)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._socket is not None:
            self._socket.close()

    def read(self, start: int, end: int) -> Iterator[Buffer]:
        """The records of the answers that cover the offsets from `start` to before `end`, in order; the last may hold
        more. Each is good until the next one is asked for. Ends early where the queue ends before `end`."""
        at = planned = start
        step, depth = 0, 1
        under_way: deque[_Pull] = deque()
        while at < end:
            if len(under_way) <= depth // 2:
                asked: list[int] = []
                while len(under_way) + len(asked) < depth and planned < end:
                    asked.append(planned)
                    planned += step if step else end
                under_way.extend(self._ask(asked, end))
            opaque, _ = under_way.popleft()
            answer = self._answer(opaque)
            if answer.code not in _GOES_ON:
                if answer.code == ResponseCode.PULL_NOT_FOUND:
                    return
                if answer.code == ResponseCode.GO_AWAY:
                    raise ConnectionLost(self._address, "the server is going away")
                raise ServerRefused(answer.code, answer.remark, self._address)
            goes_on = answer.header(PullMessageResponse).next_begin_offset
            if answer.code == ResponseCode.SUCCESS:
                yield answer.body
            self.reached = goes_on
            if goes_on <= at:
                return
            if step and goes_on == at + step and (not under_way or under_way[0].offset == goes_on):
                depth = min(2 * depth, MOST_GUESSED)
            else:
                self._forget(under_way)
                depth, step, planned = 1, goes_on - at, goes_on
            at = goes_on

    def _ask(self, offsets: list[int], end: int) -> list[_Pull]:
        """Send pulls from these offsets on, in one piece."""
        frames, asked = [], []
        for offset in offsets:
            self._opaque = self._opaque % MAX_OPAQUE + 1
            header = PullMessageRequest(
                consumer_group=self._group,
                topic=self._queue.topic,
                queue_id=self._queue.queue_id,
                queue_offset=offset,
                max_msg_nums=min(MOST_MESSAGES, end - offset),
                sys_flag=SUBSCRIPTION,
                commit_offset=0,
                suspend_timeout_millis=0,
                subscription=self._subscription.text,
                sub_version=self._subscription.version,
                expression_type=self._subscription.kind,
            )
            signed = header if self._credentials is None else self._credentials.sign(header, b"")
            frames.append(encode_request(RequestCode.PULL_MESSAGE, self._opaque, signed))
            asked.append(_Pull(self._opaque, offset))
        if frames:
            assert self._socket is not None, "the pulls are not begun"
            try:
                self._socket.sendall(b"".join(frames))
            except TimeoutError:
                raise RequestTimeout(self._address, GRACE_MS) from None
            except OSError as error:
                raise ConnectionLost(self._address, str(error)) from error
        return asked

    def _answer(self, opaque: int) -> Command:
        """The answer to a pull; waits for it."""
        while opaque not in self._answers:
            self._receive()
        return self._answers.pop(opaque)

    def _forget(self, under_way: deque[_Pull]) -> None:
        """Wait for the answers to these, and throw them away."""
        while under_way:
            self._answer(under_way.popleft().opaque)

    def _receive(self) -> None:
        """Receive from the broker; answers that were not taken yet get bytes of their own."""
        assert self._socket is not None, "the pulls are not begun"
        for answer in self._answers.values():
            answer.keep()
        self._make_room()
        try:
            count = self._socket.recv_into(memoryview(self._buffer)[self._end :])
        except TimeoutError:
            raise RequestTimeout(self._address, GRACE_MS) from None
        except OSError as error:
            raise ConnectionLost(self._address, str(error)) from error
        if count == 0:
            raise ConnectionLost(self._address, "the server closed it")
        self._end += count
        there = memoryview(self._buffer)[self._begin : self._end]
        try:
            whole = core.complete(there)
            for answer in decode_all(there[:whole]) if whole else ():
                if answer.is_response:
                    self._answers[answer.opaque] = answer
        except RemoteProtocolError as error:
            raise ConnectionLost(self._address, f"it sent bytes that break the protocol: {error}") from error
        self._begin += whole

    def _make_room(self) -> None:
        """What is left of the buffer goes to its front; where that is all of it, to one of twice the size."""
        left = self._end - self._begin
        if left == len(self._buffer):
            self._buffer = self._buffer + bytearray(left)
        elif self._begin:
            view = memoryview(self._buffer)
            view[:left] = view[self._begin : self._end]
        self._begin, self._end = 0, left
