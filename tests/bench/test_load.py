"""The load generator against a broker of a few lines: it counts right, and it notices what is wrong."""

from __future__ import annotations

import contextlib
import json
import socketserver
import ssl
import struct
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

import pki
from perseid.security.certificates import Terms, server_context
from perseid.security.signature import SIGNATURE, is_signed
from perseid.wire import batch

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from servers import compile_load

RECORD_MAGIC = 0xDAA320A7
DEADLINE_S = 30.0

pytestmark = pytest.mark.interop  # needs a C compiler

Answer = Callable[[dict[str, object], bytes], "tuple[int, dict[str, str], bytes] | None"]
"""None: nobody is answered."""


def frame(code: int, opaque: object, ext: dict[str, str], body: bytes) -> bytes:
    head = json.dumps({"code": code, "flag": 1, "opaque": opaque, "extFields": ext}).encode()
    return struct.pack(">II", 4 + len(head) + len(body), len(head)) + head + body


class FakeBroker(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, answer: Answer, context: ssl.SSLContext | None = None) -> None:
        self.answer = answer
        self.context = context
        self.seen: list[dict[str, object]] = []
        super().__init__(("127.0.0.1", 0), FakeConnection)


class FakeConnection(socketserver.StreamRequestHandler):
    server: FakeBroker

    def setup(self) -> None:
        if self.server.context is not None:
            self.request = self.server.context.wrap_socket(self.request, server_side=True)
        super().setup()

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            self.serve()

    def serve(self) -> None:
        while prefix := self.rfile.read(8):
            length, header = struct.unpack(">II", prefix)
            head = json.loads(self.rfile.read(header))
            body = self.rfile.read(length - 4 - header)
            self.server.seen.append(head)
            if found := self.server.answer(head, body):
                code, ext, answer = found
                self.wfile.write(frame(code, head["opaque"], ext, answer))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("load") / "load"
    compile_load(path)
    return path


@pytest.fixture
def fake() -> Iterator[Callable[..., FakeBroker]]:
    started: list[FakeBroker] = []

    def start(answer: Answer, context: ssl.SSLContext | None = None) -> FakeBroker:
        broker = FakeBroker(answer, context)
        started.append(broker)
        threading.Thread(target=broker.serve_forever, daemon=True).start()
        return broker

    yield start
    for broker in started:
        broker.shutdown()
        broker.server_close()


def load(program: Path, brokers: object, mode: str, **options: object) -> subprocess.CompletedProcess[str]:
    several = brokers if isinstance(brokers, list) else [brokers]
    command = [str(program), mode, ",".join(str(broker.server_address[1]) for broker in several), "--topic", "t"]
    command += [str(x) for k, v in options.items() for x in (f"--{k.replace('_', '-')}", v)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def fields(head: dict[str, object]) -> dict[str, str]:
    found = head["extFields"]
    assert isinstance(found, dict)
    return found


def properties(text: str) -> dict[str, str]:
    return dict(pair.split("\x01") for pair in text.split("\x02") if pair)


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
    seen = [fields(head) for head in broker.seen]
    assert {f["e"] for f in seen} == {"0", "1", "2", "3"}
    assert len({properties(f["i"])["UNIQ_KEY"] for f in seen}) == 400
    assert all(properties(f["i"])["WAIT"] == "true" for f in seen)


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
        asks = fields(head)
        begin, asked = int(asks["queueOffset"]), int(asks["maxMsgNums"])
        assert asks["sysFlag"] == "4" and begin + asked <= total
        found = {"nextBeginOffset": str(begin + asked), "minOffset": "0", "maxOffset": str(total)}
        return 0, found, struct.pack(">IIQ", 16, magic, 0) * asked

    return answer


def test_a_pull_counts_records_and_begins_again_at_the_end(program: Path, fake: Callable) -> None:
    broker = fake(pulls(100, RECORD_MAGIC))
    done = load(program, broker, "pull", connections=1, queues=1, messages=7, batch=32)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["requests"], result["messages"]) == (7, 7 * 32)
    offsets = [fields(head)["queueOffset"] for head in broker.seen]
    assert offsets == ["0", "32", "64", "0", "32", "64", "0"]


def test_a_pull_notices_what_is_no_record(program: Path, fake: Callable) -> None:
    done = load(program, fake(pulls(100, 7)), "pull", connections=1, messages=3)
    assert done.returncode == 1
    assert "magic" in done.stderr


