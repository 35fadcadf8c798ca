"""What TLS costs a broker: CPU per message with it and without it, on one broker, by turns.

    .venv/bin/python bench/tls.py                  # three rows: pipelined sends, a closed loop, pulls of 32

The broker is `perseid up` as it is by default, which takes both. Numbers are the process' CPU time for each message,
the lowest of the rounds: what else runs on a machine only adds.
"""

from __future__ import annotations

import argparse
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from perseid.client import ClientTls
from perseid.client.blocking import BlockingAdmin
from perseid.security.tls import ClientSide, State, Tls
from perseid.wire.command import decode_all, encode_request
from perseid.wire.frame import complete
from perseid.wire.headers.pull import PullMessageRequest
from perseid.wire.headers.send import SendMessageRequestV2

BODY = bytes(256)
WINDOW = 64
"""Requests under way, of the pipelined rows."""
TOPIC = "bench"


def cpu_s(pid: int) -> float:
    """Of a process so far."""
    return sum(int(one.read_text().split()[0]) for one in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


class Connection:
    """To `host:port`. What is sent in one piece leaves in one, as with Java's and our clients: an `SSLSocket` would
    wake the broker for each 16 KiB."""

    def __init__(self, address: str, *, tls: bool) -> None:
        host, _, port = address.rpartition(":")
        self._sock = socket.create_connection((host, int(port)), 10)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        context = ClientTls(verify=False).context()
        self._tls = Tls.dialled(ClientSide(lambda: context), address) if tls else None
        while self._tls is not None and self._tls.state is not State.OPEN:
            self._sock.sendall(self._tls.outgoing())
            self._tls.received(self._sock.recv(1 << 18))
        if self._tls is not None:
            self._sock.sendall(self._tls.outgoing())

    def ask(self, request: bytes, answers: int) -> None:
        """Send some requests in one piece, and take in all their answers."""
        self._sock.sendall(request if self._tls is None else self._tls.seal(request))
        waiting = bytearray()
        while answers:
            data = self._sock.recv(1 << 18)
            waiting += data if self._tls is None else self._tls.received(data)
            whole = complete(waiting)
            if whole:
                got = decode_all(memoryview(bytes(waiting[:whole])))
                assert all(one.code == 0 for one in got), got[0].remark
                answers -= len(got)
                del waiting[:whole]

    def close(self) -> None:
        self._sock.close()


def send_frame(number: int) -> bytes:
    properties = f"UNIQ_KEY\x01{number:032X}\x02TAGS\x01a\x02"
    header = SendMessageRequestV2("bench", TOPIC, "TBW102", 4, 0, 0, 1_700_000_000_000, 0, properties=properties)
    return encode_request(310, 1, header, BODY)


def pull_frame(_: int) -> bytes:
    header = PullMessageRequest(
        consumer_group="bench", topic=TOPIC, queue_id=0, queue_offset=0, max_msg_nums=32, sys_flag=4, commit_offset=0,
        suspend_timeout_millis=0, subscription="*", sub_version=0, expression_type="TAG",
    )  # fmt: skip
    return encode_request(11, 1, header)


ROWS: dict[str, tuple[Callable[[int], bytes], int, int]] = {
    "tls-pipelined": (send_frame, WINDOW, 1),
    "tls-closed": (send_frame, 1, 1),
    "tls-pull": (pull_frame, 4, 32),
}
"""Name → request, how many at once, messages of each."""


def measured(pid: int, address: str, name: str, messages: int, *, tls: bool) -> float:
    """Microseconds of the broker's CPU for a message."""
    frame, window, each = ROWS[name]
    request = b"".join(frame(number) for number in range(window))
    with closing(Connection(address, tls=tls)) as connection:
        connection.ask(request, window)
        before = cpu_s(pid)
        turns = max(1, messages // (window * each))
        for _ in range(turns):
            connection.ask(request, window)
        return (cpu_s(pid) - before) / (turns * window * each) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=60_000, help="of a round; the closed loop has a tenth")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as data:
        ports = ["--namesrv-port", "0", "--broker-port", "0"]
        up = [sys.executable, "-m", "perseid.cli.main", "up", "--data", data, *ports]
        with subprocess.Popen(up, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as broker:
            assert broker.stdout is not None
            told = dict(word.partition("=")[::2] for word in broker.stdout.readline().split()[1:])
            with BlockingAdmin(told["namesrv"]) as admin:
                admin.create_topic(TOPIC, 1)
            print("| row | without TLS, µs | with TLS, µs | more |\n|---|---|---|---|")
            for name in ROWS:
                count = options.messages // 10 if name == "tls-closed" else options.messages
                best = [1e9, 1e9]
                for _ in range(options.rounds):
                    for tls in (False, True):
                        found = measured(broker.pid, told["broker"], name, count, tls=tls)
                        best[tls] = min(best[tls], found)
                more = best[1] - best[0]
                print(f"| {name} | {best[0]:.2f} | {best[1]:.2f} | {more:+.2f} ({more / best[0]:+.0%}) |", flush=True)
            broker.send_signal(signal.SIGTERM)
            broker.wait(60)


if __name__ == "__main__":
    main()
