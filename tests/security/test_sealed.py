"""Secrets at rest."""

import os

import pytest

from perseid.base.errors import StoreError
from perseid.security.sealed import KEY_BYTES, Sealer

KEY = bytes(range(KEY_BYTES))


def test_a_secret_comes_back_and_is_not_to_be_seen() -> None:
    sealer = Sealer(KEY, os.urandom)
    sealed = sealer.seal("alice", "open sesame ü")
    assert "sesame" not in sealed
    assert sealer.unseal("alice", sealed) == "open sesame ü"
    assert sealer.seal("alice", "open sesame ü") != sealed, "each time another one"


@pytest.mark.parametrize("wrong", ["another key", "another name", "a changed byte", "cut", "no base64", "empty"])
def test_what_is_not_right_is_refused_in_a_line(wrong: str) -> None:
    sealed = Sealer(KEY, os.urandom).seal("alice", "secret")
    key = KEY[::-1] if wrong == "another key" else KEY
    name = "bob" if wrong == "another name" else "alice"
    if wrong == "a changed byte":
        sealed = sealed[:-6] + ("A" if sealed[-6] != "A" else "B") + sealed[-5:]
    text = {"cut": sealed[:12], "no base64": "ü", "empty": ""}.get(wrong, sealed)
    with pytest.raises(StoreError, match=f"the secret of user {name} can't be decrypted"):
        Sealer(key, os.urandom).unseal(name, text)
