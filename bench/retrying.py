"""A client that never gives up, and what became of all that was acknowledged to it.

It sends one message after the other, every POLL_S, to whoever the name server names as master of its topic. While
nobody answers, it asks the name server again every POLL_S and goes to the new one; a send that was not acknowledged is
sent again. What it was acknowledged is kept with its queue offset, and looked for in the queue afterwards.
"""

from __future__ import annotations

import json
import re
import select
import socket
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from servers import SEND, BenchError, Remote, frame_of, parts_of_frame, send_header

from perseid.wire import record

POLL_S = 0.005
CONNECT_TIMEOUT_S = 0.3
ROUTE_TIMEOUT_S = 3.0
DOUBT_S = 0.02
"""A send that takes longer makes the client ask for the master."""
SEND_TIMEOUT_S = 3.0
"""That of a Java client."""
MOST_UNREAD = 1 << 20
TOPIC_ROUTE, PULL = 105, 11
PULL_BATCH = 32
PULL_TIMEOUT_S = 15.0
PULL_NOT_FOUND, PULL_RETRY = 19, 20
SUBSCRIPTION_IN_HEADER = 4
MASTER = re.compile(rb'[{,]\s*"?0"?\s*:\s*"[^":]+:(\d+)"')
"""In a topic's route, whose keys Java writes bare."""


def master_of(route: bytes) -> int | None:
    """The port of the master in a topic's route."""
    found = MASTER.search(route)
    return int(found[1]) if found else None


@dataclass(frozen=True)
class Acked:
    """A message that was acknowledged: when (monotonic), by whom, and where in its queue."""

    number: int
    at_s: float
    port: int
    queue_offset: int


@dataclass(frozen=True)
class Verdict:
    """Of all that was acknowledged: how much is not in the queue, and how much is, but not where it was said to be."""

    acked: int
    lost: int
    moved: int