def test_a_batch_holds_messages_with_keys_of_their_own(program: Path, fake: Callable) -> None:
    items: list[batch.BatchItem] = []

    def answer(head: dict[str, object], body: bytes) -> tuple[int, dict[str, str], bytes]:
        assert (head["code"], fields(head)["m"]) == (320, "true")
        found = batch.decode(body)
        assert len(found) == 16
        items.extend(found)
        return accept(head, body)

    broker = fake(answer)
    done = load(program, broker, "send", connections=2, batch=16, messages=64, size=100)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["requests"], result["messages"], result["sent_from_start"]) == (4, 64, 64)
    assert {len(item.body) for item in items} == {100}
    own = [properties(item.properties.decode()) for item in items]
    keys = {p["UNIQ_KEY"] for p in own} | {properties(fields(head)["i"])["UNIQ_KEY"] for head in broker.seen}
    assert len(keys) == 64 + 4
    assert {(p["WAIT"], p["TAGS"]) for p in own} == {("true", "TagA")}


def test_each_topic_queue_and_tag_has_its_turn(program: Path, fake: Callable) -> None:
    broker = fake(accept)
    done = load(program, broker, "send", connections=1, topics=3, queues=2, tags=4, messages=24)
    assert done.returncode == 0, done.stderr
    seen = [fields(head) for head in broker.seen]
    places = {(f["b"], f["e"], properties(f["i"])["TAGS"]) for f in seen}
    topics, tags = ("t-0000", "t-0001", "t-0002"), ("TagA", "TagB", "TagC", "TagD")
    assert places == {(topic, queue, tag) for topic in topics for queue in "01" for tag in tags}


def test_connections_spread_over_shards_and_name_them(program: Path, fake: Callable) -> None:
    shards = [fake(accept), fake(accept)]
    done = load(program, shards, "send", connections=4, messages=40, queues=2)
    assert done.returncode == 0, done.stderr
    for number, shard in enumerate(shards):
        assert {fields(head)["n"] for head in shard.seen} == {f"broker-a-{number}"}
        assert {fields(head)["e"] for head in shard.seen} == {"0", "1"}
    assert sum(len(shard.seen) for shard in shards) == 40


def test_idle_connections_send_once(program: Path, fake: Callable) -> None:
    broker = fake(accept)
    done = load(program, broker, "send", connections=0, idle=300, warm=0, seconds=0.1)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["sent_from_start"], result["messages"], len(broker.seen)) == (300, 0, 300)


def test_sends_come_no_quicker_than_they_are_asked_for(program: Path, fake: Callable) -> None:
    done = load(program, fake(accept), "send", connections=2, rate=100, warm=0, seconds=0.5)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert 1 <= result["messages"] <= 100 * result["seconds"] + 2


def test_a_filtered_pull_counts_what_was_looked_at(program: Path, fake: Callable) -> None:
    def answer(head: dict[str, object], body: bytes) -> tuple[int, dict[str, str], bytes]:
        asks = fields(head)
        assert asks["subscription"] == "TagB"
        begin = int(asks["queueOffset"])
        found = {"nextBeginOffset": str(begin + 40), "maxOffset": "100"}
        matched = 10 if begin == 0 else 0
        return (0 if matched else 20), found, struct.pack(">IIQ", 16, RECORD_MAGIC, 0) * matched

    broker = fake(answer)
    done = load(program, broker, "pull", connections=1, batch=10, tags=4, subscription="TagB", messages=4)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["messages"], result["matched"]) == (160, 20)
    assert [fields(head)["queueOffset"] for head in broker.seen] == ["0", "40", "0", "40"]


def test_a_reader_beside_sends_reads_each_queue_once_and_then_the_run_ends(program: Path, fake: Callable) -> None:
    begins: list[tuple[str, str, str]] = []

    def answer(head: dict[str, object], body: bytes) -> tuple[int, dict[str, str], bytes]:
        if head["code"] == 310:
            return accept(head, body)
        asks = fields(head)
        begins.append((asks["topic"], asks["queueId"], asks["queueOffset"]))
        return pulls(64, RECORD_MAGIC)(head, body)

    broker = fake(answer)
    options = {"readers": 1, "read_topic": "cold", "queues": 2, "warm": 0.1, "seconds": DEADLINE_S}
    done = load(program, broker, "send", connections=2, **options)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert begins == [("cold", queue, offset) for queue in "01" for offset in ("0", "32")]
    assert (result["read"], result["read_mb"]) == (128, 0.0) and result["messages"] > 0
    assert result["seconds"] < DEADLINE_S


