"""A peer that sends any bytes, servers as processes, and messages that must outlive what is done to the server."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

from tests.output import Output

from perseid.client import Message, MessageQueue
from perseid.client.blocking import BlockingAdmin, BlockingProducer, BlockingPullConsumer
from perseid.wire.codes import RequestCode
from perseid.wire.command import Command, decode, encode_request
from perseid.wire.frame import complete
from perseid.wire.headers.send import SendMessageRequestV2

DEADLINE = 60.0
SMALL = {
    "mappedFileSizeCommitLog": "1048576",
    "mappedFileSizeConsumeQueue": "6000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
}


def address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


class Peer:
    """One connection to a server, at the level of bytes."""

    def __init__(self, at: str, receive_bytes: int = 0, source: str = "") -> None:
        """`source`: the address that it comes from."""
        self.socket = socket.socket()
        if source:
            self.socket.bind((source, 0))
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(DEADLINE)
        self.socket.connect(address(at))
        self._kept = bytearray()
        self._opaque = 0

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self) -> Command:
        """The next frame that the server sends."""
        while not complete(self._kept):
            data = self.socket.recv(1 << 16)
            assert data, "the server closed the connection"
            self._kept += data
        size = 4 + int.from_bytes(self._kept[:4], "big")
        frame = bytes(self._kept[:size])
        del self._kept[:size]
        return decode(frame)

    def call(self, code: int, header: Any = None, body: bytes = b"") -> Command:
        """A request and its answer."""
        self._opaque += 1
        self.send(encode_request(code, self._opaque, header, body))
        answer = self.read()
        assert answer.is_response and answer.opaque == self._opaque
        return answer

    def send_message(self, topic: str, body: bytes, **fields: Any) -> Command:
        return self.call(RequestCode.SEND_MESSAGE_V2, send_header(topic, **fields), body)

    def ended(self) -> bool:
        """Wait until the server closes the connection; it must not have sent anything first."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def drain(self) -> int:
        """Read up to the end of the connection; how many bytes came."""
        count = 0
        try:
            while data := self.socket.recv(1 << 20):
                count += len(data)
        except ConnectionError:
            pass
        return count


def send_header(topic: str, **fields: Any) -> SendMessageRequestV2:
    usual: dict[str, Any] = {
        "producer_group": "g",
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": 1,
        "flag": 0,
    }
    return SendMessageRequestV2(topic=topic, **{**usual, **fields})


class Acknowledged:
    """Messages of one queue that a broker acknowledged: `check` reads all of them back."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.queue: MessageQueue | None = None
        self.bodies: list[bytes] = []

    def send(self, namesrv: str, count: int = 5, size: int = 0) -> None:
        with BlockingProducer(namesrv) as producer:
            if self.queue is None:
                with BlockingAdmin(namesrv) as admin:
                    admin.create_topic(self.topic, 1)
                (self.queue,) = producer.queues(self.topic)
            for _ in range(count):
                body = b"%d " % len(self.bodies) + Random(1).randbytes(size)  # nothing that a client would compress
                assert producer.send(Message(self.topic, body)).queue_offset == len(self.bodies)
                self.bodies.append(body)

    def check(self, namesrv: str) -> None:
        """All are there, in order; and the next send is taken."""
        assert self.read(namesrv) == self.bodies
        self.send(namesrv, 1)

    def read(self, namesrv: str) -> list[bytes]:
        assert self.queue is not None
        with BlockingPullConsumer(namesrv, "check") as consumer:
            end = consumer.max_offset(self.queue)
            return [m.body for part in consumer.read(self.queue, 0, end) for m in part]


class Process:
    """One `perseid` process."""

    def __init__(self, *args: str, home: Path, files: int | None = None) -> None:
        code = "from perseid.cli.main import main; main()"
        if files is not None:
            code = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files})); " + code
        self.log = home / "stderr"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code, *args],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "HOME": str(home)},
            )
        self._output = Output(self.process, self.log)

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def line(self) -> str:
        """The next line of its output."""
        return self._output.line(DEADLINE)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.exit_code()

    def exit_code(self) -> int:
        self.process.communicate(timeout=DEADLINE)
        return self.process.returncode

    def refused(self) -> str:
        """The one line that a process left which could not start."""
        assert self.exit_code() == 1
        lines = [line for line in self.log.read_text().splitlines() if line.startswith("perseid: ")]
        assert "Traceback" not in self.log.read_text()
        assert len(lines) == 1, self.log.read_text()
        return lines[0]

    def resident_bytes(self) -> int:
        """Memory of its own: files that it maps are left out."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no RssAnon")


class Up(Process):
    """`perseid up` on free ports, ready."""

    def __init__(self, home: Path, files: int | None = None) -> None:
        self.data = home / "data"
        super().__init__(
            *("up", "--data", str(self.data), "--namesrv-port", "0", "--broker-port", "0", "--json"),
            home=home,
            files=files,
        )
        try:
            said = json.loads(self.line())
        except BaseException:
            self.__exit__()
            raise
        self.namesrv: str = said["namesrv"]
        self.broker: str = said["broker"]

    @property
    def vip(self) -> str:
        """The broker's second port."""
        host, port = address(self.broker)
        return f"{host}:{port - 2}"


def config_file(folder: Path, settings: Iterable[str] = (), name: str = "broker.conf") -> Path:
    """A broker's configuration with small files, without a name server."""
    usual = {
        "brokerName": "b",
        "brokerIP1": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "storePathRootDir": str(folder / "store"),
        **SMALL,
    }
    path = folder / name
    path.write_text("\n".join([f"{key}={value}" for key, value in usual.items()] + list(settings)) + "\n")
    return path
