"""What makes a broker grow: what is asked of it, and what its log looks like afterwards."""

import io
import json
import struct
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import axes
from servers import BenchError, frame_of, parts_of_frame

FILE_BYTES = 4096
RECORD = struct.pack(">II", 100, axes.RECORD_MAGICS[0]) + bytes(92)


class FakeRemote:
    """Answers everything, and remembers it."""

    def __init__(self, port: int, timeout_s: float) -> None:
        self.asked: list[tuple[int, dict[str, object]]] = []
        self.sent: list[str] = []
        self.raw = b""
        self.socket = SimpleNamespace(sendall=self._take)
        self.stream = io.BytesIO()

    def _take(self, data: bytes) -> None:
        """Heartbeats are answered, after a notice that groups have changed; commits are not."""
        head, body = parts_of_frame(data[4:])
        if head["code"] != 34:
            self.raw += data
            return
        self.asked.append((34, json.loads(body)))
        at = self.stream.tell()
        self.stream.seek(0, io.SEEK_END)
        self.stream.write(frame_of(40, {}) + frame_of(0, {}, flag=1))
        self.stream.seek(at)

    def __enter__(self) -> "FakeRemote":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def call(self, code: int, ext: dict[str, object], body: bytes = b"") -> dict[str, str]:
        self.asked.append((code, json.loads(body)))
        return {}

    def send(self, topic: str, queue: int) -> None:
        self.sent.append(topic)


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> FakeRemote:
    one = FakeRemote(0, 0.0)
    monkeypatch.setattr(axes, "Remote", lambda *_: one)
    return one


SERVER = SimpleNamespace(ports=[0])


def test_only_new_topics_are_made_and_not_all_have_a_message(
    remote: FakeRemote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(axes, "MOST_WITH_MESSAGES", 1_200)
    axes.add_topics(SERVER, 1_000, 2_100)
    made = [one["topicName"] for code, body in remote.asked for one in body["topicConfigList"]]
    assert made == [axes.topic(number) for number in range(1_000, 2_100)] and len(remote.asked) == 3
    assert remote.sent == [axes.topic(number) for number in range(1_000, 1_200)]


def test_each_new_group_joins_and_commits_offsets_of_all_queues(remote: FakeRemote) -> None:
    axes.add_groups(SERVER, 10, 600)
    joined = [one["groupName"] for code, body in remote.asked[:-1] for one in body["consumerDataSet"]]
    assert joined == [axes.group(number) for number in range(10, 600)]
    committed, at = Counter(), 0
    while at < len(remote.raw):
        (size,) = struct.unpack_from(">I", remote.raw, at)
        head, _ = parts_of_frame(remote.raw[at + 4 : at + 4 + size])
        assert head["code"] == 15 and head["flag"] == 2, "nobody waits for it"
        committed[head["extFields"]["consumerGroup"]] += 1
        at += 4 + size
    assert committed == dict.fromkeys(joined, 8)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a file of three messages, and one made ahead."""
    monkeypatch.setattr(axes, "LOG_FILE_BYTES", FILE_BYTES)
    folder = tmp_path / "store" / "commitlog"
    folder.mkdir(parents=True)
    (folder / f"{0:020}").write_bytes((3 * RECORD).ljust(FILE_BYTES, b"\0"))
    (folder / f"{FILE_BYTES:020}").write_bytes(bytes(FILE_BYTES))
    return folder


def test_a_log_grows_by_files_that_are_full_of_nothing(log: Path, tmp_path: Path) -> None:
    axes.add_log(SimpleNamespace(folder=tmp_path), 0, 2)
    first, *others = sorted(log.iterdir())
    assert [int(path.name) for path in others] == [FILE_BYTES, 2 * FILE_BYTES]
    data = first.read_bytes()
    assert data[:300] == 3 * RECORD
    assert struct.unpack_from(">II", data, 300) == (FILE_BYTES - 300, axes.BLANK_MAGIC)
    for path in others:
        assert struct.unpack(">II", path.read_bytes()[:8]) == (FILE_BYTES, axes.BLANK_MAGIC)
        assert path.stat().st_size == FILE_BYTES


def test_a_log_grows_on_behind_its_last_file(log: Path, tmp_path: Path) -> None:
    server = SimpleNamespace(folder=tmp_path)
    axes.add_log(server, 0, 1)
    (log / f"{2 * FILE_BYTES:020}").write_bytes(RECORD.ljust(FILE_BYTES, b"\0"))
    axes.add_log(server, 1, 3)
    assert [int(path.name) // FILE_BYTES for path in sorted(log.iterdir())] == [0, 1, 2, 3, 4]
    last = (log / f"{2 * FILE_BYTES:020}").read_bytes()
    assert struct.unpack_from(">II", last, 100) == (FILE_BYTES - 100, axes.BLANK_MAGIC)


def test_what_is_no_log_is_left_alone(log: Path) -> None:
    path = log / f"{0:020}"
    path.write_bytes(RECORD + b"\1" * 100 + bytes(FILE_BYTES - 200))
    with pytest.raises(BenchError, match="neither a message nor nothing at 100"):
        axes.fill_up(path)


def test_sizes_grow() -> None:
    for axis in axes.AXES:
        assert list(axis.short) == sorted(axis.short) and list(axis.full) == sorted(axis.full)
        assert axis.full[-1] > axis.short[-1] and len({*axis.full}) == len(axis.full)
    assert {axis.name: axis.full[-1] for axis in axes.AXES} == {
        "topics": 100_000,
        "connections": 50_000,
        "log": 200,
        "groups": 10_000,
        "timers": 10_000_000,
    }
