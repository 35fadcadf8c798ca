"""What clients take from the environment that are told nothing of TLS."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perseid.client.tls import ClientTls, default, use

VARIABLES = ("TLS", "CA", "CERT", "KEY", "KEY_PASSWORD", "SERVER_NAME", "INSECURE")


@pytest.fixture(autouse=True)
def nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test's own variables are gone after it."""
    for name in VARIABLES:
        monkeypatch.setenv(f"PERSEID_{name}", "")


@pytest.mark.parametrize(
    ("said", "tls"),
    [
        ({}, None),
        ({"TLS": "false"}, None),
        ({"TLS": "1"}, ClientTls()),
        ({"INSECURE": "true"}, ClientTls(verify=False)),
        ({"CA": "/a", "CERT": "/c", "KEY": "/k"}, ClientTls("/a", "/c", "/k")),
        ({"CA": "/a", "SERVER_NAME": "b", "KEY_PASSWORD": "p"}, ClientTls("/a", key_password="p", server_name="b")),
        ({"KEY_PASSWORD": "p"}, None),
    ],
)
def test_what_the_environment_says(
    said: dict[str, str], tls: ClientTls | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in said.items():
        monkeypatch.setenv(f"PERSEID_{name}", value)
    assert default() == tls


@pytest.mark.parametrize(
    "tls",
    [
        ClientTls(),
        ClientTls("/a", "/c", "/k", "password", server_name="b"),
        ClientTls(verify=False),
    ],
)
def test_what_is_used_reaches_processes_that_are_started(tls: ClientTls) -> None:
    use(tls)
    assert default() == tls


def test_paths_are_named_for_whatever_folder_a_process_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    use(ClientTls("ca.pem"))
    assert os.environ["PERSEID_CA"] == str(tmp_path / "ca.pem")


def test_nothing_is_used_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSEID_CA", "/a")
    use(None)
    assert default() is None and "PERSEID_CA" not in os.environ
