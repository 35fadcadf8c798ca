"""The audit log: which requests have a line, and what stands in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.broker.access.test_gate import ALICE, INNER, ROOT, SECURED, ask, make, permit, send
from tests.broker.harness import NOW, Rig

from perseid.broker.access.audit import MESSAGING
from perseid.security.audit import ALLOWED_PER_SECOND, MAX_CHARS, Journal
from perseid.security.credentials import Credentials
from perseid.wire.codes import RequestCode

REFUSALS = 5


class Audited:
    """A broker, and the lines that it wrote."""

    def __init__(self, root: Path) -> None:
        self.written: list[bytes] = []
        access = replace(SECURED, audit=Journal(self.written.append, REFUSALS))
        self.rig = Rig(root, access=access)

    def lines(self) -> list[dict[str, Any]]:
        """What was written since this was asked last."""
        lines = [json.loads(line) for line in self.written]
        self.written.clear()
        return lines


@pytest.fixture
def audited(tmp_path: Path) -> Iterator[Audited]:
    yield Audited(tmp_path)


def test_who_made_a_user_from_where_and_which(audited: Audited) -> None:
    make(audited.rig)
    assert audited.lines() == [
        {
            "time": "2023-11-14T22:13:20.000Z", "allowed": True, "user": "root", "address": "10.0.0.1:5000",
            "code": "AUTH_CREATE_USER", "asked": [{"resource": "Cluster:C", "actions": ["Update"]}],
            "fields": {"username": "alice"},
        }
    ]  # fmt: skip


def test_a_refusal_says_what_was_asked_for_and_why_not(audited: Audited) -> None:
    make(audited.rig)
    audited.lines()
    send(audited.rig, ALICE)
    (line,) = audited.lines()
    assert line["allowed"] is False and line["user"] == "alice" and line["code"] == "SEND_MESSAGE_V2"
    assert line["asked"] == [{"resource": "Topic:orders", "actions": ["Pub"]}]
    assert line["why"].endswith("no matched policies.") and "fields" not in line, "a message's properties are no fields"


@pytest.mark.parametrize(
    ("by", "user", "why"),
    [
        (None, None, "username cannot be null."),
        (ALICE, "alice", "User:alice is not found."),
        (Credentials("root", "guess"), "root", "check signature failed."),
    ],
)
def test_who_is_not_who_they_say_has_a_line(
    audited: Audited, by: Credentials | None, user: str | None, why: str
) -> None:
    send(audited.rig, by)
    (line,) = audited.lines()
    assert (line.get("user"), line["why"], line["allowed"]) == (user, why, False)


def test_messages_have_no_lines_as_long_as_they_are_allowed(audited: Audited) -> None:
    assert send(audited.rig, ROOT).code == 0
    assert audited.lines() == []


def test_a_code_that_is_not_known_to_be_a_clients_is_administration(audited: Audited) -> None:
    """What is added later has lines until somebody says otherwise."""
    rows = audited.rig.parts.dispatch.routes
    assert set(MESSAGING) <= rows.keys()
    words = ("CREATE", "DELETE", "RESET", "CLEAN", "AUTH", "BROKER", "_ALL_", "COLD", "GROUP_FORBIDDEN", "CLONE")
    assert not [code.name for code in MESSAGING if any(word in code.name for word in words)]
    assert {RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET} <= rows.keys() - MESSAGING


def test_each_administrative_request_of_a_super_user_has_one_line(audited: Audited) -> None:
    codes = [code for code in audited.rig.parts.dispatch.routes if code not in MESSAGING]
    names = []
    for code in codes:
        audited.rig.tell(code, ROOT.sign({}, b""))
        names += [line["code"] for line in audited.lines()]
    assert names == [RequestCode(code).name for code in codes]


def test_what_nodes_read_from_one_another_has_no_line_but_what_they_change_has(audited: Audited) -> None:
    ask(audited.rig, 21, INNER)
    assert audited.lines() == []
    make(audited.rig, by=INNER)
    assert [line["user"] for line in audited.lines()] == ["inner"]


def test_what_only_a_super_user_may_is_told_as_refused(audited: Audited) -> None:
    make(audited.rig)
    permit(audited.rig, "Cluster:*", "All")
    audited.lines()
    make(audited.rig, Credentials("bob", "b"), "Super", by=ALICE)
    assert audited.lines()[-1]["why"] == "The super user can only be create by super user"


def test_a_storm_of_refusals_has_a_few_lines_and_one_that_says_how_many_had_none(audited: Audited) -> None:
    for _ in range(REFUSALS + 95):
        send(audited.rig, None)
    assert len(audited.lines()) == REFUSALS
    assert make(audited.rig).code == 0
    assert [line["code"] for line in audited.lines()] == ["AUTH_CREATE_USER"], "what was allowed is told all the same"
    audited.rig.until(NOW + 1_000)
    assert audited.lines() == [
        {
            "time": "2023-11-14T22:13:21.000Z", "allowed": False, "leftOut": 95,
            "why": f"more than {REFUSALS} refusals in a second",
        }
    ]  # fmt: skip
    send(audited.rig, None)
    assert len(audited.lines()) == 1, "a second later there is room again"


def test_what_was_left_out_is_said_at_the_end(audited: Audited) -> None:
    for _ in range(REFUSALS + 1):
        send(audited.rig, None)
    audited.lines()
    audited.rig.stop()
    assert [line["leftOut"] for line in audited.lines()] == [1]


def test_requests_that_are_allowed_have_a_limit_too(audited: Audited) -> None:
    for _ in range(ALLOWED_PER_SECOND + 2):
        ask(audited.rig, 28, ROOT)
    assert len(audited.lines()) == ALLOWED_PER_SECOND
    audited.rig.until(NOW + 1_000)
    assert [line["leftOut"] for line in audited.lines()] == [2]


def test_texts_of_strangers_are_bounded_and_stay_in_their_line(audited: Audited) -> None:
    send(audited.rig, Credentials("evil\n" + "x" * 10_000, "s"))
    (line,) = audited.written
    assert b"\n" not in line and len(line) < 4 * MAX_CHARS
    assert json.loads(line)["user"] == "evil\n" + "x" * (MAX_CHARS - 5)


def test_no_secret_and_no_signature_is_in_it(audited: Audited) -> None:
    make(audited.rig)
    permit(audited.rig, "Topic:orders", "Pub")
    send(audited.rig, Credentials("alice", "guess-secret"))
    assert len(audited.written) == 3
    for line in audited.written:
        assert b"secret" not in line and b"Signature" not in line and b"password" not in line


def test_where_nobody_signs_there_is_no_log(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    assert rig.parts.audit is None
