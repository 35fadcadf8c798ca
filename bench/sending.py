"""Which way to send a pull's answer costs least: `python bench/sending.py` prints CPU of one end of a connection.

Each answer is a header and records of a mapped file that is in the page cache; a reader in another process takes it in
and asks for the next one. *Scattered*: every eighth record of the file, as one of eight queues finds them.
"""

from __future__ import annotations

import mmap
import os
import socket
import tempfile
import time
from collections.abc import Callable

FILE_BYTES = 64 << 20
HEAD = b"h" * 200
REQUEST = b"r" * 300
SHAPES = ((230, 1), (230, 32), (1126, 32), (1126, 256), (16_384, 32))
RUNS = 5
QUEUES = 8

Way = Callable[[socket.socket, list[memoryview], int], None]


def pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1)
        one = socket.create_connection(listening.getsockname())
        other, _ = listening.accept()
    for end in (one, other):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return one, other


def read_all(end: socket.socket, answer_bytes: int) -> None:
    """Take answers in and ask for the next one, until the connection ends."""
    buffer = bytearray(1 << 20)
    while True:
        got = 0
        while got < answer_bytes:
            count = end.recv_into(buffer)
            if not count:
                return
            got += count
        end.send(REQUEST)


def copied(end: socket.socket, pieces: list[memoryview], _: int) -> None:
    made = bytearray(HEAD)
    for piece in pieces:
        made += piece
    end.sendall(made)


def in_pieces(end: socket.socket, pieces: list[memoryview], _: int) -> None:
    parts: list[bytes | memoryview] = [HEAD, *pieces]
    sent = end.sendmsg(parts)
    if sent < sum(map(len, parts)):
        end.sendall(b"".join(parts)[sent:])


def plain(answer: bytes) -> Way:
    def sent(end: socket.socket, _pieces: list[memoryview], _at: int) -> None:
        end.sendall(answer)

    return sent


def by_file(descriptor: int) -> Way:
    def sent(end: socket.socket, pieces: list[memoryview], at: int) -> None:
        end.send(HEAD, socket.MSG_MORE)
        left = sum(map(len, pieces))
        while left:
            count = os.sendfile(end.fileno(), descriptor, at, left)
            at, left = at + count, left - count

    return sent


def measured(way: Way, view: memoryview, size: int, count: int, stride: int) -> float:
    """µs of CPU of an answer sent this way, with the read of the next request: the least of a few runs."""
    asking, answering = pair()
    child = os.fork()
    if child == 0:
        answering.close()
        read_all(asking, len(HEAD) + size * count)
        os._exit(0)
    asking.close()
    rounds = 1_000 if size * count < 100_000 else 200
    room = FILE_BYTES - stride * count
    least = float("inf")
    for run in range(RUNS):
        began = time.process_time()
        for number in range(rounds):
            at = (number * 977 + run * 131) * mmap.PAGESIZE % room
            if stride == size:
                pieces = [view[at : at + size * count]]
            else:
                pieces = [view[at + i * stride : at + i * stride + size] for i in range(count)]
            way(answering, pieces, at)
            answering.recv(len(REQUEST))
        least = min(least, (time.process_time() - began) / rounds * 1e6)
    answering.close()
    os.waitpid(child, 0)
    return least


def main() -> int:
    with tempfile.TemporaryFile(dir=os.path.dirname(os.path.abspath(__file__))) as file:
        file.write(os.urandom(FILE_BYTES))
        file.flush()
        pages = mmap.mmap(file.fileno(), FILE_BYTES)
        view = memoryview(pages)
        ways: dict[str, Way] = {"copied": copied, "sendmsg": in_pieces, "sendfile": by_file(file.fileno())}
        for size, count in SHAPES:
            for stride in (size, size * QUEUES):
                how = "neighbours" if stride == size else "scattered"
                floor = measured(plain(bytes(len(HEAD) + size * count)), view, size, count, stride)
                figures = [f"floor {floor:5.1f}"]
                for name, way in ways.items():
                    if name != "sendfile" or stride == size:
                        figures.append(f"{name} {measured(way, view, size, count, stride):5.1f}")
                print(f"{count:3} × {size:5} B, {how:10}", *figures, "µs", sep="  ")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
