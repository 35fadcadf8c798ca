"""Who is a member of the cluster: what the file of a name server or a controller says, and requests that are signed."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from perseid.base import config
from perseid.base.errors import ConfigError, RequestRefused
from perseid.security.credentials import Credentials
from perseid.security.members import OPEN, Asks, MemberOptions, Members, members_of
from perseid.security.refusals import TELL_MS
from perseid.wire.command import Command, decode, encode_request

INNER, ROOT = Credentials("nodes", "nodes-secret"), Credentials("root", "root-secret")
OPTIONS = MemberOptions(
    authentication_enabled=True,
    authorization_enabled=True,
    init_authentication_user=json.dumps({"username": "root", "password": "root-secret"}),
    inner_client_authentication_credentials=json.dumps({"accessKey": "nodes", "secretKey": "nodes-secret"}),
    authentication_whitelist="206, 904",
)


def request(
    by: Credentials | None, code: int = 103, fields: Mapping[str, str] | None = None, body: bytes = b"b"
) -> Command:
    return decode(encode_request(code, 7, by.sign(fields, body) if by else dict(fields or {}), body)).keep()


@pytest.mark.parametrize(
    ("by", "why"),
    [
        (INNER, ""),
        (ROOT, ""),
        (None, "username cannot be null."),
        (Credentials("alice", "x"), "User:alice is not found."),
        (Credentials("nodes", "guess"), "check signature failed."),
        (Credentials("root", "nodes-secret"), "check signature failed."),
    ],
)
def test_a_member_is_who_signs_as_one_of_the_two_users(by: Credentials | None, why: str) -> None:
    members = members_of(OPTIONS)
    assert members.stranger(request(by)) == why
    assert OPEN.stranger(request(by)) == "", "where nobody has to sign"


def test_a_signature_is_over_all_of_the_request() -> None:
    members = members_of(OPTIONS)
    signed = INNER.sign({"brokerName": "a"}, b"topics")
    assert members.stranger(decode(encode_request(103, 1, signed, b"topics"))) == ""
    for fields, body in (
        ({**signed, "brokerName": "b"}, b"topics"),
        (signed, b"others"),
        ({**signed, "x": "y"}, b"topics"),
    ):
        assert members.stranger(decode(encode_request(103, 1, fields, body))) == "check signature failed."


def test_codes_of_the_white_list_and_what_asks_for_nothing_need_no_signature() -> None:
    members, notes = members_of(OPTIONS), list[tuple[str, str]]()
    note = lambda level, text: notes.append((level, text))  # noqa: E731
    members.admit(request(None, 105), Asks.NOTHING, "p:1", 0, note)
    members.admit(request(None, 206), Asks.SUPER, "p:1", 0, note)
    assert not notes


def test_refusals_are_told_now_and_then() -> None:
    members, notes = members_of(OPTIONS), list[str]()
    for now in (0, 1, TELL_MS - 1, TELL_MS):
        with pytest.raises(RequestRefused) as refused:
            members.admit(request(None), Asks.SUPER, "10.9.9.9:5", now, lambda level, text: notes.append(text))
        assert (refused.value.code, refused.value.remark) == (16, "username cannot be null.")
    last = "the last one code 103 of 10.9.9.9:5: username cannot be null."
    assert notes == [f"requests refused: 1, {last}", f"requests refused: 3, {last}"]


def test_a_node_signs_as_the_inner_user_whether_it_asks_for_signatures_or_not() -> None:
    assert OPEN.sign is None
    for options in (
        OPTIONS,
        MemberOptions(inner_client_authentication_credentials=OPTIONS.inner_client_authentication_credentials),
    ):
        sign = members_of(options).sign
        assert sign is not None and sign({"a": "1"}, b"x") == INNER.sign({"a": "1"}, b"x")


def test_the_inner_users_secret_counts_where_both_have_one_name() -> None:
    both = MemberOptions(
        authentication_enabled=True, init_authentication_user='{"username":"nodes","password":"other"}',
        inner_client_authentication_credentials=OPTIONS.inner_client_authentication_credentials,
    )  # fmt: skip
    members = members_of(both)
    assert members.stranger(request(INNER)) == ""
    assert members.stranger(request(Credentials("nodes", "other"))) == "check signature failed."


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (MemberOptions(authentication_enabled=True), "needs innerClientAuthenticationCredentials"),
        (MemberOptions(authorization_enabled=True), "set authenticationEnabled=true, too"),
        (MemberOptions(init_authentication_user='{"username":"planted"}'), "initAuthenticationUser: {"),
        (MemberOptions(inner_client_authentication_credentials="planted"), "innerClientAuthenticationCredentials: {"),
        (
            MemberOptions(init_authentication_user=json.dumps({"username": "u" * 300, "password": "planted"})),
            "initAuthenticationUser or .*300 characters",
        ),
        (MemberOptions(authentication_whitelist="a"), "authenticationWhitelist=a"),
    ],
)
def test_what_makes_no_sense_is_refused_without_a_secret(options: MemberOptions, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as error:
        members_of(options)
    assert "planted" not in str(error.value)


def test_secrets_are_not_shown() -> None:
    text = config.to_text(OPTIONS)
    assert "secret" not in text and "authenticationEnabled=true" in text
    assert "secret" not in repr(vars(Members(INNER)).get("inner", ""))
