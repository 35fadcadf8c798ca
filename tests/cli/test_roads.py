"""`perseid admin roads`: the numbers of each broker, and what to do about sends that are not fast."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import Result
from tests.client.fake import Answer, FakeServer, _Peer, in_a_thread
from typer.testing import CliRunner

from perseid.broker.fast_path.why_not import WhyNot
from perseid.cli.main import app
from perseid.cli.roads import NEXT
from perseid.wire import bodies
from perseid.wire.command import Command

ROWS = {
    "roadFast_310": 6_000, "roadOrdinary_310": 3_000, "roadWhy_310_IPV6": 2_992, "roadWhy_310_FIRST_SEND": 16,
    "roadOrdinary_34": 5, "roadOrdinary_0": 1, "putTps": 7, "roadWhy_310_NEW": 160,
}  # fmt: skip


class FakeBrokerOfRoads(FakeServer):
    """Says ROWS, and twice as much the next time."""

    asked = 0

    def _on_get_broker_runtime_info(self, peer: _Peer, command: Command) -> Answer:
        self.asked += 1
        table = {name: str(count * self.asked) for name, count in ROWS.items()}
        return Answer(body=bodies.KVTable(table=table).to_json())


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with in_a_thread(FakeBrokerOfRoads()) as fake:
        yield fake


def call(server: FakeServer, *args: str) -> Result:
    result = CliRunner().invoke(app, ["admin", "roads", *args, "-n", server.address])
    assert result.exit_code == 0, result.output
    return result


def test_each_request_has_its_row(server: FakeServer) -> None:
    rows = json.loads(call(server, "--json").stdout)
    assert [(row["request"], row["fast"], row["ordinary"]) for row in rows] == [
        ("(not served)", 0, 1), ("HEART_BEAT", 0, 5), ("SEND_MESSAGE_V2", 6_000, 3_000),
    ]  # fmt: skip
    assert rows[-1]["why"] == {"IPV6": 2_992, "FIRST_SEND": 16, "NEW": 160}


def test_people_are_told_what_to_do(server: FakeServer) -> None:
    output = call(server).stdout
    assert "66.7" in output
    *_, first, second = output.splitlines()
    assert "about 2,992 SEND_MESSAGE_V2 since the start: its sender has an IPv6 address: let" in first
    assert second.endswith("since the start: NEW"), "a newer broker's reason is shown as it is"


def test_rates_are_what_came_meanwhile(server: FakeServer) -> None:
    rows = json.loads(call(server, "--json", "--seconds", "0.5").stdout)
    assert rows[-1]["fast"] == 12_000


def test_advice_is_for_reasons_that_there_are() -> None:
    assert NEXT.keys() <= {reason.name for reason in WhyNot}
