"""Mistakes of the first minutes: each is told in one line that says what to do next."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from perseid.base.extras import EXTRAS
from perseid.cli import main
from perseid.client import Message
from perseid.client.blocking import BlockingProducer
from perseid.client.errors import NoNameServer

ROOT = Path(__file__).parents[2]
DEADLINE_S = 120

BARE = f"""
import contextlib, io, json, sys

class Bare:
    "Finds no package of an extra, as after `pip install perseid` alone."
    @staticmethod
    def find_spec(name, path=None, target=None):
        if any(f"{{name}}.".startswith(f"{{package}}.") for package in {tuple(EXTRAS)!r}):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Bare)
told = {{}}
"""

COMMANDS = """
from perseid.cli import main
for words in {lines}:
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        code = main.run(words)
    told[" ".join(words[:2])] = (code, err.getvalue())
print(json.dumps(told))
"""

CALLS = """
import importlib
import perseid.spark
for name, call in (
    ("session", perseid.spark.session),
    ("register", lambda: perseid.spark.register(None)),
    *((name, lambda name=name: importlib.import_module(name)) for name in {modules}),
):
    try:
        call()
    except Exception as error:
        told[name] = (type(error).__name__, str(error))
print(json.dumps(told))
"""


def without_extras(code: str) -> dict[str, list[str]]:
    """What a script told, with no package of an extra."""
    done = subprocess.run([sys.executable, "-c", BARE + code], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_command_that_needs_spark_names_the_extra(tmp_path: Path) -> None:
    lines = [
        ["spark", "archive", "t", str(tmp_path / "table")],
        ["spark", "replay", str(tmp_path), "t"],
        ["spark", "stats", "-n", "127.0.0.1:1"],
        ["spark", "trace", "x"],
    ]
    told = without_extras(COMMANDS.format(lines=lines))
    text = "perseid: a job on Spark needs pyspark: pip install 'perseid[spark]'\n"
    assert told == {" ".join(words[:2]): [1, text] for words in lines}


def test_an_import_that_needs_an_extra_names_it() -> None:
    modules = [
        "perseid.spark.source", "perseid.spark.sink", "perseid.spark.log.source", "perseid.spark.jobs.archive",
        "perseid.spark.jobs.stats", "perseid.spark.jobs.replay", "perseid.spark.jobs.audit",
        "perseid.spark.jobs.trace", "perseid.spark.jobs.dead_letters", "perseid.spark.jobs.time_travel",
        "perseid.client.otel",
    ]  # fmt: skip
    told = without_extras(CALLS.format(modules=modules))
    assert told.pop("session") == [
        "MissingExtra", "perseid.spark.session() needs pyspark: pip install 'perseid[spark]'"
    ]  # fmt: skip
    assert told.pop("register")[0] == "MissingExtra"
    assert told.pop("perseid.client.otel")[1] == (
        "perseid.client.otel needs opentelemetry: pip install 'perseid[otel]'"
    )
    assert sorted(told) == sorted(modules[:-1])
    for kind, text in told.values():
        assert kind == "MissingExtra"
        assert text in {f"perseid.spark needs {name}: pip install 'perseid[spark]'" for name in ("pyspark", "pyarrow")}


def told_by(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """What a command that fails says on stderr, besides the lines of a server's log."""
    assert main.run([str(word) for word in words]) == 1
    return "".join(line + "\n" for line in capsys.readouterr().err.splitlines() if line.startswith("perseid: "))


