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


def test_one_that_is_held_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", ports.free_port()))
        taken = held.getsockname()[1]
        monkeypatch.setattr("random.SystemRandom.randrange", lambda *_: taken + 2)
        assert ports.free_port() == taken + 2
        with pytest.raises(PerseidError, match="no free port found"):
            ports.free_port((0, -2))
