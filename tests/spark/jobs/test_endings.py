"""Whatever happens to Spark, stderr has one line, and nothing is left behind: real commands, each with a JVM of its
own."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.spark.conftest import fill
from tests.spark.jobs.disks import small_disk

from perseid.testing.embedded import SMALL_STORE, EmbeddedBroker

PERSEID = [sys.executable, "-c", "from perseid.cli.main import main; main()"]
DEADLINE_S = 240
"""Of a whole command, where the machine is busy."""
SOON_S = 60
"""Of an end, where the machine is busy; on an idle one it takes two seconds."""
DISK_BYTES = 512 << 10
PIPE_BYTES = 64 << 10


def spark_run(test: Any) -> Any:
    """A test with JVMs."""
    for mark in (pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)):
        test = mark(test)
    return test


class Running:
    """`perseid spark …` in a session (of processes) of its own."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._err = folder / "stderr"
        environment = {**os.environ, "TMPDIR": str(folder / "tmp")}
        (folder / "tmp").mkdir(exist_ok=True)
        with self._err.open("wb") as err:
            self._process = subprocess.Popen(
                [*PERSEID, "spark", *words], stdout=subprocess.PIPE, stderr=err, text=True, env=environment,
                start_new_session=True,
            )  # fmt: skip
        self._late = threading.Timer(DEADLINE_S, self.kill)
        self._late.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def until(self, text: str) -> None:
        """Wait for a line of its stdout."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if text in line:
                return
        raise AssertionError(f"{text!r} never came: {self._err.read_text()}")

    def left(self) -> list[int]:
        """The processes of its session that live."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if session == str(self.pid) and state != "Z":
                found.append(int(stat.parent.name))
        return found

    def jvm(self) -> int:
        """Its Java process."""
        (found,) = (
            pid for pid in self.left() if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].endswith(b"java")
        )
        return found

    def end(self) -> tuple[int, str, str]:
        """Its status, stdout and stderr."""
        try:
            out, _ = self._process.communicate(timeout=DEADLINE_S)
        finally:
            self._late.cancel()
        return self._process.returncode, out, self._err.read_text()

    def kill(self) -> None:
        """It and all of its own: only where a test failed."""
        self._late.cancel()
        for pid in self.left():
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    with ExitStack() as undo:

        def begin(*words: object) -> Running:
            running = Running(tmp_path, *map(str, words))
            undo.callback(running.kill)
            return running

        yield begin


@spark_run
@pytest.mark.parametrize(
    ("how", "status", "said"),
    [
        ("Ctrl-C", 130, "perseid: interrupted\n"),
        pytest.param("SIGTERM", 143, "perseid: ended by SIGTERM\n", marks=pytest.mark.long),
        ("the JVM killed", 1, "perseid: Spark's JVM ended in the middle of the job, killed by SIGKILL: run it again"),
    ],
)
def test_item_11_a_job_that_is_ended_says_one_line_and_leaves_no_process(
    start: Callable[..., Running], broker: EmbeddedBroker, tmp_path: Path, how: str, status: int, said: str
) -> None:
    topic = f"ended-{status}"
    fill(broker, topic, 2000)
    job = start("archive", topic, tmp_path / "t", "-n", broker.namesrv, "--batch-offsets", "20", "--json")
    job.until('"batch": 0')
    began = time.monotonic()
    if how == "Ctrl-C":
        os.killpg(job.pid, signal.SIGINT)
    else:
        os.kill(*((job.pid, signal.SIGTERM) if how == "SIGTERM" else (job.jvm(), signal.SIGKILL)))
    code, _, err = job.end()
    assert (code, err.count("\n")) == (status, 1), err
    assert err.startswith(said)
    assert time.monotonic() - began < SOON_S
    assert job.left() == []


@spark_run
def test_an_interrupt_while_spark_starts_is_one_line_and_leaves_nothing(
    start: Callable[..., Running], broker: EmbeddedBroker, tmp_path: Path
) -> None:
    fill(broker, "early", 20)
    log = tmp_path / "log"
    os.mkfifo(log)
    job = start("archive", "early", tmp_path / "t", "-n", broker.namesrv, "--spark-log", log)
    with log.open("rb", buffering=0) as said:
        assert said.read(1), "the first that its JVM says"
        os.killpg(job.pid, signal.SIGINT)
        while said.read(PIPE_BYTES):  # till its end
            pass
    assert job.end() == (130, "", "perseid: interrupted\n")
    assert job.left() == []
    assert not (tmp_path / "t").exists()


@spark_run
def test_item_11_a_full_disk_is_one_line(start: Callable[..., Running], broker: EmbeddedBroker, tmp_path: Path) -> None:
    fill(broker, "full-disk", 3000)
    with small_disk(tmp_path / "disk", DISK_BYTES) as disk:
        (disk / "other").write_bytes(bytes(DISK_BYTES - (100 << 10)))
        job = start("archive", "full-disk", disk / "t", "-n", broker.namesrv, "--batch-offsets", "500")
        code, out, err = job.end()
    assert (code, out, err.count("\n")) == (1, "", 1), err
    assert err.startswith("perseid: ") and "No space left on device" in err
    assert job.left() == []


@spark_run
def test_item_11_data_that_is_lost_while_tasks_read_is_one_line(start: Callable[..., Running], tmp_path: Path) -> None:
    """Retention comes between the plan of a run and the tasks that read by it."""
    with EmbeddedBroker(tmp_path / "broker", store=replace(SMALL_STORE, commit_log_file_bytes=16 << 10)) as aging:
        fill(aging, "aging", 400, queues=1)
        job = start("archive", "aging", tmp_path / "t", "-n", aging.namesrv, "--batch-offsets", "20", "--json")
        job.until('"batch": 0')
        os.kill(job.pid, signal.SIGSTOP)
        aging.stop()
        for segment in sorted(aging.data.rglob("commitlog/0*"))[:-1]:
            segment.unlink()
        aging.start()
        os.kill(job.pid, signal.SIGCONT)
        code, _, err = job.end()
    assert (code, err.count("\n")) == (1, 1), err
    assert err.startswith("perseid: ") and "the broker has" in err and "failOnDataLoss" in err
    assert "trace" not in err, "an error of ours needs none"
    assert job.left() == []


@spark_run
def test_a_job_that_is_done_says_nothing_on_stderr_and_sparks_log_is_to_be_had(
    start: Callable[..., Running], broker: EmbeddedBroker, tmp_path: Path
) -> None:
    fill(broker, "quiet", 20)
    log = tmp_path / "spark.log"
    job = start("archive", "quiet", tmp_path / "t", "-n", broker.namesrv, "--spark-log", log, "--schema", "i int")
    code, out, err = job.end()
    assert (code, err) == (0, "")
    assert out.startswith(f"20 messages in 1 batches added to {tmp_path / 't'}, 20 of them with bodies that did not")
    assert "log4j" in log.read_text()
    assert [path for path in (tmp_path / "tmp").iterdir() if path.name.startswith("perseid")] == []
    assert job.left() == []
