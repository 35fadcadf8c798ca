"""Whatever goes wrong in a job, its command ends with one line and a status; no Spark is started here."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import perseid.spark
from perseid.base.errors import ConfigError
from perseid.cli import entry
from perseid.cli.spark.running import JobOptions, job
from perseid.spark.jvm import HEAD_BYTES, READ_BYTES, TAIL_BYTES, Jvm, Said, signals_held

JAVA = """An error occurred while calling o42.collect.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed
\tat org.apache.spark.Some.where(Some.scala:1)
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.write(Native Method)
"""


class _Dead:
    version = "4"

    def stop(self) -> None:
        raise ConnectionRefusedError("the JVM is gone")


@pytest.fixture(autouse=True)
def the_handler_of_a_command() -> Iterator[None]:
    """Python's own: a Spark that an earlier test began in this process has put its own in that place."""
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, earlier)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(perseid.spark, "session", lambda *_, **__: _Dead())
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def run(error: BaseException) -> tuple[int, str]:
        with pytest.raises(typer.Exit) as ended, job("t", JobOptions(as_json=True)) as running:
            assert running.spark.version
            raise error
        return ended.value.exit_code, capsys.readouterr().err

    return run


def test_an_error_of_java_is_one_line_and_its_trace_is_in_a_file(told, tmp_path: Path) -> None:
    code, line = told(RuntimeError(JAVA))
    (trace,) = tmp_path.iterdir()
    assert (code, line) == (1, f"perseid: java.io.IOException: No space left on device (the trace is in {trace})\n")
    assert "FileOutputStream" in trace.read_text() and "the JVM is gone" in trace.read_text()


def test_an_error_whose_trace_cannot_be_written_is_one_line(told, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    code, line = told(OSError(28, "No space left on device"))
    assert code == 1 and "No space left" in line and "could not be written" in line and line.count("\n") == 1


def test_an_interrupt_is_one_line_and_status_130(told) -> None:
    assert told(KeyboardInterrupt()) == (130, "perseid: interrupted\n")


def test_a_second_interrupt_ends_spark_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[str] = []
    monkeypatch.setattr(Jvm, "kill", lambda _: killed.append("the JVM"))
    monkeypatch.setattr(Jvm, "end", lambda _: signal.raise_signal(signal.SIGINT))
    with pytest.raises(typer.Exit) as ended, job("t", JobOptions(as_json=True)):
        signal.raise_signal(signal.SIGINT)
    assert (ended.value.exit_code, killed) == (130, ["the JVM"])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_that_comes_while_the_jvm_is_begun_is_handled_afterwards() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), signals_held():
        signal.raise_signal(signal.SIGINT)
        done.append("begun")
    assert done == ["begun"]
    with pytest.raises(KeyboardInterrupt), signals_held():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        done.append("not this")
    assert done == ["begun"]


def test_an_interrupt_while_the_command_is_imported_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Slow:
        """What a Ctrl-C meets while it is imported."""

        @staticmethod
        def find_spec(name: str, *_: Any) -> None:
            if name == "perseid.cli.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "perseid.cli.main", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Slow, *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert (ended.value.code, capsys.readouterr().err) == (130, "perseid: interrupted\n")


def test_a_log_that_cannot_be_written_ends_no_job() -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        said = Said(full)
        assert said.write("lost\n") == 5
        assert said.text() == ""


def test_stdout_that_nobody_reads_is_one_line() -> None:
    script = """from perseid.cli.spark.running import JobOptions, job
with job('t', JobOptions(as_json=True)) as running:
    for number in range(100_000):
        running.row({'n': number})
"""
    job_of_rows = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert job_of_rows.stdout is not None and job_of_rows.stdout.readline()
    job_of_rows.stdout.close()
    _, err = job_of_rows.communicate(timeout=60)
    first, *rest = err.decode().splitlines()
    assert first == "perseid: stdout was closed by its reader, and the rest of the result is told nobody"
    assert job_of_rows.returncode == 1, rest


def test_a_long_error_of_ours_is_one_line_as_it_was_said(told) -> None:
    assert told(ConfigError("[b] " + "long " * 60 + "end")) == (1, "perseid: [b] " + "long " * 60 + "end\n")


def test_what_spark_says_is_bounded_and_its_beginning_and_end_are_kept() -> None:
    said = Said()
    said.write("first\n")
    for number in range(100):
        said.add(b"%d" % (number % 10) * READ_BYTES)
    said.write("last\n")
    text = said.text()
    assert text.startswith("first\n0") and text.endswith("9last\n")
    assert HEAD_BYTES + TAIL_BYTES - READ_BYTES < len(text) < HEAD_BYTES + TAIL_BYTES + 100
    kept = len(text.encode()) - len(re.findall("\n… .* …\n", text)[0].encode())
    assert f"… {100 * READ_BYTES + 11 - kept} bytes are left out …" in text
