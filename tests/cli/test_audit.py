"""`perseid admin audit`: lines of the audit log, from all of its files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from perseid.app.rotated import RotatedFile
from perseid.base.errors import ConfigError
from perseid.cli.main import app

FILE_BYTES = 1_000


def line(number: int, **more: Any) -> dict[str, Any]:
    told = {
        "time": f"t{number:03}",
        "allowed": True,
        "user": "root",
        "address": "10.0.0.1:5",
        "code": "GET_BROKER_CONFIG",
    }
    return {**told, **more}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Of a broker whose log began anew several times."""
    file = RotatedFile(tmp_path / "audit" / "audit.log", FILE_BYTES, 12)
    for number in range(90):
        file.write(json.dumps(line(number)).encode())
    asked = [{"resource": "Topic:pay", "actions": ["Pub"]}]
    refused = line(90, allowed=False, user="orders", code="SEND_MESSAGE_V2", asked=asked, why="no matched policies.")
    file.write(json.dumps(refused).encode())
    file.write(
        json.dumps(line(91, code="AUTH_CREATE_USER", address="192.0.2.9:7", fields={"username": "bob"})).encode()
    )
    file.close()
    with file.path.open("ab") as torn:
        torn.write(b'{"time":"t09')
    return tmp_path


def asked(store: Path, *words: str) -> list[str]:
    done = CliRunner().invoke(app, ["admin", "audit", str(store), "--json", *words])
    assert done.exit_code == 0, done.output
    return [json.loads(text)["time"] for text in done.stdout.splitlines()]


def test_the_last_lines_of_all_files_in_their_order(store: Path) -> None:
    assert len(list((store / "audit").iterdir())) > 9, "audit.log.10 is older than audit.log.9"
    assert asked(store, "--last", "1000") == [f"t{number:03}" for number in range(92)]
    assert asked(store) == [f"t{number:03}" for number in range(42, 92)]
    assert asked(store / "audit", "--last", "1") == ["t091"], "its own folder will do"


@pytest.mark.parametrize(
    "words",
    [("--user", "orders"), ("--code", "send_message_v2"), ("--about", "Topic:pay"), ("--refused",)],
)
def test_a_filter_finds_the_refusal(store: Path, words: tuple[str, ...]) -> None:
    assert asked(store, *words) == ["t090"]


@pytest.mark.parametrize("words", [("--from", "192.0.2."), ("--about", "bob")])
def test_a_filter_finds_the_new_user(store: Path, words: tuple[str, ...]) -> None:
    assert asked(store, *words) == ["t091"]


def test_for_people_it_is_a_table(store: Path) -> None:
    done = CliRunner().invoke(app, ["admin", "audit", str(store), "--refused"])
    assert "Topic:pay Pub" in done.stdout and "no matched policies." in done.stdout and "t089" not in done.stdout


def test_a_folder_without_one_is_told_of(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["admin", "audit", str(tmp_path)])
    assert isinstance(done.exception, ConfigError) and "authenticationEnabled=true" in str(done.exception)


def test_what_strangers_wrote_does_not_steer_the_terminal(tmp_path: Path) -> None:
    RotatedFile(tmp_path / "audit.log", FILE_BYTES, 2).write(json.dumps(line(1, user="\x1b[2Jevil\x07")).encode())
    done = CliRunner().invoke(app, ["admin", "audit", str(tmp_path)])
    assert "\\x1b[2Jevil\\x07" in done.stdout and "\x1b" not in done.stdout and "\x07" not in done.stdout