class Queues:
    """What a broker of tail consumers does: it keeps messages, and lets pulls at the end wait."""

    def __init__(self) -> None:
        self.bodies: dict[str, list[bytes]] = defaultdict(list)
        self.arrived = threading.Condition()
        self.groups: set[str] = set()

    def answer(self, head: dict[str, object], body: bytes) -> tuple[int, dict[str, str], bytes]:
        asks = fields(head)
        with self.arrived:
            if head["code"] == 310:
                self.bodies[asks["e"]].append(body)
                self.arrived.notify_all()
                return 0, {}, b""
            queue = self.bodies[asks["queueId"]]
            if head["code"] == 30:
                return 0, {"offset": str(len(queue))}, b""
            assert asks["sysFlag"] == "6"
            self.groups.add(asks["consumerGroup"])
            begin = int(asks["queueOffset"])
            self.arrived.wait_for(lambda: len(queue) > begin, DEADLINE_S)
            found = {"nextBeginOffset": str(len(queue)), "maxOffset": str(len(queue))}
            return (0 if len(queue) > begin else 19), found, b"".join(map(self.record, queue[begin:]))

    @staticmethod
    def record(body: bytes) -> bytes:
        size = 84 + 4 + len(body) + 3
        return struct.pack(">II", size, RECORD_MAGIC) + bytes(76) + struct.pack(">I", len(body)) + body + bytes(3)


def test_a_tail_measures_from_a_send_to_each_groups_delivery(program: Path, fake: Callable) -> None:
    queues = Queues()
    queues.bodies["0"].append(b"from before, which nobody waits for")
    broker = fake(queues.answer)
    done = load(program, broker, "tail", connections=2, readers=4, queues=2, messages=60, size=16)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["sent_from_start"] == 60 and len(queues.groups) == 2
    assert 60 <= result["messages"] <= 120, "those that came after the last send was answered are not in the figures"
    assert 0 < result["p50_ms"] <= result["p99_ms"] < DEADLINE_S * 1000 and result["send_p99_ms"] > 0


FRAME = (
    b'{"code":310,"extFields":{"b":"t","e":"0","g":"0000000000000","i":"UNIQ_KEY\\u0001KKKKKKKKKKKK"},'
    b'"opaque":000000000}'
)


def frame_file(path: Path, header: bytes = FRAME, holes: str = "") -> Path:
    """A template of a send with a body of three bytes."""
    data = struct.pack(">II", 4 + len(header) + 3, len(header)) + header + b"abc"
    places = {"opaque": b"000000000}", "queue": b'0","g"', "born": b"0000000000000", "key": b"KKKKKKKKKKKK"}
    lines = [f"{kind} {data.index(text)}\n" for kind, text in places.items() if text in data]
    path.write_text("".join(lines) + holes + f"frame {data.hex()}\n")
    return path


def test_a_frame_of_a_file_is_sent_with_its_holes_filled(program: Path, fake: Callable, tmp_path: Path) -> None:
    broker = fake(accept)
    path = frame_file(tmp_path / "frame")
    done = load(program, broker, "send", connections=2, window=3, messages=40, queues=4, frame=path)
    assert done.returncode == 0, done.stderr
    seen = [fields(head) for head in broker.seen]
    assert {f["e"] for f in seen} == {"0", "1", "2", "3"} and all(int(f["g"]) > 10**12 for f in seen)
    assert len({properties(f["i"])["UNIQ_KEY"] for f in seen}) == 40 == len({head["opaque"] for head in broker.seen})


@pytest.mark.parametrize(
    ("holes", "header", "said"),
    [
        ("nonsense 3\n", FRAME, "no such hole: nonsense"),
        ("key 9999\n", FRAME, "behind the frame's end"),
        ("", FRAME.replace(b"000000000}", b"1}"), "no hole for the opaque"),
        ("what is this\n", FRAME, "neither a hole nor the frame"),
    ],
)
def test_a_frame_that_cannot_be_sent_is_refused(
    program: Path, fake: Callable, tmp_path: Path, holes: str, header: bytes, said: str
) -> None:
    path = frame_file(tmp_path / "frame", header, holes)
    done = load(program, fake(accept), "send", messages=1, frame=path)
    assert done.returncode == 1 and said in done.stderr


