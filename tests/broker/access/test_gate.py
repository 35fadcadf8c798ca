"""Who gets past the gate: a broker with users, asked frame by frame."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.broker.harness import NOW, Rig

from perseid.base.errors import StoreError
from perseid.broker.access.config import Access
from perseid.broker.access.tables import ACLS_PATH, USERS_PATH
from perseid.security.credentials import Credentials
from perseid.security.refusals import TELL_MS
from perseid.security.users import SUPER, User
from perseid.wire.command import Command
from perseid.wire.headers.send import SendMessageRequestV2

ROOT, ALICE = Credentials("root", "root-secret"), Credentials("alice", "alice-secret")
INNER = Credentials("inner", "inner-secret")
KEY = bytes(32)
SECURED = Access(
    authenticates=True, authorizes=True, initial=User("root", "root-secret", SUPER), inner=INNER, key=KEY,
    unsigned=frozenset({105}), permitted=frozenset({28}),
)  # fmt: skip
SEND = SendMessageRequestV2(
    producer_group="g", topic="orders", default_topic="TBW102", default_topic_queue_nums=4, queue_id=0, sys_flag=0,
    born_timestamp=NOW, flag=0, properties="", reconsume_times=0, unit_mode=False, batch=False,
)  # fmt: skip


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    yield Rig(tmp_path, access=SECURED)


def ask(rig: Rig, code: int, by: Credentials | None, header: Any = None, body: bytes = b"", client: int = 1) -> Command:
    return rig.ask(code, header if by is None else by.sign(header, body), body, client=client)


def said(answer: Command) -> tuple[int, str | None]:
    return answer.code, answer.remark


def make(rig: Rig, who: Credentials = ALICE, kind: str = "Normal", by: Credentials = ROOT) -> Command:
    body = json.dumps({"password": who.secret_key, "userType": kind}).encode()
    return ask(rig, 3001, by, {"username": who.access_key}, body)


def permit(rig: Rig, resource: str, *actions: str, decision: str = "Allow", ips: tuple[str, ...] = ()) -> Command:
    entry = {"resource": resource, "actions": actions, "decision": decision, "sourceIps": ips}
    body = json.dumps({"policies": [{"entries": [entry]}]}).encode()
    return ask(rig, 3006, ROOT, {"subject": "User:alice"}, body)


def send(rig: Rig, by: Credentials | None, client: int = 1) -> Command:
    return ask(rig, 310, by, SEND, b"hello", client)


def test_who_does_not_sign_is_refused_and_changes_nothing(rig: Rig) -> None:
    before = rig.parts.store.log.end
    assert said(send(rig, None)) == (16, "username cannot be null.")
    assert said(send(rig, ALICE)) == (16, "User:alice is not found.")
    assert said(send(rig, Credentials("root", "guess"))) == (16, "check signature failed.")
    assert said(ask(rig, 99_999, None)) == (16, "username cannot be null."), "nobody learns what is served"
    assert rig.parts.store.log.end == before


def test_a_signature_over_another_body_is_refused(rig: Rig) -> None:
    answer = rig.ask(310, ROOT.sign(SEND, b"hello"), b"jello")
    assert said(answer) == (16, "check signature failed.")


@pytest.mark.parametrize(
    "change",
    [
        {"queueId": "1"},
        {"topic": "payments"},
        {"Signature": ""},
        {"Signature": "not base64 at all"},
        {"Signature": "\u00e9" * 1_000},
        {"AccessKey": "inner"},
        {"more": "1"},
    ],
)
def test_a_request_that_was_changed_after_it_was_signed_is_refused(rig: Rig, change: Mapping[str, str]) -> None:
    fields = {"topic": "orders", "queueId": "0"}
    before = rig.parts.store.log.end
    assert ask(rig, 30, ROOT, fields).code == 0
    assert said(rig.ask(30, {**ROOT.sign(fields, b""), **change}, b"")) == (16, "check signature failed.")
    assert rig.parts.store.log.end == before
    assert "requests refused: 1, the last one code 30 of 10.0.0.1:5000: check signature failed." in rig.notes[-1].text


def test_a_request_that_is_replayed_is_served_again_for_nothing_signed_has_a_time(rig: Rig) -> None:
    """As on the original, whose clients sign neither a time nor a number: docs/security.md says so. Its user's end ends
    it."""
    make(rig)
    permit(rig, "Topic:orders", "Pub")
    recorded = ALICE.sign(SEND, b"hello")
    assert rig.ask(310, recorded, b"hello").code == 0
    rig.now += 365 * 86_400_000
    assert rig.ask(310, recorded, b"hello", client=2).code == 0
    other = json.dumps({"password": "another"}).encode()
    assert ask(rig, 3002, ROOT, {"username": "alice"}, other).code == 0
    assert said(rig.ask(310, recorded, b"hello", client=2)) == (16, "check signature failed.")


@pytest.mark.parametrize(
    ("resource", "actions", "ips", "remark"),
    [
        ("Queue:orders", ["Pub"], [], "The resource is null."),
        ("orders", ["Pub"], [], "The resource is null."),
        (" ", ["Pub"], [], "The resource is null."),
        ("Topic:" + "x" * 600, ["Pub"], [], "The resource is null."),
        ("Topic:orders", ["Send"], [], "The actions is empty."),
        ("Topic:orders", ["Any"], [], "The actions can not be Any."),
        ("Topic:orders", ["Pub"], ["10.0.0.0/99"], "The source ip is invalid."),
        ("Topic:orders", ["Pub"], ["10.*"], "The source ip is invalid."),
        ("Topic:orders", ["Pub"], [""], "The source ip is empty."),
    ],
)
def test_a_policy_with_a_broken_pattern_is_refused_and_permits_nothing(
    rig: Rig, resource: str, actions: list[str], ips: list[str], remark: str
) -> None:
    make(rig)
    assert said(permit(rig, resource, *actions, ips=(*ips,))) == (16, remark)
    assert send(rig, ALICE).code == 16
    assert permit(rig, "Topic:orders", "Pub").code == 0
    body = json.dumps({"policies": [{"entries": [
        {"resource": resource, "actions": actions, "decision": "Allow", "sourceIps": ips}
    ]}]}).encode()  # fmt: skip
    assert said(ask(rig, 3007, ROOT, {"subject": "User:alice"}, body)) == (16, remark)
    assert send(rig, ALICE).code == 0, "what was there stays"


def test_a_super_user_may_everything(rig: Rig) -> None:
    assert send(rig, ROOT).code == 0
    assert send(rig, INNER).code == 0, "what nodes sign as is one"


def test_a_user_may_what_policies_allow_and_no_more(rig: Rig) -> None:
    assert make(rig).code == 0
    refused = "User:alice has no permission to access Topic:orders from 10.0.0.1, no matched policies."
    assert said(send(rig, ALICE)) == (16, refused)
    assert permit(rig, "Topic:orders", "Pub").code == 0
    assert send(rig, ALICE).code == 0
    assert permit(rig, "Topic:orders", "Pub", decision="Deny").code == 0
    assert said(send(rig, ALICE)) == (16, refused.replace("no matched policies.", "the decision is deny."))


def test_a_verdict_is_forgotten_when_the_policy_is_revoked(rig: Rig) -> None:
    make(rig)
    permit(rig, "Topic:orders", "Pub")
    assert [send(rig, ALICE).code for _ in range(3)] == [0, 0, 0]
    assert ask(rig, 3008, ROOT, {"subject": "User:alice", "resource": "Topic:orders"}).code == 0
    assert send(rig, ALICE).code == 16


def test_from_another_address_it_may_not(rig: Rig) -> None:
    make(rig)
    permit(rig, "Topic:orders", "Pub", ips=("10.0.0.1/32",))
    assert [send(rig, ALICE, client=client).code for client in (1, 2)] == [0, 16]


def test_a_disabled_user_may_nothing_and_neither_may_one_that_is_gone(rig: Rig) -> None:
    make(rig)
    permit(rig, "Topic:*", "Pub")
    disable = json.dumps({"userStatus": "disable"}).encode()
    assert ask(rig, 3002, ROOT, {"username": "alice"}, disable).code == 0
    assert said(send(rig, ALICE)) == (16, "User:alice is disabled.")
    assert ask(rig, 3003, ROOT, {"username": "alice"}).code == 0
    assert said(send(rig, ALICE)) == (16, "User:alice is not found.")
    make(rig)
    assert send(rig, ALICE).code == 16, "its policies went with it"


@pytest.mark.parametrize("revoked", [False, True])
def test_what_was_revoked_while_a_pull_waited_is_not_given(rig: Rig, revoked: bool) -> None:
    make(rig)
    send(rig, ROOT)
    rig.until(rig.now + 1)
    for resource in ("Topic:orders", "Group:g"):
        permit(rig, resource, "Sub")
    fields = {
        "consumerGroup": "g", "topic": "orders", "queueId": "0", "queueOffset": "1", "maxMsgNums": "32", "sysFlag": "6",
        "commitOffset": "0", "suspendTimeoutMillis": "15000", "subscription": "*", "subVersion": "0",
    }  # fmt: skip
    opaque = rig.tell(11, ALICE.sign(fields, b""), client=7)
    assert not rig.sent.get(7), "it waits"
    if revoked:
        ask(rig, 3008, ROOT, {"subject": "User:alice", "resource": "Topic:orders"})
    send(rig, ROOT)
    (answer,) = rig.sent[7]
    assert (answer.opaque, answer.code) == (opaque, 16 if revoked else 0)
    assert (b"hello" in bytes(answer.body)) is not revoked


def test_codes_on_the_white_lists_need_no_signature_or_no_permission(rig: Rig) -> None:
    assert ask(rig, 105, None).code == 3, "past the gate: nobody serves it"
    make(rig)
    assert ask(rig, 28, ALICE).code == 0 and ask(rig, 26, ALICE).code == 16


def test_only_a_super_user_makes_and_changes_one(rig: Rig) -> None:
    make(rig)
    permit(rig, "Cluster:*", "All")
    bob = Credentials("bob", "b")
    assert said(make(rig, bob, "Super", by=ALICE)) == (1, "The super user can only be create by super user")
    assert make(rig, bob, by=ALICE).code == 0
    promote = json.dumps({"userType": "Super"}).encode()
    assert ask(rig, 3002, ALICE, {"username": "bob"}, promote).code == 1
    stolen = json.dumps({"password": "mine"}).encode()
    assert ask(rig, 3002, ALICE, {"username": "root"}, stolen).code == 16
    assert ask(rig, 3003, ALICE, {"username": "root"}).code == 16
    assert send(rig, ROOT).code == 0


@pytest.mark.parametrize(
    ("code", "fields", "body", "answer"),
    [
        (3001, {}, b"{}", (29, "The username is blank")),
        (3001, {"username": "root"}, b'{"password":"p"}', (16, "The user is existed")),
        (3001, {"username": "new"}, b"{}", (16, "password can not be blank")),
        (3002, {"username": "new"}, b"{}", (16, "The user is not exist")),
        (3004, {"username": " "}, b"", (29, "The username is blank")),
        (3006, {"subject": "User:new"}, b'{"policies":[{"entries":[]}]}', (16, "The policy entries is empty.")),
        (3006, {"subject": "User:new"}, b"", (1, "The body of acl is null")),
        (3008, {"subject": "User:root"}, b"", (16, "The acl is not exist.")),
        (3009, {"subject": "root"}, b"", (16, "The subject is null.")),
    ],
)
def test_what_is_refused_about_users(
    rig: Rig, code: int, fields: Mapping[str, str], body: bytes, answer: tuple[int, str]
) -> None:
    assert said(ask(rig, code, ROOT, fields, body)) == answer


def test_no_answer_and_no_file_has_a_secret_in_it(rig: Rig, tmp_path: Path) -> None:
    make(rig)
    for code, fields in ((3004, {"username": "alice"}), (3005, {}), (26, None), (28, None)):
        answer = ask(rig, code, ROOT, fields)
        assert answer.code == 0 and b"-secret" not in bytes(answer.body)
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or b"alice-secret" not in path.read_bytes(), path
    assert "-secret" not in repr(rig.notes)


def test_users_and_policies_are_there_after_a_restart(rig: Rig, tmp_path: Path) -> None:
    make(rig)
    permit(rig, "Topic:orders", "Pub")
    rig.stop()
    again = Rig(tmp_path, access=SECURED)
    assert send(again, ALICE).code == 0
    again.stop()
    other = Access(authenticates=True, key=b"k" * 32)
    with pytest.raises(StoreError, match=r"users.json: the secret of user \w+ can't be decrypted"):
        Rig(tmp_path, access=other)


@pytest.mark.parametrize("path", [USERS_PATH, ACLS_PATH])
@pytest.mark.parametrize("text", [b"[{", b"{}", b'[{"subject":"x"}]', b"\xff", b" ", b""])
def test_a_torn_file_stops_the_start_with_its_name(rig: Rig, tmp_path: Path, path: str, text: bytes) -> None:
    rig.stop()
    (tmp_path / path).write_bytes(text)
    with pytest.raises(StoreError, match=f"{path} can't be taken up"):
        Rig(tmp_path, access=SECURED)


def test_an_answer_about_users_waits_until_they_are_durable(rig: Rig) -> None:
    rig.hold_io()
    rig.tell(3001, ROOT.sign({"username": "bob"}, b'{"password":"p"}'), b'{"password":"p"}')
    assert not rig.sent.get(1)
    rig.finish_io()
    assert [answer.code for answer in rig.sent[1]] == [0]


def test_refusals_are_told_now_and_then(rig: Rig) -> None:
    for _ in range(3):
        send(rig, None)
    told = [note.text for note in rig.notes if "refused" in note.text]
    assert told == ["requests refused: 1, the last one code 310 of 10.0.0.1:5000: username cannot be null."]
    rig.now += TELL_MS
    send(rig, None)
    assert "requests refused: 3" in rig.notes[-1].text


def test_without_users_none_are_made(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    code, remark = said(rig.ask(3001, {"username": "a"}, b'{"password":"p"}'))
    assert code == 16 and "authenticationEnabled=true" in (remark or "")
    assert not (tmp_path / USERS_PATH).exists()


def test_a_broker_that_nobody_can_use_says_so(tmp_path: Path) -> None:
    rig = Rig(tmp_path, access=Access(authenticates=True, key=KEY))
    assert "there is no user" in rig.notes[-1].text


def test_the_secret_of_the_inner_user_is_what_its_file_says_now(rig: Rig, tmp_path: Path) -> None:
    rig.stop()
    new = Credentials("inner", "another")
    again = Rig(tmp_path, access=Access(authenticates=True, inner=new, key=KEY))
    assert [send(again, who).code for who in (new, INNER)] == [0, 16]
