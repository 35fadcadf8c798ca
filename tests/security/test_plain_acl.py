"""ACL 1.0's accounts as policies: each decision stays what it was."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from perseid.security.plain_acl import Account, convert
from perseid.security.policies import Acl, Action, Asked, ResourceType
from perseid.wire.users import AclInfo

FILES = sorted((Path(__file__).parent / "plain_acl").glob("*.yml"))
ASKED = {"Topic": (Action.PUB, Action.SUB), "Group": (Action.PUB, Action.SUB)}


def decides(account: Account, kind: str, name: str, action: Action) -> bool:
    """As a broker decides now."""
    if account.user_type == "Super":
        return True
    if not account.policies:
        return False
    acl = Acl.of(AclInfo(f"User:{account.username}", list(account.policies)))
    entry = acl.decisive(Asked(ResourceType(kind), name, (action,)), None)
    return entry is not None and entry.allows


def decided(row: dict[str, Any], kind: str, name: str, action: Action) -> bool:
    """As ACL 1.0 did: what is written for the resource, else the default; what it did not know denied."""
    if row.get("admin"):
        return True
    key = kind.lower()
    permission = row.get(f"default{kind}Perm")
    for item in row.get(f"{key}Perms") or ():
        if item.split("=")[0].strip() == name:
            permission = item.split("=")[1].strip()
    known = {"PUB", "SUB", "PUB|SUB", "SUB|PUB"}
    return permission in known and action.value.upper() in permission.split("|")


def test_there_are_real_files() -> None:
    assert len(FILES) >= 8


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_real_files_decide_as_before(file: Path) -> None:
    data = yaml.safe_load(file.read_text())
    rows = [row for row in data.get("accounts") or () if row.get("accessKey") and row.get("secretKey")]
    found = {account.username: account for account in convert([(file.name, data)]).accounts}
    assert set(found) == {str(row["accessKey"]) for row in rows}
    done = set()
    for row in rows:
        if str(row["accessKey"]) in done:
            continue
        done.add(str(row["accessKey"]))
        account = found[str(row["accessKey"])]
        assert account.secret == str(row["secretKey"]) and account.secret not in repr(account)
        for kind, actions in ASKED.items():
            names = [item.split("=")[0].strip() for item in row.get(f"{kind.lower()}Perms") or ()]
            for name in [*names, "not_written"]:
                for action in actions:
                    assert decides(account, kind, name, action) == decided(row, kind, name, action), (name, action)


@pytest.mark.parametrize("default", [None, "DENY", "PUB", "SUB", "PUB|SUB", "SUB|PUB", "pub"])
@pytest.mark.parametrize("own", ["DENY", "PUB", "SUB", "PUB|SUB", "ANY"])
def test_each_default_with_each_permission(default: str | None, own: str) -> None:
    """A default that permits more than what is written does not widen it, as it would on the original's own import."""
    row = {
        "accessKey": "a", "secretKey": "s", "defaultTopicPerm": default, "defaultGroupPerm": default,
        "topicPerms": [f"t={own}"], "groupPerms": [f" g = {own} "],
    }  # fmt: skip
    (account,) = convert([("f", {"accounts": [row]})]).accounts
    for kind, name in (("Topic", "t"), ("Group", "g"), ("Topic", "other"), ("Group", "other")):
        for action in (Action.PUB, Action.SUB):
            assert decides(account, kind, name, action) == decided(row, kind, name, action)


def test_consumers_may_look_up_offsets() -> None:
    row = {"accessKey": "a", "secretKey": 12345678, "topicPerms": ["t=SUB", "%RETRY%g=SUB"]}
    (account,) = convert([("f", {"accounts": [row]})]).accounts
    assert account.secret == "12345678"
    assert decides(account, "Topic", "t", Action.GET) and decides(account, "Group", "g", Action.SUB)
    assert not decides(account, "Topic", "t", Action.PUB) and not decides(account, "Topic", "t", Action.DELETE)


def test_what_can_not_be_said_is_told() -> None:
    data = {
        "globalWhiteRemoteAddresses": ["10.10.*.*"],
        "accounts": [
            {
                "accessKey": "a",
                "secretKey": "hidden-1",
                "whiteRemoteAddress": "192.168.1.*",
                "topicPerms": ["t*=PUB", "x"],
            },
            {"accessKey": "a", "secretKey": "hidden-2"},
            {"accessKey": "b"},
            {"accessKey": "c", "secretKey": 1.5},
            {"accessKey": "d", "secretKey": "hidden-3", "admin": True, "topicPerms": ["t=SUB"]},
            {"accessKey": "e", "secretKey": "hidden-4", "defaultTopicPerm": "ANY"},
            "nonsense",
        ],
    }
    found = convert([("f.yml", data), ("g.yml", ["no"]), ("h.yml", None)])
    assert [account.username for account in found.accounts] == ["a", "d", "e"]
    told = "\n".join(found.notes)
    for part in (
        "10.10.*.* needed no account", "a: from 192.168.1.*", "'t*=PUB': a * was no pattern",
        "'x' is not NAME=PERMISSION", "account 2: a was there before", "account 3: it needs", "account 4: it needs",
        "d: a Super user may do everything",
        "'ANY' is none of", "account 7 is no account", "g.yml: it is no ACL file",
    ):  # fmt: skip
        assert part in told, part
    assert len(found.notes) == 11 and "hidden" not in told
    assert not decides(found.accounts[0], "Topic", "tx", Action.PUB)
