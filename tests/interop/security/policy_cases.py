"""Policies and what somebody asks for: cases made by hand, each for one rule, and drawn ones.

`python tests/interop/security/record.py policies` asks the original's own class (`AclAuthorizationHandler`) about each,
and writes `recorded/policies.json`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

SEED, DRAWN = 222_005, 200
HERE = "127.0.0.1"
NAMES = ("a", "a", "ab", "ab", "abc", "abc", "orders-eu", "Ab")
RESOURCES = (
    "*", "Topic:*", "Topic:a", "Topic:a*", "Topic:ab", "Topic:ab*", "Topic:abc", "Topic:abc*", "Topic:orders*",
    "Topic:ord*", "Topic:Ab*",
    "Group:*", "Group:a", "Group:a*", "Group:ab*", "Cluster:*", "Cluster:a", "Topic", "Topic:a*c", "Any:*",
)  # fmt: skip
GIVEN = ("All", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List")
WANTED = (*GIVEN[1:], "Any")
ADDRESSES = (HERE, "10.1.2.3", "192.168.0.9", "::1", "fe80::1:2")
RANGES = (
    HERE,
    "127.0.0.0/8",
    "10.0.0.0/8",
    "10.1.2.3/32",
    "192.168.0.0/24",
    "192.168.0.8/31",
    "::1",
    "fe80::/10",
    "0.0.0.0/0",
)

Case = dict[str, Any]


def entry(resource: str, *actions: str, decision: str = "Allow", ips: Sequence[str] = ()) -> dict[str, Any]:
    made: dict[str, Any] = {"resource": resource, "actions": [*actions], "decision": decision}
    return {**made, "sourceIps": [*ips]} if ips else made


def case(
    about: str, /, custom: Sequence[dict[str, Any]], default: Sequence[dict[str, Any]] = (), **request: Any
) -> Case:
    wanted = {"type": "Topic", "name": "ab", "actions": ["Pub"], "ip": HERE, **request}
    policies = [
        {"policyType": kind, "entries": [*entries]}
        for kind, entries in (("Custom", custom), ("Default", default))
        if entries
    ]
    return {"about": about, "acl": {"subject": "User:u", "policies": policies}, "request": wanted}


def deny(resource: str, *actions: str, ips: Sequence[str] = ()) -> dict[str, Any]:
    return entry(resource, *(actions or ("Pub",)), decision="Deny", ips=ips)


def allow(resource: str, *actions: str, ips: Sequence[str] = ()) -> dict[str, Any]:
    return entry(resource, *(actions or ("Pub",)), ips=ips)


def by_hand() -> Iterator[Case]:
    """Each is about one rule, which its name says."""
    yield case("no policy at all", [])
    yield case("allowed", [allow("Topic:ab")])
    yield case("denied", [deny("Topic:ab")])
    yield case("another action", [allow("Topic:ab", "Sub")])
    yield case("All is each action", [allow("Topic:ab", "All")], actions=["Delete"])
    yield case("one of several actions is enough", [allow("Topic:ab", "Sub")], actions=["Pub", "Sub", "Get"])
    yield case(
        "a denied one of several actions denies", [deny("Topic:ab", "Get"), allow("Topic:a*")], actions=["Pub", "Get"]
    )
    yield case("Any is asked for", [allow("Topic:ab", "Get")], actions=["Any"])
    yield case("Any is asked for, without a policy", [allow("Topic:x", "Get")], actions=["Any"])
    yield case("names are literal", [allow("Topic:AB")])
    yield case("another type", [allow("Group:ab")])
    yield case("prefix", [allow("Topic:a*")])
    yield case("a prefix is itself", [allow("Topic:ab*")])
    yield case("a prefix that is longer", [allow("Topic:abc*")])
    yield case("a star in the middle is a letter", [allow("Topic:a*b")], name="axb")
    yield case("a star in the middle, literally", [allow("Topic:a*b")], name="a*b")
    yield case("two stars at the end", [allow("Topic:a**")], name="ab")
    yield case("a prefix ends at its first star", [allow("Topic:a*c*")])
    yield case("all topics", [allow("Topic:*")])
    yield case("everything", [allow("*")])
    yield case("a type without a name is the empty name", [allow("Topic")])
    yield case("literal allowed before prefix denied", [deny("Topic:a*"), allow("Topic:ab")])
    yield case("literal denied before prefix allowed", [allow("Topic:a*"), deny("Topic:ab")])
    yield case("longest prefix allowed", [deny("Topic:a*"), allow("Topic:ab*")])
    yield case("longest prefix denied", [allow("Topic:a*"), deny("Topic:ab*")])
    yield case("longest prefix, given last first", [deny("Topic:ab*"), allow("Topic:a*")])
    yield case("prefix allowed before all topics denied", [deny("Topic:*"), allow("Topic:a*")])
    yield case("prefix denied before all topics allowed", [allow("Topic:*"), deny("Topic:a*")])
    yield case("literal denied before all topics allowed", [allow("Topic:*"), deny("Topic:ab")])
    yield case("literal allowed before all topics denied", [deny("Topic:*"), allow("Topic:ab")])
    yield case("all topics denied before everything allowed", [allow("*"), deny("Topic:*")])
    yield case("all topics allowed before everything denied", [deny("*"), allow("Topic:*")])
    yield case("three ranks, literal denied", [allow("*"), allow("Topic:a*"), deny("Topic:ab")])
    yield case("three ranks, literal allowed", [deny("*"), deny("Topic:a*"), allow("Topic:ab")])
    for first, second in ((allow, deny), (deny, allow)):
        for resource in ("Topic:ab", "Topic:a*", "Topic:*", "*"):
            order = f"{first.__name__} then {second.__name__}"
            yield case(f"equally exact, {resource}: {order}", [first(resource), second(resource)])
        yield case(f"equally exact, another action: {order}", [first("Topic:ab"), second("Topic:ab", "Sub")])
        yield case(
            f"equally exact, both actions: {order}",
            [first("Topic:ab"), second("Topic:ab", "Sub")], actions=["Pub", "Sub"],
        )  # fmt: skip
        addresses = [first("Topic:ab", ips=[HERE]), second("Topic:ab", ips=["127.0.0.0/8"])]
        yield case(f"a range is as exact as an address: {order}", addresses)
    yield case("custom denied before default allowed", [deny("Topic:a*")], [allow("Topic:ab")])
    yield case("custom allowed before default denied", [allow("*")], [deny("Topic:ab")])
    yield case("default where no custom one matches", [deny("Topic:x")], [allow("Topic:ab")])
    yield case("default alone", [], [allow("Topic:ab")])
    yield case(
        "default where custom is for another address", [deny("Topic:ab", ips=["10.0.0.0/8"])], [allow("Topic:ab")]
    )
    yield case("default where custom is for another action", [deny("Topic:ab", "Sub")], [allow("Topic:ab")])
    yield case("from elsewhere", [allow("Topic:ab", ips=["10.0.0.1"])])
    yield case("one of several addresses", [allow("Topic:ab", ips=["10.0.0.1", HERE])])
    yield case("a range", [allow("Topic:ab", ips=["10.0.0.0/8"])], ip="10.255.0.1")
    yield case("the last of a range", [allow("Topic:ab", ips=["10.0.0.0/30"])], ip="10.0.0.3")
    yield case("behind a range", [allow("Topic:ab", ips=["10.0.0.0/30"])], ip="10.0.0.4")
    yield case("a range that begins in its middle", [allow("Topic:ab", ips=["10.0.0.2/30"])], ip="10.0.0.1")
    yield case("all of IPv4", [allow("Topic:ab", ips=["0.0.0.0/0"])])
    yield case("all of IPv4 is not IPv6", [allow("Topic:ab", ips=["0.0.0.0/0"])], ip="::1")
    yield case("all of IPv6", [allow("Topic:ab", ips=["::/0"])], ip="::1")
    yield case("IPv6", [allow("Topic:ab", ips=["::1"])], ip="::1")
    yield case("IPv6, written in full", [allow("Topic:ab", ips=["::1"])], ip="0:0:0:0:0:0:0:1")
    yield case("a range of IPv6", [allow("Topic:ab", ips=["fe80::/10"])], ip="fe80::1")
    yield case("IPv4 in IPv6", [allow("Topic:ab", ips=[HERE])], ip="::ffff:127.0.0.1")
    yield case(
        "IPv6, as Java tells a client's address", [allow("Topic:ab", ips=["0:0:0:0:0:0:0:1"])], ip="0:0:0:0:0:0:0:1"
    )
    yield case("IPv6, given in full", [allow("Topic:ab", ips=["0:0:0:0:0:0:0:1"])], ip="::1")
    yield case("all of IPv6 is not IPv4", [allow("Topic:ab", ips=["::/0"])])
    yield case(
        "a range of IPv4 has the number of an address of IPv6", [allow("Topic:ab", ips=["10.0.0.0/8"])], ip="::a01:203"
    )
    yield case("denied from one address", [allow("Topic:a*"), deny("Topic:ab", ips=["10.0.0.1"])])
    yield case("retry topics are other names", [allow("Topic:ab")], name="%RETRY%ab")
    yield case("a cluster", [allow("Cluster:*", "Get")], type="Cluster", name="c", actions=["Get"])
    yield case("everything is clusters too", [allow("*", "All")], type="Cluster", name="c", actions=["Get"])
    yield case("a name with a colon", [allow("Topic:a:b")], name="a:b")
    yield case("forty that deny, and one that allows", [*(deny("Topic:ab") for _ in range(40)), allow("Topic:ab")])


def drawn(seed: int = SEED, count: int = DRAWN) -> Iterator[Case]:
    """Few names, so that most policies overlap."""
    random = Random(seed)

    def one() -> dict[str, Any]:
        actions = random.sample(GIVEN, random.choice((2, 3, 5)))
        ips = random.sample(RANGES, random.choice((1, 2))) if random.random() < 0.2 else ()
        decision = "Allow" if random.random() < 0.6 else "Deny"
        return entry(random.choice(RESOURCES), *actions, decision=decision, ips=ips)

    for number in range(count):
        custom = [one() for _ in range(random.choice((0, 2, 3, 5, 8, 12)))]
        default = [one() for _ in range(random.choice((0, 0, 2, 5)))]
        yield case(
            f"drawn {number}", custom, default,
            type=random.choice(("Topic", "Topic", "Topic", "Topic", "Group", "Cluster")), name=random.choice(NAMES),
            actions=random.sample(WANTED, random.choice((1, 1, 1, 2, 3))), ip=random.choice(ADDRESSES),
        )  # fmt: skip


def cases() -> list[Case]:
    return [*by_hand(), *drawn()]
