"""Machines behind names and addresses."""

from __future__ import annotations

import pytest

from perseid.base.hosts import REFRESH_MS, SOON_MS, Hosts, host_of
from perseid.base.machine import Resolve, Resolved

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("10.0.0.1:9876", "10.0.0.1"), ("n0.example:20911", "n0.example"), ("[::1]:9876", "::1"), ("::1", "::1"),
        ("fe80::1:2", "fe80::1:2"), ("localhost", "localhost"), ("", ""),
    ],
)  # fmt: skip
def test_the_host_of_an_address(address: str, host: str) -> None:
    assert host_of(address) == host


@pytest.mark.parametrize(
    ("address", "peer", "known"),
    [
        ("10.0.0.1:1", "10.0.0.1:4000", True),
        ("10.0.0.1:1", "[::ffff:10.0.0.1]:4000", True),
        ("10.0.0.1:1", "10.0.0.11:4000", False),
        ("127.0.0.7:1", "127.0.0.1:4000", True),
        ("127.0.0.1:1", "127.0.0.9:4000", False),
        ("127.0.0.1:1", "[::1]:4000", True),
        ("localhost:1", "127.0.0.1:4000", True),
        ("[2001:db8::1]:1", "[2001:db8:0::1]:4000", True),
        ("[fe80::1]:1", "[fe80::1%eth0]:4000", True),
        ("10.0.0.1:1", "", False),
        ("10.0.0.1:1", "nonsense", False),
    ],
)
def test_a_machine_is_known_by_its_address(address: str, peer: str, known: bool) -> None:
    hosts = Hosts([address])
    assert hosts.is_at(peer, address, NOW) is known and hosts.has(peer, NOW) is known
    assert hosts.ask(NOW) == [] and hosts.next_deadline() is None, "there is no name to look up"
    assert not hosts.is_at(peer, "10.9.9.9:1", NOW)


def test_a_name_is_looked_up_and_looked_up_again() -> None:
    hosts = Hosts(["n0.example:1", "10.0.0.1:1"])
    assert not hosts.is_at("10.0.0.5:1", "n0.example:1", NOW)
    assert hosts.ask(NOW) == [Resolve(("n0.example",))]
    hosts.take(Resolved({"n0.example": ["10.0.0.5"], "other.example": ["10.0.0.9"]}))
    assert hosts.is_at("10.0.0.5:1", "n0.example:1", NOW) and not hosts.has("10.0.0.9:1", NOW)
    hosts.take(Resolved({"n0.example": []}))
    assert hosts.is_at("10.0.0.5:1", "n0.example:1", NOW), "a resolver that fails takes nothing away"
    assert hosts.ask(NOW + SOON_MS - 1) == []
    assert hosts.ask(NOW + SOON_MS) == [Resolve(("n0.example",))], "a strange machine was there: it may have moved"
    assert hosts.ask(NOW + SOON_MS + REFRESH_MS - 1) == []
    assert hosts.ask(NOW + SOON_MS + REFRESH_MS) == [Resolve(("n0.example",))]
    hosts.take(Resolved({"n0.example": ["10.0.0.6", "2001:db8::6"]}))
    assert not hosts.is_at("10.0.0.5:1", "n0.example:1", NOW) and hosts.is_at("10.0.0.6:1", "n0.example:1", NOW)


def test_strangers_make_it_ask_once_a_second_at_most() -> None:
    hosts = Hosts(["n0.example:1"])
    asked = 0
    for ms in range(10_000):
        asked += len(hosts.ask(NOW + ms))
        assert not hosts.has("10.9.9.9:1", NOW + ms)
    assert asked == 10_000 // SOON_MS


def test_peers_that_change() -> None:
    hosts = Hosts(["n0.example:1"])
    hosts.ask(NOW)
    hosts.take(Resolved({"n0.example": ["10.0.0.5"]}))
    hosts.set(["n0.example:1", "n1.example:1"])
    assert hosts.has("10.0.0.5:1", NOW), "what is known stays known"
    assert hosts.ask(NOW) == [Resolve(("n0.example", "n1.example"))], "and what is new is looked up"
    hosts.set(["10.0.0.7:1"])
    assert not hosts.has("10.0.0.5:1", NOW) and hosts.next_deadline() is None
