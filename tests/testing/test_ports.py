"""A free port: nothing holds it or its neighbours, and no client is given it meanwhile."""

import socket
from pathlib import Path

import pytest

from perseid.base.errors import PerseidError
from perseid.testing import ports


def test_it_and_its_neighbours_can_be_listened_on_and_no_client_gets_it() -> None:
    clients_from = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    port = ports.free_port((0, -2, 1))
    for near in (0, -2, 1):
        assert port + near < clients_from
        with socket.socket() as held:
            held.bind(("127.0.0.1", port + near))


def found(monkeypatch: pytest.MonkeyPatch, *span: int) -> int:
    """A port that is free, with those at these distances; the process forgets for the test what it was given."""
    port = ports.free_port((0, *span))
    monkeypatch.setattr("perseid.net.ports._given", set())
    return port


def test_one_that_is_held_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    port = found(monkeypatch, 2)
    with socket.socket() as held:
        held.bind(("127.0.0.1", port))
        monkeypatch.setattr("random.SystemRandom.randrange", lambda *_: port + 2)
        assert ports.free_port() == port + 2
        with pytest.raises(PerseidError, match="no free port found"):
            ports.free_port((0, -2))


def test_a_process_is_given_none_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    first = found(monkeypatch, 1, -3, -2)
    drawn = iter((first, first, first + 1, first - 1, first - 3))
    monkeypatch.setattr("random.SystemRandom.randrange", lambda *_: next(drawn))
    assert (ports.free_port((0, 1)), ports.free_port((0, 1))) == (first, first - 3)


def test_one_that_any_address_of_the_machine_holds_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    port = found(monkeypatch, 3, 5)
    with socket.socket() as held:
        held.bind(("127.9.9.9", port + 3))
        drawn = iter((port + 3, port + 5))
        monkeypatch.setattr("random.SystemRandom.randrange", lambda *_: next(drawn))
        assert ports.free_port() == port + 5


def test_they_lie_in_the_range_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSEID_PORTS", "20000-20100")
    assert 20_000 <= ports.free_port() < 20_100
    for told in ("20000", "0-99", "30000-20000", "x-y", "20000-99999"):
        monkeypatch.setenv("PERSEID_PORTS", told)
        with pytest.raises(PerseidError, match="no range of ports"):
            ports.free_port()
