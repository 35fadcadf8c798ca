"""ACL 1.0's accounts (`plain_acl.yml`, `acl/*.yml`) as users and policies: what they may do stays as it was.

In ACL 1.0 an account's permission for a resource is the one that is written for it, else the default one. Policies go
on to the default where the custom one says nothing of an action, so where a default permits more than what is written
for a resource, the rest is denied there, and what is written becomes a default policy of that resource.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perseid.security.policies import ALLOW, CUSTOM, DEFAULT, DENY
from perseid.security.users import NORMAL, SUPER
from perseid.wire.names import RETRY_PREFIX
from perseid.wire.users import PolicyEntryInfo, PolicyInfo

ACTIONS: Mapping[str, tuple[str, ...]] = {
    "DENY": (),
    "PUB": ("Pub",),
    "SUB": ("Sub", "Get"),
    "PUB|SUB": ("Pub", "Sub", "Get"),
    "SUB|PUB": ("Pub", "Sub", "Get"),
}
"""`Get`: ACL 1.0 asked nothing for the offsets that consumers look up."""
TOPIC, GROUP = "Topic", "Group"


@dataclass(frozen=True, slots=True)
class Account:
    """A user and its policies."""

    username: str
    secret: str = field(repr=False)
    user_type: str = NORMAL
    policies: tuple[PolicyInfo, ...] = ()


@dataclass(slots=True)
class Converted:
    """All accounts, each name once, and lines about what can't be carried over."""

    accounts: list[Account] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def convert(files: Sequence[tuple[str, object]]) -> Converted:
    """The accounts of files, each a name and what its YAML says; of an account that comes twice the first counts."""
    found = Converted()
    for name, data in files:
        if data is None:
            continue
        if not isinstance(data, Mapping):
            found.notes.append(f"{name}: it is no ACL file: left out")
            continue
        for address in _list(data, "globalWhiteRemoteAddresses"):
            found.notes.append(f"{name}: {address} needed no account; there is no such thing any more: give it a user")
        for number, row in enumerate(_list(data, "accounts"), 1):
            if isinstance(row, Mapping):
                _add(found, f"{name}: account {number}", row)
            else:
                found.notes.append(f"{name}: account {number} is no account: left out")
    return found


def _add(found: Converted, where: str, row: Mapping[object, object]) -> None:
    username, secret = _text(row.get("accessKey")), _text(row.get("secretKey"))
    if not username or not secret:
        found.notes.append(f"{where}: it needs accessKey and secretKey, as texts (in quotes): left out")
        return
    if any(username == account.username for account in found.accounts):
        found.notes.append(f"{where}: {username} was there before: left out")
        return
    if _text(row.get("whiteRemoteAddress")):
        address = _text(row.get("whiteRemoteAddress"))
        found.notes.append(f"{username}: from {address} its key was not asked for; it is now")
    if (_text(row.get("admin")) or "").lower() == "true":
        if row.get("topicPerms") or row.get("groupPerms"):
            found.notes.append(f"{username}: a Super user may do everything: topicPerms and groupPerms have no effect")
        found.accounts.append(Account(username, secret, SUPER))
        return
    found.accounts.append(Account(username, secret, NORMAL, _policies(username, row, found.notes)))


def _policies(username: str, row: Mapping[object, object], notes: list[str]) -> tuple[PolicyInfo, ...]:
    defaults = {
        kind: _actions(username, key, row.get(key), notes)
        for kind, key in ((TOPIC, "defaultTopicPerm"), (GROUP, "defaultGroupPerm"))
    }
    custom: list[PolicyEntryInfo] = []
    default: list[PolicyEntryInfo] = []
    for (kind, name), own in _written(username, row, notes).items():
        rest = [action for action in defaults[kind] if action not in own]
        if not own:
            custom.append(PolicyEntryInfo(f"{kind}:{name}", ["All"], None, DENY))
        elif rest:
            custom.append(PolicyEntryInfo(f"{kind}:{name}", rest, None, DENY))
            default.append(PolicyEntryInfo(f"{kind}:{name}", list(own), None, ALLOW))
        else:
            custom.append(PolicyEntryInfo(f"{kind}:{name}", list(own), None, ALLOW))
    default += [PolicyEntryInfo(f"{kind}:*", list(own), None, ALLOW) for kind, own in defaults.items() if own]
    return tuple(PolicyInfo(kind, rows) for kind, rows in ((CUSTOM, custom), (DEFAULT, default)) if rows)


def _written(
    username: str, row: Mapping[object, object], notes: list[str]
) -> dict[tuple[str, str], tuple[str, ...]]:
    """What is written for each resource: topics win over groups, for a group is its retry topic there."""
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for kind, key in ((GROUP, "groupPerms"), (TOPIC, "topicPerms")):
        for item in _list(row, key):
            name, equals, permission = (_text(item) or "").partition("=")
            name, permission = name.strip(), permission.strip()
            if not equals or not name or not permission or "=" in permission:
                notes.append(f"{username}: {key} {item!r} is not NAME=PERMISSION: left out")
            elif "*" in name:
                notes.append(f"{username}: {key} {item!r}: a * was no pattern, so it permitted nothing: left out")
            else:
                of_group = name.startswith(RETRY_PREFIX) and kind == TOPIC
                place = (GROUP, name.removeprefix(RETRY_PREFIX)) if of_group else (kind, name)
                found[place] = _actions(username, f"{key} {name}", permission, notes)
    return found


def _actions(username: str, what: str, permission: object, notes: list[str]) -> tuple[str, ...]:
    text = (_text(permission) or "DENY").strip()
    if text not in ACTIONS:
        notes.append(f"{username}: {what}: {text!r} is none of {', '.join(ACTIONS)}: it denied all, and does so now")
    return ACTIONS.get(text, ())


def _list(row: Mapping[object, object], key: str) -> list[object]:
    value = row.get(key)
    return list(value) if isinstance(value, list) else []


def _text(value: object) -> str | None:
    """As the original reads a scalar as a text; None for what has no text that is surely the same."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int) else None