def test_a_port_that_is_taken_names_its_process_and_what_to_choose(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = f"bindAddress=127.0.0.1\nlistenPort={port}\n"
        namesrv, broker, controller = (tmp_path / name for name in ("namesrv", "broker", "controller"))
        namesrv.write_text(f"{settings}kvConfigPath={tmp_path}/kv.json\n")
        broker.write_text(f"{settings}storePathRootDir={tmp_path}/store\nbrokerIP1=127.0.0.1\n")
        controller.write_text(
            f"bindAddress=127.0.0.1\ncontrollerDLegerGroup=g\ncontrollerDLegerPeers=n0-127.0.0.1:{port}\ncontrollerDLegerSelfId=n0\n"
            f"controllerStorePath={tmp_path}/controllers\n"
        )
        data = ("--data", tmp_path / "data")
        for words, choice in (
            (("up", *data, "--namesrv-port", port), "--namesrv-port"),
            (("up", *data, "--namesrv-port", 0, "--broker-port", port), "--broker-port"),
            (("up", *data, "--namesrv-port", 0, "--broker-port", port + 2), "--broker-port (this one is 2 below it)"),
            (("up", *data, "--ha", "--namesrv-port", port), "--namesrv-port"),
            (("namesrv", "-c", namesrv), "listenPort in the file of -c"),
            (("broker", "-c", broker), "listenPort in the file of -c"),
            (("controller", "-c", controller), "controllerDLegerPeers"),
        ):
            line = told_by(capsys, *words)
            assert line.startswith(f"perseid: can't listen on 127.0.0.1:{port}: it is taken by process {os.getpid()} (")
            assert line.endswith(f"; end that, or choose another port with {choice}\n"), line
            assert line.count("\n") == 1


def test_a_folder_that_cannot_be_used_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ports = ("--namesrv-port", 0, "--broker-port", 0)
    file = tmp_path / "file"
    file.write_text("")
    line = f"perseid: {file}: can't be used as a folder: File exists; choose another\n"
    assert told_by(capsys, "up", "--data", file, *ports) == line
    command = [sys.executable, "-m", "perseid.cli.main", "up", "--data", str(tmp_path / "data"), *map(str, ports)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as first:
        assert first.stdout is not None and first.stdout.readline().startswith("ready ")
        assert told_by(capsys, "up", "--data", tmp_path / "data", *ports) == (
            f"perseid: {tmp_path}/data/store/lock: another process uses the folder; stop it or choose another\n"
        )
        first.terminate()


def test_a_server_that_is_down_is_named_with_what_starts_one(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        text = (
            f"no name server answered at {address}: Connection refused; start one (perseid up --data DIR), or name one"
            " that runs"
        )
        for words in (["topic", "list"], ["send", "t", "x"], ["consume", "t"], ["consume", "t", "--follow"]):
            assert told_by(capsys, *words, "-n", address) == f"perseid: {text} (-n host:port, or NAMESRV_ADDR)\n"
        with BlockingProducer(address) as producer, pytest.raises(NoNameServer) as told:
            producer.send(Message("t", b"x"))
        assert str(told.value) == text


def test_a_set_up_without_python_is_one_line(tmp_path: Path) -> None:
    command = ["make", "-C", str(ROOT), f"VENV={tmp_path}/venv", "PYTHON=", "setup"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode != 0
    told = [line for line in done.stdout.splitlines() if not line.startswith("make")]
    assert told == [
        "Perseid needs Python 3.11 or later, and there is none: install it, or say make PYTHON=/path/to/python"
    ]


def test_a_terminal_that_knows_ascii_alone_gets_the_help() -> None:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHON", "COLUMNS"))
    } | {"LC_ALL": "C", "TERM": "dumb", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for words in (["--help"], ["up", "--help"], ["send", "--help"], ["spark", "archive", "--help"]):
        command = [sys.executable, "-m", "perseid.cli.main", *words]
        done = subprocess.run(command, capture_output=True, timeout=DEADLINE_S, env=environment)
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"Usage: perseid" in done.stdout and done.stdout.isascii()


def test_a_delay_that_no_broker_has_is_refused_before_it_is_sent(capsys: pytest.CaptureFixture[str]) -> None:
    other = "; any other time: delay_ms=…"
    for words, told in (
        (("--delay-level", 22), "delay_level=22: levels are 1 (1 s) to 18 (2 h)" + other),
        (("--delay-level", -1), "delay_level=-1: levels are 1 (1 s) to 18 (2 h)" + other),
        (("--delay-ms", -5), "delay_ms=-5, deliver_at_ms=0: below 0"),
        (("--delay-level", 3, "--delay-ms", 5), "delay_level=3, delay_ms=5, deliver_at_ms=0: give one of them"),
    ):
        line = told_by(capsys, "send", "t", "x", *words, "-n", "127.0.0.1:1")
        assert line == f"perseid: message for t: {told}\n"


def test_an_unknown_setting_is_told_with_the_nearest_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("brokerName=b\nflushDiskTyp=SYNC_FLUSH\n")
    assert main.run(["broker", "-m", "-c", str(path)]) == 0
    assert f"flushDiskTyp ({path}:2; did you mean flushDiskType?)" in caplog.text


def test_a_configuration_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for server in ("broker", "namesrv", "controller"):
        line = told_by(capsys, server, "-c", tmp_path / "none")
        assert line == f"perseid: {tmp_path}/none: can't be read: No such file or directory\n"
