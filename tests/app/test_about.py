"""The version in words, and a server's first line: what runs, and what to do when it runs uncompiled."""

import logging
import os
import re
import subprocess
import sys

import pytest

import perseid
from perseid import core
from perseid.app import about

DEADLINE = 60


def first_line(caplog: pytest.LogCaptureFixture) -> logging.LogRecord:
    caplog.clear()
    with caplog.at_level(logging.INFO, "perseid"):
        about.log_start()
    (record,) = caplog.records
    return record


def test_it_says_version_commit_and_core() -> None:
    found = re.fullmatch(r"perseid (\S+) \(commit ([0-9a-f]{7,}(?:-dirty)?|unknown), (.+)\)", about.describe())
    assert found is not None and found[1] == perseid.__version__ and found[3] == about.core_state()


def test_a_compiled_core_is_no_warning(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(core, "compiled", core.installed)
    record = first_line(caplog)
    assert record.levelno == logging.INFO and "compiled core) on CPython " in record.getMessage()


def test_an_uncompiled_core_is_a_warning_with_the_next_step(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(core, "compiled", None)
    monkeypatch.setattr(core, "is_compiled", False)
    record = first_line(caplog)
    assert record.levelno == logging.WARNING and "uncompiled core) on CPython " in record.getMessage()
    assert "install a C compiler" in record.getMessage() and "--no-binary perseid perseid" in record.getMessage()


def test_a_core_that_is_switched_off_names_its_switch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(core, "compiled", None)
    monkeypatch.setattr(core, "is_compiled", True)
    record = first_line(caplog)
    assert record.levelno == logging.WARNING and "slower; unset PERSEID_CORE" in record.getMessage()


def test_the_command_prints_it_and_a_server_begins_with_it() -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PERSEID_CORE": "off"}
        command = [sys.executable, "-m", "perseid.cli.main", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, env=environment, check=True)

    told = run("--version").stdout
    assert told.startswith(f"perseid {perseid.__version__} (commit ")
    first, *_ = run("broker", "--printImportantConfig").stderr.splitlines()
    assert told.strip() in first and " WARNING perseid: " in first
