"""`perseid verify`: what scripts and people get, exit codes, and errors that say what to do next."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from click.testing import Result
from rich.console import Console
from tests.client.fake import FakeServer, hang_up, in_a_thread
from typer.testing import CliRunner

from perseid.cli import verify
from perseid.verify import Outage
from perseid.verify.outage import CONTROLLER_PHASES
from perseid.wire.codes import RequestCode

app = typer.Typer()
verify.register(app)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with in_a_thread(FakeServer({"t": 2})) as fake:
        yield fake


def call(server: FakeServer, *args: str) -> Result:
    return CliRunner().invoke(app, ["verify", *args, "-n", server.address, "--settle", "0"])


def test_a_run_and_a_later_check_agree(server: FakeServer, tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ran = call(server, "run", "t", "--seconds", "1", "--rate", "50", "--ledger", str(path), "--json")
    assert ran.exit_code == 0, ran.output
    told = json.loads(ran.stdout)
    assert told["kept"] and told["topic"] == "t" and told["acknowledged"] == told["sender"]["acknowledged"] > 0
    assert told["stored"] >= told["acknowledged"] == len(path.read_text().splitlines()) - 1
    checked = call(server, "check", str(path), "--json")
    assert (checked.exit_code, json.loads(checked.stdout)["kept"]) == (0, True)
    assert "all that was acknowledged is there" in call(server, "check", str(path)).stdout
    for queue in server.queues.values():
        del queue.records[-1:]
    broken = call(server, "check", str(path))
    assert broken.exit_code == verify.BROKEN and "lost: v" in broken.stderr
    again = call(server, "run", "t", "--ledger", str(path))
    assert again.exit_code == 1 and "is there already" in str(again.exception or again.stderr)


def test_a_topic_that_is_missing_is_made(server: FakeServer) -> None:
    made = call(server, "run", "new", "--seconds", "0.2", "--rate", "50", "--queues", "3", "--json")
    assert made.exit_code == 0, made.output
    assert server.queues_of["new"] == 3


def test_an_outage_is_told(server: FakeServer) -> None:
    server.script[RequestCode.SEND_MESSAGE_V2] += [hang_up]
    told = json.loads(call(server, "run", "t", "--seconds", "2", "--rate", "50", "--json").stdout)
    first = told["outages"][0]
    assert told["kept"] and first["broker"] == "fake-a" and first["lengthMs"] > 0 and first["errors"]
    assert [part["name"] for part in first["parts"]] == ["return", "route", "first acknowledgement"]


def test_nobody_there_says_how_to_get_a_cluster() -> None:
    nobody = CliRunner().invoke(app, ["verify", "run", "-n", "127.0.0.1:1"])
    assert nobody.exit_code == 1 and "perseid up" in nobody.stderr


def test_the_picture_shows_each_part_where_it_lies() -> None:
    one = Outage("a", "h:1", CONTROLLER_PHASES, last_ack=10.0, noticed=10.0, time_ms=0, epochs=(4, 5), new_master="h:2")
    for name, at in (("detection", 10.010), ("election", 10.030), ("route", 10.035)):
        one.note(name, at, f"what of {name}")
    one.first_ack = 10.040
    console = Console(width=140, record=True, force_terminal=False)
    console.print(verify.Picture(one.to_json()))
    title, *rows = [line for line in console.export_text().splitlines() if line.strip()]
    assert "a: 40 ms without an acknowledgement" in title and "epoch 4 → 5" in title
    cells = {line.split("  ")[0].strip(): line for line in rows}
    assert list(cells) == ["detection", "election", "role change", "route", "first acknowledgement"]
    assert "10 ms" in cells["detection"] and "what of detection" in cells["detection"]
    assert cells["detection"].count("█") == 10 and cells["election"].count("█") == 20
    assert cells["detection"].rindex("█") + 1 == cells["election"].index("█")
    assert "not seen" in cells["role change"] and "█" not in cells["role change"]
    narrow = Console(width=80, record=True, force_terminal=False)
    narrow.print(verify.Picture(one.to_json()))
    assert len(narrow.export_text().splitlines()) < 12, "words keep some room beside the bar"


def test_a_bar_is_exact_to_an_eighth_and_never_invisible() -> None:
    assert verify.bar(0, 100, 100) == "█" * verify.BAR_CELLS
    assert verify.bar(0, 1, 1000) == "▏"
    assert verify.bar(50, 50, 100) == " " * 20 + "▏"
    assert verify.bar(0, 100 / verify.BAR_CELLS / 2, 100) == "▌"
    assert len(verify.bar(100, 100, 100)) == verify.BAR_CELLS
