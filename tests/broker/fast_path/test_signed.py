"""Requests that have to be signed, the fast way: answered as the handlers and their gate do, and as soon refused."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from broker.fast_path.test_fast import kinds
from broker.harness import Rig
from broker.streams import GROUP, Fields, Recorder, Stream, taken, vars_of, with_head
from perseid import core
from perseid.base.machine import Frames, Opened, Tick
from perseid.broker.access.config import Access
from perseid.broker.fast_path import signers
from perseid.security.credentials import Credentials
from perseid.security.policies import Acl
from perseid.security.users import SUPER, User
from perseid.wire import command
from perseid.wire.codes import Serializer
from perseid.wire.headers.base import Header, to_ext
from perseid.wire.headers.pull import PullMessageRequest
from perseid.wire.headers.send import SendMessageRequestV2
from perseid.wire.users import AclInfo, PolicyEntryInfo, PolicyInfo

pytestmark = pytest.mark.usefixtures("way")
ROOT, ALICE, BOB = Credentials("root", "root-secret"), Credentials("alice", "s" * 100), Credentials("bob", "b", "token")
ACCESS = Access(
    authenticates=True, authorizes=True, initial=User("root", "root-secret", SUPER), key=bytes(32),
    unsigned=frozenset({12}), permitted=frozenset({38}),
)  # fmt: skip
LIARS = [Credentials(name, "a guess") for name in ("root", "alice", "nobody", "álice")]


def permit(rig: Rig, name: str, *rights: tuple[str, str, str], ips: list[str] | None = None) -> None:
    """What a user may do: (resource, action, decision)."""
    entries = [PolicyEntryInfo(resource, [action], ips, decision) for resource, action, decision in rights]
    rig.parts.acls.put(name, Acl.of(AclInfo(f"User:{name}", [PolicyInfo(None, entries)])))


def people(rig: Rig) -> None:
    """Alice may do much, Bob little."""
    for one in (ALICE, BOB):
        rig.parts.users.create(one.access_key, one.secret_key, None, None)
    more = [("Topic:*", "Pub", "Allow"), ("Topic:*", "Sub", "Allow"), ("Group:*", "Sub", "Allow")]
    permit(rig, "alice", *more, ("Topic:Other", "Pub", "Deny"))
    permit(rig, "bob", ("Topic:Plain", "Pub", "Allow"), ips=["10.0.0.2"])


class SignedStream(Stream):
    """Frames that are signed; some by nobody, or by somebody who may not, or not well."""

    def signed(self, header: Fields, body: bytes) -> tuple[Fields, bytes]:
        random = self.random
        if random.random() < 0.03:
            return header, body
        who = random.choice([ALICE] * 12 + [ROOT] * 3 + [BOB] * 3 + LIARS)
        if self.needs_root(header, body):
            who = random.choice([ROOT] * 9 + [ALICE])
        fields = to_ext(header) if isinstance(header, Header) else {k: v for k, v in (header or {}).items() if v}
        if random.random() < 0.1:
            fields["bname"] = "b"
        if random.random() < 0.02:
            fields |= {f"more{n}": "x" for n in range(random.choice([1, 70]))}
        signed = who.sign(fields, body)
        if random.random() < 0.1:
            signed = self.changed(signed)
        elif random.random() < 0.03:
            body += b"x"
        if random.random() < 0.3:
            signed = dict(random.sample(list(signed.items()), len(signed)))
        return signed, body

    def needs_root(self, header: Fields, body: bytes) -> bool:
        return isinstance(header, dict) and ("username" in header or "subject" in header)

    def changed(self, signed: dict[str, str | None]) -> dict[str, str | None]:
        """What was signed, and then changed."""
        random, given = self.random, signed["Signature"] or ""
        signature = random.choice([
            given[:-1], given + "=", "", given.swapcase(), given[:26] + chr(ord(given[26]) + 1) + "=", "é" * 28,
        ])  # fmt: skip
        change: dict[str, str | None] = random.choice([
            {"Signature": signature}, {"Signature": signature}, {"AccessKey": ""}, {"AccessKey": "bob"}, {"more": "x"},
            {"_UNIQUE_KEY_QUERY": "true"}, {"SecurityToken": "t"}, {"AccessKey": "root"}, {"Signature": None},
        ])  # fmt: skip
        return signed | change

    def other(self) -> bytes:
        random = self.random
        if random.random() < 0.5:
            return super().other()
        name = random.choice(["alice", "alice", "bob"])
        kind = random.randrange(4)
        if kind == 0:
            status = json.dumps({"userStatus": random.choice(["enable", "enable", "disable"])}).encode()
            return self.frame(3002, {"username": name}, status)
        if kind == 1:
            secret = {"alice": ALICE, "bob": BOB}[name].secret_key
            text = json.dumps({"password": random.choice([secret, secret, "another"]), "userType": "Normal"})
            return self.frame(random.choice([3001, 3002]), {"username": name}, text.encode())
        if kind == 2:
            return self.frame(3003, {"username": "bob"})
        decision, topic = random.choice(["Allow", "Allow", "Deny"]), random.choice(["Plain", "Other", "P*"])
        entry = {"resource": f"Topic:{topic}", "actions": ["Pub", "Sub"], "decision": decision}
        body = json.dumps({"policies": [{"entries": [entry]}]}).encode()
        return self.frame(random.choice([3006, 3007]), {"subject": f"User:{name}"}, body)

    def frame(self, code: int, header: Fields, body: bytes = b"", *, usual: bool = False) -> bytes:
        raw = super().frame(code, header, body, usual=usual)
        random = self.random
        if raw[4] == Serializer.JSON and random.random() < 0.03:  # what stands there twice
            end = 8 + int.from_bytes(raw[5:8], "big")
            before, mark, rest = raw[8:end].partition(b'"extFields":{')
            more = random.choice([b'"AccessKey":"root",', b'"Signature":"x",', b'"n":"x",', b'"more":null,', b'"z":1,'])
            raw = with_head(raw, before + mark + more + rest, raw[end:]) if mark else raw
        return raw


LEAST = {"send": 40, "timed send": 2, "half": 2, "binary send": 2, "batch": 4}


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH", GROUP])
@pytest.mark.parametrize("seed", range(2))
def test_signed_requests_do_what_the_handlers_do(
    tmp_path: Path, seed: int, flush: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    brokers = [
        Recorder(tmp_path / name, plain=name == "plain", flush=flush, access=ACCESS) for name in ("plain", "handlers")
    ]
    plain, handlers = brokers
    assert (plain.parts.quick.current is None) is (way == "plain"), "without the core all is left to the gate"
    seen = kinds(plain, monkeypatch) if way != "plain" else Counter[str]()
    for broker in brokers:
        people(broker)
    stream = SignedStream(random, plain.now)
    for _ in range(60):
        client = random.choice([1, 1, 1, 2, 3, 4])
        stream.now += random.choice([0, 0, 0, 1, 7, 30, 1_200])
        words = [stream.word(handlers.broker) for _ in range(random.choice([0, 2, 8]))]
        frames = words + [stream.next() for _ in range(random.choice([1, 1, 2, 5, 20, 64]))]
        random.shuffle(frames)
        for broker in brokers:
            broker.now = stream.now
            broker.handle(Tick())
            broker.connect(client)
            broker.handle(Frames(client, bytearray(b"".join(frames))))
        if random.random() < 0.2:
            for broker in brokers:
                again(broker)
    assert plain.answers() == handlers.answers()
    assert plain.parts.store.index.end_offset == handlers.parts.store.index.end_offset  # writes what waits
    assert plain.files() == handlers.files()
    assert [note.text for note in plain.notes] == [note.text for note in handlers.notes]
    assert vars_of(plain) == vars_of(handlers)
    for kind, least in LEAST.items() if way != "plain" else ():
        assert seen[kind] >= least, f"{seen} went the fast way"
    codes = Counter(answer.code for sent in plain.sent.values() for answer in sent)
    assert min(codes[0], codes[16]) > 100, codes


@pytest.mark.parametrize("seed", range(2))
def test_signed_pulls_find_what_the_handlers_find(
    tmp_path: Path, seed: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    brokers = [Recorder(tmp_path / name, plain=name == "plain", access=ACCESS) for name in ("plain", "handlers")]
    seen = kinds(brokers[0], monkeypatch) if way != "plain" else Counter[str]()
    stream = SignedStream(random, brokers[0].now, holds=False)
    for broker in brokers:
        people(broker)
    for _ in range(8):
        frames = [stream.send() for _ in range(90)] + [stream.pull() for _ in range(150)]
        for broker in brokers:
            for client in (1, 2):
                broker.connect(client)
                broker.handle(Frames(client, b"".join(frames)))
    assert brokers[0].answers() == brokers[1].answers()
    assert vars_of(brokers[0]) == vars_of(brokers[1])
    assert brokers[0].parts.groups.rows.keys() == brokers[1].parts.groups.rows.keys()
    assert way == "plain" or min(seen["pull"], seen["pull by SQL92"]) > 4, seen


def again(rig: Rig) -> None:
    """All are there again, and may what they might."""
    for one in (ALICE, BOB):
        rig.parts.users.delete(one.access_key)
    people(rig)


# ---- what is seen at once ----


def send(n: int, by: Credentials | None = ALICE, topic: str = "Plain", body: bytes = b"body", **raw: Any) -> bytes:
    header = SendMessageRequestV2(
        producer_group="p", topic=topic, default_topic="TBW102", default_topic_queue_nums=4, queue_id=0, sys_flag=0,
        born_timestamp=1, flag=0, properties=f"UNIQ_KEY\x01ID{n:030d}\x02",
    )  # fmt: skip
    return command.encode_request(310, n, header if by is None else by.sign(header, body), body, **raw)


def pull(n: int, by: Credentials | None = ALICE, offset: int = 0, **raw: Any) -> bytes:
    header = PullMessageRequest(
        consumer_group="g", topic="Plain", queue_id=0, queue_offset=offset, max_msg_nums=32, sys_flag=5,
        commit_offset=offset, suspend_timeout_millis=0, sub_version=0, subscription="*", expression_type="TAG",
    )  # fmt: skip
    return command.encode_request(11, n, header if by is None else by.sign(header, b""), **raw)


def admin(n: int, code: int, fields: dict[str, str | None], body: dict[str, object] | None = None) -> bytes:
    text = json.dumps(body).encode() if body is not None else b""
    return command.encode_request(code, n, ROOT.sign(fields, text), text)


@pytest.fixture
def rig(tmp_path: Path, way: str) -> Rig:
    """A broker to which Alice has sent, and from which she has pulled."""
    if way == "plain":
        pytest.skip("without the core nothing that has to be signed goes the fast way")
    made = Rig(tmp_path, access=ACCESS)
    people(made)
    made.connect(1)
    made.handle(Frames(1, send(1) + send(2) + pull(3)))
    return made


def answers(rig: Rig, client: int = 1) -> dict[int, int]:
    return {answer.opaque: answer.code for answer in rig.sent.get(client, [])}


def test_the_second_one_goes_the_fast_way(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = taken(rig, monkeypatch)
    rig.handle(Frames(1, send(4) + pull(5) + send(6) + pull(7, offset=1)))
    assert seen == [True] * 4
    assert answers(rig) == dict.fromkeys(range(1, 8), 0)


CHANGES: dict[str, tuple[Callable[[], bytes], int]] = {
    "a permission that is revoked": (
        lambda: admin(10, 3006, {"subject": "User:alice"}, {"policies": [{"entries": [DENIED]}]}), 16,
    ),
    "policies that are gone": (lambda: admin(10, 3008, {"subject": "User:alice"}), 16),
    "a user that is disabled": (lambda: admin(10, 3002, {"username": "alice"}, {"userStatus": "disable"}), 16),
    "a user that is gone": (lambda: admin(10, 3003, {"username": "alice"}), 16),
    "another secret": (lambda: admin(10, 3002, {"username": "alice"}, {"password": "new"}), 16),
    "a change of somebody else": (lambda: admin(10, 3003, {"username": "bob"}), 0),
}  # fmt: skip
DENIED = {"resource": "Topic:Plain", "actions": ["Pub", "Sub"], "decision": "Deny"}


@pytest.mark.parametrize("change", CHANGES)
def test_the_very_next_request_sees_a_change(rig: Rig, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, code = CHANGES[change]
    seen = taken(rig, monkeypatch)
    rig.handle(Frames(1, send(4) + pull(5) + make() + send(6) + pull(7)))
    assert seen[:3] == [True, True, False]
    assert answers(rig) == {1: 0, 2: 0, 3: 0, 4: 0, 5: 0, 10: 0, 6: code, 7: code}
    rig.handle(Frames(1, send(8) + pull(9)))
    assert (answers(rig)[8], answers(rig)[9]) == (code, code)
    assert rig.parts.store.reads.max_offset("Plain", 0) == (5 if code == 0 else 3)


NOT_WELL: dict[str, tuple[Callable[[], bytes], Callable[[], bytes], str]] = {
    "nobody": (lambda: send(10, None), lambda: pull(11, None), "username cannot be null."),
    "a stranger": (
        lambda: send(10, Credentials("x", "y")), lambda: pull(11, Credentials("x", "y")), "User:x is not found."
    ),
    "a wrong secret": (
        lambda: send(10, Credentials("alice", "y")), lambda: pull(11, Credentials("alice", "y")),
        "check signature failed.",
    ),
    "a changed request": (
        lambda: send(10).replace(b"body", b"bodz"),
        lambda: pull(11).replace(b'"queueOffset":"0"', b'"queueOffset":"1"'), "check signature failed.",
    ),
    "a changed user": (
        lambda: send(10).replace(b'"AccessKey":"alice"', b'"AccessKey":"root"'),
        lambda: pull(11).replace(b'"subscription":"*"', b'"subscription":"x"'), "check signature failed.",
    ),
}  # fmt: skip


def framed(raw: bytes) -> bytes:
    """The same with the lengths that it has now: its length may have changed."""
    body = b"bod" + raw[-1:] if raw[-4:-1] == b"bod" else b""
    return with_head(raw, raw[8 : len(raw) - len(body)], body)


@pytest.mark.parametrize("why", NOT_WELL)
def test_what_is_not_well_signed_is_refused_in_the_gates_words(
    rig: Rig, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_send, make_pull, remark = NOT_WELL[why]
    seen = taken(rig, monkeypatch)
    rig.handle(Frames(1, send(4) + framed(make_send()) + framed(make_pull()) + send(5)))
    assert seen == [True, False, False, True]
    assert [a.remark for a in rig.sent[1] if a.code == 16] == [remark, remark]
    assert rig.parts.store.reads.max_offset("Plain", 0) == 4


def test_from_another_address_it_is_asked_anew(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    permit(rig, "alice", ("Topic:Plain", "Pub", "Allow"), ips=["10.0.0.1"])
    for client in (1, 2):
        rig.connect(client)
        rig.handle(Frames(client, send(4) + send(5)))
    assert (answers(rig)[4], answers(rig)[5]) == (0, 0)
    assert answers(rig, 2) == {4: 16, 5: 16}


def test_of_another_topic_it_is_asked_anew(rig: Rig) -> None:
    rig.handle(Frames(1, send(4, ROOT, "Other") + send(5, ROOT, "Other") + send(6, ALICE, "Other") + send(7)))
    assert {n: answers(rig)[n] for n in (4, 5, 6, 7)} == {4: 0, 5: 0, 6: 16, 7: 0}


def test_a_user_that_nobody_asked_for_yet_is_learnt(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = taken(rig, monkeypatch)
    for serializer in Serializer:
        rig.handle(Frames(1, send(4, ROOT, serializer=serializer) + pull(5, ROOT, serializer=serializer)))
        rig.handle(Frames(1, send(6, ROOT, serializer=serializer) + pull(7, ROOT, serializer=serializer)))
    assert seen == [True, False, True, True] * 2
    assert set(answers(rig).values()) == {0}


def test_what_is_known_is_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signers, "MAX_PERMITS", 3)
    table = rig.parts.quick.current._signers
    for client in range(10, 20):
        rig.handle(Opened(client, f"10.0.1.{client}:5000", "10.0.0.9:10911", "main"))
        rig.handle(Frames(client, send(4, ROOT) + pull(5, ROOT)))
        assert answers(rig, client) == {4: 0, 5: 0}
        known = [one for by_name in table._by_host.values() for one in by_name.values()]
        assert sum(len(one.permits) for one in known) <= 3


@pytest.mark.parametrize("code", [310, 11])
def test_where_a_code_needs_no_signature_all_is_left_to_the_gate(tmp_path: Path, code: int) -> None:
    access = Access(authenticates=True, authorizes=True, key=bytes(32), unsigned=frozenset({code}))
    rig = Rig(tmp_path, access=access)
    assert rig.parts.quick.current is None


def test_where_a_code_needs_no_permission_its_signature_counts(tmp_path: Path, way: str) -> None:
    rig = Rig(tmp_path, access=Access(authenticates=True, authorizes=True, key=bytes(32), permitted=frozenset({310})))
    rig.parts.users.create("alice", ALICE.secret_key, None, None)
    rig.connect(1)
    rig.handle(Frames(1, send(1) + send(2) + send(3, BOB) + send(4, Credentials("alice", "x")) + send(5)))
    assert answers(rig) == {1: 0, 2: 0, 3: 16, 4: 16, 5: 0}


@pytest.mark.parametrize("secret", ["", "s", "x" * 64, "x" * 65, "ü\ud800"])
@pytest.mark.parametrize("size", [1, 63, 64, 1000])
def test_the_core_signs_as_everybody_does(way: str, secret: str, size: int) -> None:
    if way == "plain":
        pytest.skip("without the core there is nothing to compare")
    assert core.compiled is not None
    signer = core.compiled.signers.Signer(b"alice", secret.encode("utf-8", "surrogatepass"))
    fields = {"a": "x" * size, "b": "y"}
    signed = Credentials("alice", secret).sign(fields, b"")
    values = b"alice" + b"x" * size + b"y"
    assert signer.has_signed(values, (signed["Signature"] or "").encode())
    assert not signer.has_signed(values + b"z", (signed["Signature"] or "").encode())
