"""`perseid admin drain`: a broker, or all shards of one, is left by its producers."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.client.fake import BROKER, Answer, FakeServer, _Peer, in_a_thread
from typer.testing import CliRunner

from perseid.cli import drain
from perseid.cli.main import app
from perseid.wire import bodies
from perseid.wire.command import Command


class FakeBrokerThatFills(FakeServer):
    """Messages arrive at it the first `busy` times that it is looked at."""

    busy = 2
    looks = 0
    settings: list[str]

    def _on_get_broker_runtime_info(self, peer: _Peer, command: Command) -> Answer:
        self.looks += 1
        stored = min(self.looks, self.busy)
        return Answer(body=bodies.KVTable(table={drain.STORED: str(stored)}).to_json())

    def _on_update_broker_config(self, peer: _Peer, command: Command) -> Answer:
        self.settings.append(bytes(command.body).decode().strip())
        return Answer()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBrokerThatFills]:
    monkeypatch.setattr(drain, "POLL_S", 0.0)
    fake = FakeBrokerThatFills()
    fake.settings = []
    with in_a_thread(fake):
        yield fake


def call(server: FakeServer, *args: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["admin", "drain", *args, "-n", server.address])
    assert result.exit_code == code, result.output
    return result.output


def test_it_waits_until_nothing_arrives(server: FakeBrokerThatFills) -> None:
    assert "no producer sends any more" in call(server, BROKER)
    assert server.settings == ["brokerPermission=4"]
    assert server.looks == server.busy + drain.QUIET_POLLS


def test_producers_that_stay_are_an_error_with_the_next_step(server: FakeBrokerThatFills) -> None:
    server.busy = 1000
    assert "perseid admin connections" in call(server, BROKER, "--wait", "5", code=1)


def test_it_is_undone(server: FakeBrokerThatFills) -> None:
    output = call(server, BROKER, "--undo", "--json")
    assert json.loads(output[output.index("{") :])["drained"] is False
    assert server.settings == ["brokerPermission=6"]
    assert server.looks == 0
