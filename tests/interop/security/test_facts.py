"""What a broker with users and policies answers: codes and remarks, in the order in which it looks at things."""

from __future__ import annotations

import hmac
import json
from base64 import b64encode
from hashlib import sha1

import pytest
import rig
import secured
from secured import INNER, SUPER, Policy, ask, permit

from perseid.client import Credentials

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("security")]

OK, SYSTEM_ERROR, NOT_SUPPORTED, NO_PERMISSION, INVALID = 0, 1, 3, 16, 29
RUNTIME_INFO, UPDATE_TOPIC, SEND = 28, 17, 10
DENIED = "User:{} has no permission to access {} from 127.0.0.1, {}"
NONE_MATCHES, DENY = "no matched policies.", "the decision is deny."


def _user(cluster: rig.Cluster, name: str) -> Credentials:
    user = Credentials(name, f"{name}-secret")
    assert secured.create_user(cluster.broker, user).code == OK
    return user


def _topic(cluster: rig.Cluster, name: str) -> str:
    header = {
        "topic": name, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
    assert ask(cluster.broker, UPDATE_TOPIC, SUPER, header).code == OK
    return name


def _send(cluster: rig.Cluster, by: Credentials | None, topic: str) -> tuple[int, str | None]:
    header = {
        "producerGroup": "g", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 1, "queueId": 0,
        "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "properties": "", "reconsumeTimes": 0, "unitMode": "false",
        "batch": "false",
    }  # fmt: skip
    answer = ask(cluster.broker, SEND, by, header, b"x")
    return answer.code, answer.remark


def _said(answer: rig.Answer) -> tuple[int, str | None]:
    return answer.code, answer.remark


def test_who_asks(secured_cluster: rig.Cluster, name: str) -> None:
    """Before anything else, even of a code that nobody serves."""
    address = secured_cluster.broker
    user = _user(secured_cluster, name)
    for code in (RUNTIME_INFO, 9999):
        assert _said(ask(address, code, None)) == (NO_PERMISSION, "username cannot be null.")
        assert _said(ask(address, code, None, {"a": "b"})) == (NO_PERMISSION, "username cannot be null.")
        assert _said(rig.call(address, code, {"AccessKey": ""})) == (NO_PERMISSION, "username cannot be null.")
        unknown = Credentials("nobody", "x")
        assert _said(ask(address, code, unknown)) == (NO_PERMISSION, "User:nobody is not found.")
        wrong = Credentials(user.access_key, "x")
        assert _said(ask(address, code, wrong)) == (NO_PERMISSION, "check signature failed.")
        unsigned = {"AccessKey": user.access_key}
        assert _said(rig.call(address, code, unsigned)) == (NO_PERMISSION, "check signature failed.")
    for super_user in (SUPER, INNER):
        assert ask(address, RUNTIME_INFO, super_user).code == OK
    assert _said(ask(address, 9999, SUPER)) == (NOT_SUPPORTED, " request type 9999 not supported")
    assert secured.disable_user(address, user).code == OK
    for by in (user, wrong):
        assert _said(ask(address, RUNTIME_INFO, by)) == (NO_PERMISSION, f"User:{name} is disabled.")


def test_what_is_signed(secured_cluster: rig.Cluster, name: str) -> None:
    """The values in the order of their names, and the body; up to 4.9.3 without the mark of a query by id."""
    address, user, old, new = secured_cluster.broker, _user(secured_cluster, name), 399, 400

    def said(signed: dict[str, str], sent: dict[str, str], body: bytes = b"", version: int = new) -> str | None:
        text = "".join(value for _, value in sorted(signed.items(), key=lambda item: item[0].encode("utf-16-be")))
        digest = hmac.new(user.secret_key.encode(), text.encode() + body, sha1).digest()
        fields = {**sent, "Signature": b64encode(digest).decode()}
        return rig.call(address, 9999, fields, body, version=version).remark

    mine, refused = {"AccessKey": user.access_key}, "check signature failed."
    taken = " request type 9999 not supported"
    for fields in (
        {"topic": "ünï", "queueId": "1", "Bb": "2"},
        {"SecurityToken": "token", "a": ""},
        {"\uff5e": "beyond surrogates", "\U0001f600": "before"},
    ):
        assert said({**mine, **fields}, {**mine, **fields}, b"\xff\x00") == taken, fields
    assert said(mine, {**mine, "SecurityToken": "token"}) == refused
    marked = {**mine, "_UNIQUE_KEY_QUERY": "true"}
    assert said(mine, marked, version=old) == said(marked, marked) == taken
    assert said(marked, marked, version=old) == said(mine, marked) == refused


def test_what_may_be_asked_for(secured_cluster: rig.Cluster, name: str) -> None:
    """A policy for the same resource takes the place of an earlier one."""
    address, user, topic = secured_cluster.broker, _user(secured_cluster, name), _topic(secured_cluster, f"t_{name}")
    resource = f"Topic:{topic}"

    def denied(why: str) -> tuple[int, str]:
        return NO_PERMISSION, DENIED.format(name, resource, why)

    assert _send(secured_cluster, user, topic) == denied(NONE_MATCHES)
    for policy, expected in (
        (Policy([resource], ["Sub"]), denied(NONE_MATCHES)),
        (Policy([resource], ["Pub"], "Deny"), denied(DENY)),
        (Policy([resource], ["Pub"], ips=["10.0.0.0/8"]), denied(NONE_MATCHES)),
        (Policy([resource], ["Pub"], ips=["10.0.0.0/8", "127.0.0.0/24"]), (OK, None)),
        (Policy([resource], ["Pub", "Sub"]), (OK, None)),
    ):
        assert permit(address, user, policy).code == OK
        assert _send(secured_cluster, user, topic) == expected, policy
    assert secured.forbid(address, user).code == OK
    assert _send(secured_cluster, user, topic) == denied(NONE_MATCHES)
    assert _send(secured_cluster, SUPER, topic) == (OK, None)


def test_users_that_are_refused(secured_cluster: rig.Cluster, name: str) -> None:
    address, user = secured_cluster.broker, _user(secured_cluster, name)
    assert _said(secured.create_user(address, user)) == (NO_PERMISSION, "The user is existed")
    assert _said(ask(address, 3001, SUPER, {"username": ""}, b"{}")) == (INVALID, "The username is blank")
    assert _said(ask(address, 3001, SUPER, {"username": "q"}, b"{}")) == (NO_PERMISSION, "password can not be blank")
    assert _said(ask(address, 3002, SUPER, {"username": "q"}, b"{}")) == (NO_PERMISSION, "The user is not exist")
    assert ask(address, 3003, SUPER, {"username": "q"}).code == OK
    gone = ask(address, 3004, SUPER, {"username": "q"})
    assert (gone.code, gone.body) == (OK, b"")
    assert permit(address, user, Policy(["*"], ["All"])).code == OK
    as_super = b'{"password":"p","userType":"Super"}'
    refused = ask(address, 3001, user, {"username": "q"}, as_super)
    assert _said(refused) == (SYSTEM_ERROR, "The super user can only be create by super user")
    for code in (3002, 3003):
        refused = ask(address, code, user, {"username": SUPER.access_key}, b'{"password":"p"}')
        assert _said(refused) == (NO_PERMISSION, "The super user can only be update by super user")


@pytest.mark.parametrize(
    ("policy", "remark"),
    [
        (Policy(["Foo:x"], ["Pub"]), "The resource is null."),
        (Policy(["Topic:x"], ["Any"]), "The actions can not be Any."),
        (Policy(["Topic:x"], ["Fly"]), "The actions is empty."),
        (Policy(["Topic:x"], ["Pub"], "Maybe"), "The decision is null or illegal."),
        (Policy(["Topic:x"], ["Pub"], ips=["1.2.3"]), "The source ip is invalid."),
        (Policy(["Topic:x"], ["Pub"], ips=["1.2.3.4/33"]), "The source ip is invalid."),
        (Policy(["Topic:x"], ["Pub"], ips=["*"]), "The source ip is invalid."),
    ],
)  # fmt: skip
def test_policies_that_are_refused(secured_cluster: rig.Cluster, name: str, policy: Policy, remark: str) -> None:
    user = _user(secured_cluster, name)
    assert _said(permit(secured_cluster.broker, user, policy)) == (NO_PERMISSION, remark)
    assert ask(secured_cluster.broker, 3009, SUPER, {"subject": f"User:{name}"}).body == b""


def test_policies_of_nobody(secured_cluster: rig.Cluster, name: str) -> None:
    address, user = secured_cluster.broker, _user(secured_cluster, name)
    nobody = Credentials("nobody", "x")
    refused = permit(address, nobody, Policy(["Topic:x"], ["Pub"]))
    assert _said(refused) == (NO_PERMISSION, "The subject of User:nobody is not exist.")
    for subject in ("User:nobody", "nobody"):
        words = "The subject is not exist." if ":" in subject else "The subject is null."
        assert _said(ask(address, 3009, SUPER, {"subject": subject})) == (NO_PERMISSION, words)
    assert _said(secured.forbid(address, user)) == (NO_PERMISSION, "The acl is not exist.")


def test_what_is_listed(secured_cluster: rig.Cluster, name: str) -> None:
    """Filters are parts of names; a user's password is told to whoever may read users, and by ours to nobody."""
    address, user = secured_cluster.broker, _user(secured_cluster, name)
    (row,) = json.loads(ask(address, 3005, SUPER, {"filter": name}).body)
    known = {"username": name, "userType": "Normal", "userStatus": "enable"}
    if secured_cluster.name.endswith("java"):
        known["password"] = user.secret_key
    assert row == known == json.loads(ask(address, 3004, SUPER, {"username": name}).body)
    assert permit(address, user, Policy(["Topic:a", "Group:b*", "*"], ["pub", "SUB"], "deny", ["::1"])).code == OK
    assert permit(address, user, Policy(["Cluster:*"], ["All"], kind="Default")).code == OK
    entry = {"actions": ["Pub", "Sub"], "decision": "Deny", "sourceIps": ["::1"]}
    custom = [{**entry, "resource": r} for r in ("Topic:a", "Group:b*", "*")]
    default = [{"actions": ["All"], "decision": "Allow", "resource": "Cluster:*"}]
    acl = json.loads(ask(address, 3009, SUPER, {"subject": f"User:{name}"}).body)
    assert acl == {
        "subject": f"User:{name}",
        "policies": [
            {"policyType": "Custom", "entries": custom}, {"policyType": "Default", "entries": default},
        ],
    }  # fmt: skip
    filters = {"subjectFilter": name, "resourceFilter": "Group"}
    (found,) = json.loads(ask(address, 3010, SUPER, filters).body)
    assert found["policies"] == [{"policyType": "Custom", "entries": [custom[1]]}]
    gone = {"subject": f"User:{name}", "resource": "Topic:a"}
    assert ask(address, 3008, SUPER, gone).code == OK
    acl = json.loads(ask(address, 3009, SUPER, {"subject": f"User:{name}"}).body)
    assert acl["policies"][0]["entries"] == custom[1:]
    assert ask(address, 3003, SUPER, {"username": name}).code == OK
    assert _said(ask(address, 3009, SUPER, {"subject": f"User:{name}"})) == (
        NO_PERMISSION, "The subject is not exist.",
    )  # fmt: skip
