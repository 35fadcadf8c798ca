"""Signatures, by vectors of the original's and by changed requests."""

import pytest

from perseid.security.credentials import Credentials
from perseid.security.signature import is_signed, signature

FIELDS = {"AccessKey": "RocketMQ", "topic": "TopicTest"}
SECRET = "12345678"


def test_it_is_the_originals() -> None:
    assert signature(SECRET, FIELDS, b"") == "0jiwhsaYp5ObE5GObbZH1I8/FT4="  # remoting.md §21
    signed = Credentials("RocketMQ", SECRET).sign({"topic": "TopicTest"}, b"")
    assert signed["Signature"] == signature(SECRET, FIELDS, b"")


def test_what_credentials_sign_is_signed() -> None:
    signed = Credentials("a", "s", "token").sign({"b": "2", "a": "1", "none": None}, b"body")
    fields = {name: value for name, value in signed.items() if value is not None}
    assert is_signed("s", fields, b"body", 500)


@pytest.mark.parametrize(
    ("secret", "change", "body"),
    [
        ("other", {}, b"body"),
        (SECRET, {"topic": "Other"}, b"body"),
        (SECRET, {"more": "x"}, b"body"),
        (SECRET, {}, b"changed"),
        (SECRET, {"Signature": "AAAA"}, b"body"),
        (SECRET, {"Signature": "ü\ud800"}, b"body"),
        (SECRET, {"AccessKey": "somebody"}, b"body"),
    ],
)
def test_a_changed_request_is_not_signed(secret: str, change: dict[str, str], body: bytes) -> None:
    signed = FIELDS | {"Signature": signature(SECRET, FIELDS, b"body")}
    assert is_signed(SECRET, signed, b"body", 500)
    assert not is_signed(secret, signed | change, body, 500)


def test_names_are_sorted_as_java_sorts_them() -> None:
    fields = {"～": "behind surrogates", "😀": "before"}
    swapped = {"a": "before", "b": "behind surrogates"}
    assert signature("s", fields, b"") == signature("s", swapped, b"")


def test_without_a_signature_it_is_not_signed() -> None:
    assert not is_signed(SECRET, FIELDS, b"", 500)


@pytest.mark.parametrize(("version", "counts"), [(399, False), (400, True)])
def test_old_clients_add_a_field_after_signing(version: int, counts: bool) -> None:
    signed = FIELDS | {"Signature": signature(SECRET, FIELDS, b""), "_UNIQUE_KEY_QUERY": "true"}
    assert is_signed(SECRET, signed, b"", version) is not counts


def test_secrets_are_in_no_repr() -> None:
    assert "s3cret" not in repr(Credentials("a", "s3cret", "s3cret"))
