"""What a broker may have more and more of, and how it comes to have it: the axes of `make bench ROWS=growth`.

Each axis makes a broker grow from one size to the next. Both kinds of broker get the same.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairs import cpu_s
from run import counted_load
from servers import TOPIC_QUEUES, BenchError, Remote, Server, frame_of, parts_of_frame

CREATE_TOPICS, HEARTBEAT, COMMIT_OFFSET = 18, 34, 15
ONE_WAY = 2
READ_WRITE = 6
AT_ONCE = 500
"""Topics or groups in one request."""
SET_UP_TIMEOUT_S = 300.0
MOST_WITH_MESSAGES = 10_000
"""Topics that have a message, and thus a file that is mapped: a system maps 65,530 (vm.max_map_count)."""
TIMER_TOPIC = "rmq_sys_wheel_timer"
LEAST_DELAY_MS, MOST_DELAY_MS = 40_000_000, 200_000_000
"""Of timers: none is due while it is measured."""
LOG_FILE_BYTES = 1 << 30
BLANK_MAGIC = 0xCBD43194
"""Of what fills a file of the log up to its end, where no message had room."""
RECORD_MAGICS = (0xDAA320A7, 0xDAA320A3)
QUIET_SHARE, LOOK_S, QUIET_TIMEOUT_S = 0.3, 0.5, 90.0
"""A broker has taken in what it got when it uses less of a core than that."""


@dataclass(frozen=True)
class Axis:
    """One thing of which there is more and more."""

    name: str
    unit: str
    short: tuple[int, ...]
    full: tuple[int, ...]
    """Sizes of a short run, and of a whole one."""
    grow: Callable[[Server, int, int], None]
    """Makes a broker of the first size one of the second."""
    each_s: float
    """About, to add one to Java's broker: for the plan."""
    stopped: bool = False
    """It grows while it does not run."""
    idle: bool = False
    """The size is a number of connections, which the load generator opens."""


def add_topics(server: Server, before: int, size: int) -> None:
    """Topics of one queue; the first of them have a message."""
    with Remote(server.ports[0], SET_UP_TIMEOUT_S) as remote:
        for begin in range(before, size, AT_ONCE):
            numbers = range(begin, min(begin + AT_ONCE, size))
            some = [
                {"topicName": topic(i), "readQueueNums": 1, "writeQueueNums": 1, "perm": READ_WRITE} for i in numbers
            ]
            remote.call(CREATE_TOPICS, {}, json.dumps({"topicConfigList": some}).encode())
            for number in numbers:
                if number < MOST_WITH_MESSAGES:
                    remote.send(topic(number), 0)


def topic(number: int) -> str:
    return f"bench-growth-{number:06}"


def add_groups(server: Server, before: int, size: int) -> None:
    """Groups that one client has joined, each with its offsets of a topic."""
    with Remote(server.ports[0], SET_UP_TIMEOUT_S) as remote:
        for begin in range(before, size, AT_ONCE):
            numbers = range(begin, min(begin + AT_ONCE, size))
            ask(remote, HEARTBEAT, heartbeat(numbers))
            remote.socket.sendall(b"".join(offsets_of(number) for number in numbers))
        ask(remote, HEARTBEAT, heartbeat(range(size - 1, size)))  # answered when all before it was done


def ask(remote: Remote, code: int, body: bytes) -> None:
    """A request of a client, which the broker asks and tells things meanwhile; BenchError when it is refused."""
    remote.socket.sendall(frame_of(code, {}, body))
    head: dict[str, Any] = {"flag": 0}
    while not head["flag"] & 1:
        prefix = remote.stream.read(4)
        if len(prefix) < 4:
            raise BenchError(f"the connection was closed while code {code} was asked")
        head, _ = parts_of_frame(remote.stream.read(struct.unpack(">I", prefix)[0]))
    if head["code"]:
        raise BenchError(f"request {code} was answered with {head['code']}: {head.get('remark')}")


def group(number: int) -> str:
    return f"bench-growth-{number:06}"


