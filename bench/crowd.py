"""What else a large broker holds while it is measured: thousands of topics with a message each, and consumers, each
of a group of its own, which have asked for what comes next and wait."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from servers import BenchError, Remote, Server, frame_of, parts_of_frame

TOPICS, CONSUMERS = 10_000, 1_000
OPEN_FILES = TOPICS + CONSUMERS
"""Of a broker: one for each queue, and the connections. 20,000 are all that some containers allow."""
TOPICS_AT_ONCE = 500
"""In one request."""
WINDOW = 100
"""Requests under way: the original's broker makes a topic for each group, and writes its table of topics each time."""
CREATE_TOPICS, HEARTBEAT, PULL = 18, 34, 11
READ_WRITE = 6
HOLD, WITH_SUBSCRIPTION = 2, 4
"""In sysFlag of a pull."""
HELD_MS = 600_000
TIMEOUT_S = 120.0


def topic(number: int) -> str:
    return f"bench-crowd-{number:05}"


def group(number: int) -> str:
    return f"bench-crowd-{number:04}"


def fill(server: Server) -> None:
    """The topics, of one queue, with a message each; and the groups."""
    with Remote(server.ports[0], TIMEOUT_S) as remote:
        for begin in range(0, TOPICS, TOPICS_AT_ONCE):
            some = [_config(number) for number in range(begin, min(begin + TOPICS_AT_ONCE, TOPICS))]
            remote.call(CREATE_TOPICS, {}, json.dumps({"topicConfigList": some}).encode())
        for number in range(TOPICS):
            remote.send(topic(number), 0)
    with consumers(server):
        pass


def _config(number: int) -> dict[str, object]:
    return {"topicName": topic(number), "readQueueNums": 1, "writeQueueNums": 1, "perm": READ_WRITE}


@contextmanager
def consumers(server: Server) -> Iterator[None]:
    """Connections of CONSUMERS, each registered and with a pull that is held."""
    with ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.ports[0]), TIMEOUT_S))
            for _ in range(CONSUMERS)
        ]
        for begin in range(0, CONSUMERS, WINDOW):
            some = range(begin, min(begin + WINDOW, CONSUMERS))
            _ask(sockets, some, heartbeat)
            for number in some:
                answered(sockets[number], HEARTBEAT)
        _ask(sockets, range(CONSUMERS), pull)
        yield


def _ask(sockets: Sequence[socket.socket], numbers: range, request: Callable[[int], bytes]) -> None:
    for number in numbers:
        sockets[number].sendall(request(number))


def answered(connection: socket.socket, opaque: int) -> None:
    """Read until the answer with this number; what the broker asks meanwhile is not ours to answer."""
    with connection.makefile("rb") as stream:
        while True:
            (size,) = struct.unpack(">I", stream.read(4))
            header, _ = parts_of_frame(stream.read(size))
            if header["opaque"] == opaque and header["flag"] & 1:
                if header["code"] != 0:
                    raise BenchError(f"a consumer is refused: {header}")
                return


def heartbeat(number: int) -> bytes:
    """Of the only consumer of a group."""
    subscription = {"topic": topic(number), "subString": "*", "subVersion": 1, "expressionType": "TAG"}
    consumer = {
        "groupName": group(number),
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [subscription],
    }
    body = {"clientID": f"127.0.0.1@{number}", "producerDataSet": [], "consumerDataSet": [consumer]}
    return frame_of(HEARTBEAT, {}, json.dumps(body).encode(), opaque=HEARTBEAT)


def pull(number: int) -> bytes:
    """Behind the only message of its topic."""
    header = {
        "consumerGroup": group(number),
        "topic": topic(number),
        "queueId": 0,
        "queueOffset": 1,
        "maxMsgNums": 32,
        "sysFlag": HOLD | WITH_SUBSCRIPTION,
        "commitOffset": 0,
        "suspendTimeoutMillis": HELD_MS,
        "subscription": "*",
        "subVersion": 1,
        "expressionType": "TAG",
    }
    return frame_of(PULL, header, opaque=PULL)
