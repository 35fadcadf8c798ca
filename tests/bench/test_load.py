"""The load generator against a broker of a few lines: it counts right, and it notices what is wrong."""

from __future__ import annotations

import contextlib
import json
import socketserver
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "bench" / "load.c"
RECORD_MAGIC = 0xDAA320A7

pytestmark = pytest.mark.interop  # needs a C compiler

Answer = Callable[[dict[str, object], bytes], tuple[int, dict[str, str], bytes]]


def frame(code: int, opaque: object, ext: dict[str, str], body: bytes) -> bytes:
    head = json.dumps({"code": code, "flag": 1, "opaque": opaque, "extFields": ext}).encode()
    return struct.pack(">II", 4 + len(head) + len(body), len(head)) + head + body


class FakeBroker(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.seen: list[dict[str, object]] = []
        super().__init__(("127.0.0.1", 0), FakeConnection)


class FakeConnection(socketserver.StreamRequestHandler):
    server: FakeBroker

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            self.serve()

    def serve(self) -> None:
        while prefix := self.rfile.read(8):
            length, header = struct.unpack(">II", prefix)
            head = json.loads(self.rfile.read(header))
            body = self.rfile.read(length - 4 - header)
            self.server.seen.append(head)
            code, ext, answer = self.server.answer(head, body)
            self.wfile.write(frame(code, head["opaque"], ext, answer))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("load") / "load"
    command = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(path), str(SOURCE)]
    subprocess.run(command, check=True)
    return path


@pytest.fixture
def fake() -> Iterator[Callable[[Answer], FakeBroker]]:
    started: list[FakeBroker] = []

    def start(answer: Answer) -> FakeBroker:
        broker = FakeBroker(answer)
        started.append(broker)
        threading.Thread(target=broker.serve_forever, daemon=True).start()
        return broker

    yield start
    for broker in started:
        broker.shutdown()
        broker.server_close()


def load(program: Path, broker: FakeBroker, mode: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [str(program), mode, str(broker.server_address[1]), "--topic", "t"]
    command += [str(x) for k, v in options.items() for x in (f"--{k}", v)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def accept(head: dict[str, object], body: bytes) -> tuple[int, dict[str, str], bytes]:
    return 0, {"queueId": "0", "queueOffset": "1"}, b""


def test_sends_exactly_what_was_asked_spread_over_the_queues(program: Path, fake: Callable) -> None:
    bodies: list[bytes] = []

    def answer(head: dict[str, object], body: bytes) -> tuple[int, dict[str, str], bytes]:
        bodies.append(body)
        return accept(head, body)

    broker = fake(answer)
    done = load(program, broker, "send", connections=4, window=8, messages=400, queues=4, size=77)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["messages"] == result["requests"] == len(broker.seen) == 400
    assert {len(b) for b in bodies} == {77}
    fields = [head["extFields"] for head in broker.seen]
    assert {f["e"] for f in fields} == {"0", "1", "2", "3"}
    properties = {f["i"] for f in fields}
    assert len(properties) == 400
    assert all(dict(p.split("\x01") for p in i.split("\x02") if p)["WAIT"] == "true" for i in properties)


def test_a_refusal_fails_the_run_and_is_told(program: Path, fake: Callable) -> None:
    def answer(head: dict[str, object], body: bytes) -> tuple[int, dict[str, str], bytes]:
        refused = len(broker.seen) == 50
        return (14 if refused else 0), {}, b""

    broker = fake(answer)
    done = load(program, broker, "send", connections=2, window=2, messages=100)
    assert done.returncode == 1
    assert "code 14" in done.stderr
    assert json.loads(done.stdout)["errors"] == 1


def test_an_answer_that_nobody_asked_for_fails_the_run(program: Path, fake: Callable) -> None:
    def answer(head: dict[str, object], body: bytes) -> tuple[int, dict[str, str], bytes]:
        head["opaque"] = 5
        return accept(head, body)

    done = load(program, fake(answer), "send", messages=10)
    assert done.returncode == 1
    assert "in flight" in done.stderr


def pulls(total: int, magic: int) -> Answer:
    def answer(head: dict[str, object], body: bytes) -> tuple[int, dict[str, str], bytes]:
        fields = head["extFields"]
        assert isinstance(fields, dict)
        begin, asked = int(fields["queueOffset"]), int(fields["maxMsgNums"])
        assert fields["sysFlag"] == "4" and begin + asked <= total
        found = {"nextBeginOffset": str(begin + asked), "minOffset": "0", "maxOffset": str(total)}
        return 0, found, struct.pack(">IIQ", 16, magic, 0) * asked

    return answer


def test_a_pull_counts_records_and_begins_again_at_the_end(program: Path, fake: Callable) -> None:
    broker = fake(pulls(100, RECORD_MAGIC))
    done = load(program, broker, "pull", connections=1, queues=1, messages=7, batch=32)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["requests"], result["messages"]) == (7, 7 * 32)
    offsets = [head["extFields"]["queueOffset"] for head in broker.seen]
    assert offsets == ["0", "32", "64", "0", "32", "64", "0"]


def test_a_pull_notices_what_is_no_record(program: Path, fake: Callable) -> None:
    done = load(program, fake(pulls(100, 7)), "pull", connections=1, messages=3)
    assert done.returncode == 1
    assert "magic" in done.stderr
