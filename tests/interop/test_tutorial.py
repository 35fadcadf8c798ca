"""The tutorial "From Java to Perseid", command by command, with real Java nodes."""

import shlex
from pathlib import Path

import parts
import pytest
import rig
from tests.docs.pages import Reader

from perseid.testing.ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.long, pytest.mark.timeout(900, func_only=True)]
COMMANDS = {"mqnamesrv": "namesrv", "mqbroker": "broker"}


def install(folder: Path) -> None:
    """RocketMQ's commands, as its `bin` folder has them. Their settings are quiet ones (`rig.QUIET`)."""
    folder.mkdir()
    for name, role in COMMANDS.items():
        java = shlex.join([*parts.jvm(folder / name), rig.MAINS[role]])
        quiet = "".join(f"echo {key}={value} >>$2.quiet\n" for key, value in rig.QUIET.items() if role == "broker")
        command = folder / name
        command.write_text(f"#!/bin/sh\ncp $2 $2.quiet\n{quiet}exec {java} -c $2.quiet\n")
        command.chmod(0o755)


def test_a_java_cluster_is_replaced_and_back(workshop: Path, tmp_path: Path) -> None:
    install(tmp_path / "bin")
    with Reader("tutorials/from-java.md", tmp_path / "home") as reader:
        reader.environment["PATH"] = f"{tmp_path / 'bin'}:{reader.environment['PATH']}"
        for port in (10911, 10921):
            reader.ports[str(port)] = str(free_port())
        assert reader.follow() >= 10