def heartbeat(numbers: range) -> bytes:
    """A client's body that says which groups it has."""
    subscription = {"topic": "bench", "subString": "*", "subVersion": 1, "expressionType": "TAG"}
    common = {
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [subscription],
    }
    groups = [{"groupName": group(number), **common} for number in numbers]
    return json.dumps({"clientID": "127.0.0.1@growth", "producerDataSet": [], "consumerDataSet": groups}).encode()


def offsets_of(number: int) -> bytes:
    """One-way commits of a group's offsets, of each queue."""
    fields = {"consumerGroup": group(number), "topic": "bench", "commitOffset": 0}
    requests = ({**fields, "queueId": queue} for queue in range(TOPIC_QUEUES))
    return b"".join(frame_of(COMMIT_OFFSET, request, flag=ONE_WAY) for request in requests)


def add_timers(server: Server, before: int, size: int) -> None:
    """Messages for a time that is hours off."""
    load = {"connections": 16, "window": 64, "size": 128, "messages": size - before}
    delays = {"delay-least": LEAST_DELAY_MS, "delay-most": MOST_DELAY_MS}
    counted_load(server, ["bench-timers"], "send", [TIMER_TOPIC], [0], 3_600.0, **load, **delays)
    settle(server)


def settle(server: Server) -> None:
    """Return when the broker has taken in what it got."""
    deadline = time.monotonic() + QUIET_TIMEOUT_S
    before, share = cpu_s(server.pids()), 1.0
    while share > QUIET_SHARE and time.monotonic() < deadline:
        time.sleep(LOOK_S)
        now = cpu_s(server.pids())
        before, share = now, (now - before) / LOOK_S


def no_growth(server: Server, before: int, size: int) -> None:
    """Connections are the load generator's to open."""


def add_log(server: Server, before: int, size: int) -> None:
    """GiB of log, in files that hold nothing but say that they are full. The broker does not run."""
    folder = server.folder / "store" / "commitlog"
    last = max(path for path in folder.iterdir() if path.name.isdigit() and has_messages(path))
    fill_up(last)
    first = int(last.name) + LOG_FILE_BYTES
    for path in folder.iterdir():
        if path.name.isdigit() and int(path.name) >= first:
            path.unlink()  # made ahead, and empty
    for number in range(size - before):
        path = folder / f"{first + number * LOG_FILE_BYTES:020}"
        with open(path, "xb") as file:
            file.truncate(LOG_FILE_BYTES)
            file.write(struct.pack(">II", LOG_FILE_BYTES, BLANK_MAGIC))


def has_messages(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(8)[4:] != bytes(4)


def fill_up(path: Path) -> None:
    """What follows the last message of a file of the log says that no message had room there."""
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        at = 0
        while at + 8 <= len(data):
            size, magic = struct.unpack_from(">II", data, at)
            if magic == BLANK_MAGIC:
                return
            if magic not in RECORD_MAGICS:
                break
            at += size
        if at + 8 > len(data):
            return
        if any(data[at : at + 8]):
            raise BenchError(f"{path}: neither a message nor nothing at {at}")
        struct.pack_into(">II", data, at, len(data) - at, BLANK_MAGIC)
        data.flush()
        os.fsync(file.fileno())


CONNECTIONS = (1, 100, 1_000, 10_000, 50_000)
AXES = (
    Axis("topics", "topics", (10, 1_000, 10_000), (10, 100, 1_000, 10_000, 100_000), add_topics, 0.002),
    Axis(
        "connections", "connections", (1, 1_000, 10_000), (1, 100, 1_000, 10_000, 50_000), no_growth, 0.0005, idle=True
    ),
    Axis("log", "GiB of log", (0, 10), (0, 1, 10, 50, 200), add_log, 0.02, stopped=True),
    Axis("groups", "groups", (1, 1_000), (1, 100, 1_000, 10_000), add_groups, 0.004),
    Axis("timers", "timers", (0, 100_000), (0, 10_000, 100_000, 1_000_000, 10_000_000), add_timers, 0.00004),
)