class Link:
    """A connection with at most one send that waits for its answer."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.waits_since_s: float | None = None
        self._socket = socket.create_connection(("127.0.0.1", port), CONNECT_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unread = bytearray()

    def send(self, frame: bytes) -> None:
        self._socket.sendall(frame)
        self.waits_since_s = time.monotonic()

    def answer(self, timeout_s: float) -> dict[str, Any] | None:
        """The header of the answer, if it comes in time; BenchError when the connection is closed."""
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0 and select.select([self._socket], [], [], left)[0]:
            data = self._socket.recv(65536)
            if not data:
                raise BenchError(f"the broker at port {self.port} closed the connection")
            self._unread += data
            if len(self._unread) > MOST_UNREAD:
                raise BenchError(f"the broker at port {self.port} sent more than an answer")
            if len(self._unread) >= 4 and len(self._unread) >= 4 + (size := struct.unpack_from(">I", self._unread)[0]):
                head, _ = parts_of_frame(bytes(self._unread[4 : 4 + size]))
                del self._unread[: 4 + size]
                self.waits_since_s = None
                return head
        return None

    def close(self) -> None:
        self._socket.close()


class RetryingClient:
    """Sends in a thread of its own, from `with` to its end."""

    def __init__(self, namesrv_port: int, topic: str, queue: int = 0) -> None:
        self.topic, self.queue = topic, queue
        self.acked: list[Acked] = []
        self.routes: list[tuple[float, int]] = []
        """When the name server was first seen to name another master, and which."""
        self._namesrv_port = namesrv_port
        self._names: Remote | None = None
        self._link: Link | None = None
        self._number = 0
        self._over = threading.Event()
        self._acked_more = threading.Condition()
        self._thread = threading.Thread(target=self._run)
        self._failed: BaseException | None = None

    def __enter__(self) -> RetryingClient:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for one in (self._link, self._names):
            if one is not None:
                one.close()

    def acked_elsewhere(self, port: int, timeout_s: float) -> Acked | None:
        """The first message after the last one of this port's broker that another one acknowledged; None: too late."""
        with self._acked_more:
            if self._acked_more.wait_for(lambda: self._failed or self._first_after(port) is not None, timeout_s):
                if self._failed:
                    raise self._failed
                return self._first_after(port)
        return None

    def _first_after(self, port: int) -> Acked | None:
        """Of the run of messages at the end that were not acknowledged by `port`, the first."""
        first = None
        for one in reversed(self.acked):
            if one.port == port:
                break
            first = one
        return first

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                began = time.monotonic()
                try:
                    self._turn()
                except (OSError, BenchError):
                    self._leave()
                self._over.wait(max(0.0, POLL_S - (time.monotonic() - began)))
        except BaseException as error:  # for whoever waits
            with self._acked_more:
                self._failed = error
                self._acked_more.notify_all()

    def _leave(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _turn(self) -> None:
        """One send, or one look for its answer or for the master."""
        if self._link is None:
            if (port := self._master()) is None:
                return
            self._link = Link(port)
        link = self._link
        if link.waits_since_s is None:
            body = f"{self._number:012}".encode()
            link.send(frame_of(SEND, send_header(self.topic, self.queue), body, opaque=self._number))
        if (answer := link.answer(POLL_S)) is not None:
            self._judge(link, answer)
            return
        waited = time.monotonic() - (link.waits_since_s or 0.0)
        if waited > SEND_TIMEOUT_S or (waited > DOUBT_S and self._master() not in (None, link.port)):
            self._leave()

    def _judge(self, link: Link, answer: dict[str, Any]) -> None:
        if answer["code"]:
            self._leave()  # refused: somebody else may be the master by now
            return
        found = Acked(self._number, time.monotonic(), link.port, int(answer["extFields"]["queueOffset"]))
        self._number += 1
        with self._acked_more:
            self.acked.append(found)
            self._acked_more.notify_all()

    def _master(self) -> int | None:
        """As the name server says now."""
        if self._names is None:
            self._names = Remote(self._namesrv_port, ROUTE_TIMEOUT_S)
        try:
            head, body = self._names.exchange(TOPIC_ROUTE, {"topic": self.topic})
        except (OSError, BenchError):
            self._names.close()
            self._names = None
            raise
        port = None if head["code"] else master_of(body)
        if port is not None and (not self.routes or self.routes[-1][1] != port):
            self.routes.append((time.monotonic(), port))
        return port

    def verdict(self, port: int) -> Verdict:
        """Look for all that was acknowledged so far in the queue that this port's broker has."""
        acked = list(self.acked)
        return judge(acked, stored(port, self.topic, self.queue, max((a.queue_offset for a in acked), default=-1) + 1))


def judge(acked: Sequence[Acked], found: dict[int, bytes]) -> Verdict:
    """`found`: the bodies in the queue, by their queue offset."""
    bodies, lost, moved = set(found.values()), 0, 0
    for one in acked:
        body = f"{one.number:012}".encode()
        if body not in bodies:
            lost += 1
        elif found.get(one.queue_offset) != body:
            moved += 1
    return Verdict(len(acked), lost, moved)


def stored(port: int, topic: str, queue: int, most: int) -> dict[int, bytes]:
    """The bodies of a queue by queue offset, up to `most`; fewer when no more come within PULL_TIMEOUT_S."""
    found: dict[int, bytes] = {}
    header: dict[str, object] = {"consumerGroup": "bench_consumer", "topic": topic, "queueId": queue}
    header |= {"maxMsgNums": PULL_BATCH, "sysFlag": SUBSCRIPTION_IN_HEADER, "commitOffset": 0, "subVersion": 0}
    header |= {"suspendTimeoutMillis": 0, "subscription": "*", "expressionType": "TAG"}
    at, deadline = 0, time.monotonic() + PULL_TIMEOUT_S
    with Remote(port) as remote:
        while at < most and time.monotonic() < deadline:
            head, body = remote.exchange(PULL, header | {"queueOffset": at})
            if head["code"] in (PULL_NOT_FOUND, PULL_RETRY):
                time.sleep(POLL_S)
                continue
            if head["code"]:
                raise BenchError(f"the pull of {topic} at {at} was answered with {json.dumps(head)}")
            for one in record.decode_all(body):
                found[one.queue_offset] = bytes(one.body)
            at = int(head["extFields"]["nextBeginOffset"])
            deadline = time.monotonic() + PULL_TIMEOUT_S
    return found