def test_arrivals_at_random_wait_for_nobody_and_their_wait_counts(program: Path, fake: Callable) -> None:
    """One connection with one request in flight, and a broker that holds back the first answer: what comes meanwhile
    is late, and says so."""
    held = threading.Event()

    def answer(head: dict[str, object], body: bytes) -> tuple[int, dict[str, str], bytes]:
        if not held.is_set():
            held.wait(0.3)
            held.set()
        return accept(head, body)

    broker = fake(answer)
    done = load(program, broker, "send", connections=1, rate=200, poisson=1, warm=0, seconds=1)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["messages"] > 60, "of 200: all that came while the broker did nothing were sent later"
    assert result["p99_ms"] > 150 and result["p50_ms"] < result["p99_ms"]


def test_a_reader_with_a_rate_reads_on_and_ends_nothing(program: Path, fake: Callable) -> None:
    pulled: list[str] = []

    def answer(head: dict[str, object], body: bytes) -> tuple[int, dict[str, str], bytes]:
        if head["code"] == 310:
            return accept(head, body)
        pulled.append(fields(head)["queueOffset"])
        return pulls(64, RECORD_MAGIC)(head, body)

    options = {"readers": 1, "read_topic": "t", "read_rate": 640, "queues": 1, "warm": 0, "seconds": 0.6}
    done = load(program, fake(answer), "send", connections=1, rate=100, poisson=1, **options)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert 3 <= len(pulled) <= 20 * result["seconds"] + 1, "20 pulls of 32 a second"
    assert pulled[:4] == ["0", "32", "0", "32"] and result["read"] >= 3 * 32


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"readers": 3, "queues": 2}, "a multiple of --queues"),
        ({"readers": 2, "queues": 2, "size": 7}, "--size of 8"),
        ({"readers": 2, "queues": 2, "topics": 10_001}, "--topics is 1 to 10000"),
        ({"readers": 2, "queues": 2, "nonsense": 1}, "unknown option --nonsense"),
    ],
)
def test_what_makes_no_sense_is_refused(program: Path, fake: Callable, options: dict[str, int], said: str) -> None:
    done = load(program, fake(accept), "tail", **options)
    assert done.returncode == 1 and said in done.stderr


def test_each_half_is_committed_by_the_words_of_its_answer(program: Path, fake: Callable) -> None:
    commits: list[dict[str, str]] = []
    given, committed = count(start=5_000, step=200), threading.Event()

    def answer(head: dict[str, object], body: bytes) -> tuple[int, dict[str, str], bytes] | None:
        if head["code"] == 37:
            assert head["flag"] == 2, "nobody answers a commit"
            commits.append(fields(head))
            if len(commits) == 60:
                committed.set()
            return None
        own = properties(fields(head)["i"])
        assert (fields(head)["f"], own["TRAN_MSG"], own["PGROUP"]) == ("4", "true", fields(head)["a"])
        offset = next(given)
        return 0, {"msgId": f"7F00000100002A9F{offset:016X}", "queueOffset": str(offset // 200)}, b""

    done = load(program, fake(answer), "send", connections=3, window=4, messages=60, transactions=1)
    assert done.returncode == 0, done.stderr
    assert committed.wait(DEADLINE_S), f"{len(commits)} of 60 halves were committed"
    offsets = sorted((int(one["commitLogOffset"]), int(one["tranStateTableOffset"])) for one in commits)
    assert offsets == [(5_000 + 200 * i, 25 + i) for i in range(60)]
    assert {one["commitOrRollback"] for one in commits} == {"8"}


def test_sends_for_a_time_are_spread_over_the_delays(program: Path, fake: Callable) -> None:
    broker = fake(accept)
    done = load(program, broker, "send", connections=1, messages=300, delay_least=2_000, delay_most=2_099)
    assert done.returncode == 0, done.stderr
    delays = [int(properties(fields(head)["i"])["TIMER_DELIVER_MS"]) - int(fields(head)["g"]) for head in broker.seen]
    assert sorted(delays) == sorted([*range(2_000, 2_100)] * 3)


def record(queue: int, offset: int) -> bytes:
    """As much of one as the load generator looks at."""
    return struct.pack(">IIIIIQ", 28, RECORD_MAGIC, 0, queue, 0, offset)


def test_a_consumer_acknowledges_each_message_that_it_popped(program: Path, fake: Callable) -> None:
    popped: list[tuple[str, int, int]] = []
    acked: list[tuple[str, int, int]] = []
    pops = count()

    def answer(head: dict[str, object], body: bytes) -> tuple[int, dict[str, str], bytes]:
        asks = fields(head)
        if head["code"] == 200051:
            acked.append((asks["extraInfo"], int(asks["queueId"]), int(asks["offset"])))
            return 0, {}, b""
        assert (head["code"], asks["queueId"], asks["maxMsgNums"]) == (200050, "-1", "32")
        number = next(pops)
        if number % 3 == 2:
            return 210, {}, b""
        places = [(queue, 10 * number + i) for queue in (1, 4) for i in range(5)]
        handle = f"{10 * number} {number} 60000 7 0 broker-a"
        popped.extend((f"{handle} {queue} {offset}", queue, offset) for queue, offset in places)
        starts = ";".join(f"0 {queue} {10 * number}" for queue in (1, 4))
        ext = {"popTime": str(number), "invisibleTime": "60000", "reviveQid": "7", "startOffsetInfo": starts}
        return 0, ext, b"".join(record(*place) for place in places)

    done = load(program, fake(answer), "pop", connections=1, warm=0, seconds=0.5)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert acked == popped[: len(acked)] and len(popped) - len(acked) <= 10
    assert 0 < result["messages"] <= len(acked) <= result["popped"] <= len(popped)


SIGNED = {"access_key": "bench", "secret_key": "planted-secret"}


def of_the_user(head: dict[str, object], body: bytes) -> None:
    assert fields(head)["AccessKey"] == SIGNED["access_key"] and len(fields(head)[SIGNATURE]) == 28
    assert is_signed(SIGNED["secret_key"], fields(head), body, 513), head


@pytest.mark.parametrize("options", [{}, {"batch": 16}, {"transactions": 1}, {"topics": 3, "tags": 2}])
def test_each_request_is_signed(program: Path, fake: Callable, options: dict[str, int]) -> None:
    signatures = set()

    def answer(head: dict[str, object], body: bytes) -> tuple[int, dict[str, str], bytes] | None:
        of_the_user(head, body)
        if head["code"] == 37:
            return None
        signatures.add(fields(head)[SIGNATURE])
        return 0, {"msgId": f"7F00000100002A9F{7:016X}", "queueOffset": "1"}, b""

    broker = fake(answer)
    done = load(program, broker, "send", connections=2, window=4, messages=64, size=77, **SIGNED, **options)
    assert done.returncode == 0, done.stderr
    assert len(signatures) == json.loads(done.stdout)["requests"] > 3, "keys differ, so all signatures do"


def test_pulls_and_pops_are_signed(program: Path, fake: Callable) -> None:
    def pulled(head: dict[str, object], body: bytes) -> tuple[int, dict[str, str], bytes] | None:
        of_the_user(head, body)
        return pulls(100, RECORD_MAGIC)(head, body)

    done = load(program, fake(pulled), "pull", connections=1, messages=7, **SIGNED)
    assert done.returncode == 0, done.stderr

    def popped(head: dict[str, object], body: bytes) -> tuple[int, dict[str, str], bytes]:
        of_the_user(head, body)
        ext = {"popTime": "1", "invisibleTime": "60000", "reviveQid": "7", "startOffsetInfo": "0 1 5"}
        return (0, ext, record(1, 5)) if head["code"] == 200050 else (0, {}, b"")

    done = load(program, fake(popped), "pop", connections=1, warm=0, seconds=0.3, **SIGNED)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["messages"] > 0


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_all_goes_over_tls(program: Path, fake: Callable, version: str) -> None:
    context = server_context(pki.files().own("server"), terms=Terms((version,)))
    broker = fake(accept, context)
    done = load(program, broker, "send", tls=1, connections=3, window=32, messages=600, size=20_000, idle=20, at_once=7)
    assert done.returncode == 0, done.stderr
    assert (json.loads(done.stdout)["messages"], len(broker.seen)) == (600, 620)
    broker = fake(pulls(3_200, RECORD_MAGIC), context)
    done = load(program, broker, "pull", tls=1, connections=2, messages=200, batch=1_600)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["messages"] == 200 * 1_600


def test_a_peer_without_tls_fails_the_run(program: Path, fake: Callable) -> None:
    done = load(program, fake(accept, server_context(pki.files().own("server"))), "send", connections=1, messages=1)
    assert done.returncode == 1 and "the server closed a connection" in done.stderr
