"""Which policy decides: cases of which the original's own class said what it decides, and drawn ones."""

from __future__ import annotations

import json
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.base.errors import RequestRefused
from perseid.security.policies import (
    DENIED,
    NO_POLICY,
    Acl,
    Action,
    Asked,
    Entry,
    Pattern,
    Resources,
    ResourceType,
    address_of,
)
from perseid.wire.users import AclInfo, PolicyEntryInfo, PolicyInfo

RECORDED = Path(__file__).parents[1] / "interop/security/recorded/policies.json"
CASES: list[dict[str, Any]] = json.loads(RECORDED.read_text())["cases"]
OTHER_FAMILY = "a range holds only addresses of its own family"
STAR = "a star within a name is a letter like others: only those at its end stand for more"
SAME_ADDRESS = "an address is the same however it is written"
DIFFERENT = {
    "a prefix ends at its first star": STAR,
    "all of IPv4 is not IPv6": OTHER_FAMILY,
    "all of IPv6 is not IPv4": OTHER_FAMILY,
    "a range of IPv4 has the number of an address of IPv6": OTHER_FAMILY,
    "IPv6, written in full": SAME_ADDRESS,
    "IPv6, given in full": SAME_ADDRESS,
}
"""Cases in which we decide otherwise, on purpose (docs/divergence.md)."""


def decided(case: dict[str, Any]) -> str:
    wanted = case["request"]
    info = AclInfo.from_json(json.dumps(case["acl"]).encode())
    actions = tuple(Action) if "Any" in wanted["actions"] else tuple(map(Action, wanted["actions"]))
    asked = Asked(ResourceType(wanted["type"]), wanted["name"], actions)
    return Acl.of(info).refusal(asked, ip_address(wanted["ip"])) if info.policies else NO_POLICY


def test_it_decides_as_the_original_but_where_that_is_said() -> None:
    assert len(CASES) > 200
    otherwise = {case["about"]: (decided(case), case["refused"]) for case in CASES if decided(case) != case["refused"]}
    drawn = {about for about in otherwise if about.startswith("drawn ")}
    assert otherwise.keys() - drawn == DIFFERENT.keys()
    by_name = {case["about"]: case for case in CASES}
    for about in drawn:  # these differ by the families of addresses alone
        assert ":" in by_name[about]["request"]["ip"], (about, otherwise[about])


def entry(resource: str, *actions: str, decision: str = "Allow", ips: tuple[str, ...] = ()) -> PolicyEntryInfo:
    return PolicyEntryInfo(resource, [*actions], [*ips], decision)


def acl(*entries: PolicyEntryInfo, kind: str | None = None) -> Acl:
    return Acl.of(AclInfo("User:u", [PolicyInfo(kind, [*entries])]))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (entry("Topic:a"), "The actions is empty."),
        (entry("Topic:a", "Nonsense"), "The actions is empty."),
        (entry("Topic:a", "Any"), "The actions can not be Any."),
        (entry("Nonsense:a", "Pub"), "The resource is null."),
        (entry("", "Pub"), "The resource is null."),
        (entry("Topic:" + 600 * "a", "Pub"), "The resource is null."),
        (entry("Topic:a", "Pub", ips=("300.1.1.1",)), "The source ip is invalid."),
        (entry("Topic:a", "Pub", ips=("",)), "The source ip is empty."),
        (entry("Topic:a", "Pub", ips=("10.0.0.1",) * 101), "The entry has 101 source ips, 100 are the most."),
        (entry("Topic:a", "Pub", decision="Perhaps"), "The decision is null or illegal."),
    ],
)
def test_a_policy_with_a_broken_part_is_refused(wrong: PolicyEntryInfo, why: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        acl(wrong)
    assert (refused.value.code, refused.value.remark) == (16, why)


def test_what_a_user_may_have_is_bounded() -> None:
    with pytest.raises(RequestRefused, match="1000 entries"):
        acl(*(entry(f"Topic:t{i}", "Pub") for i in range(1_001)))


def test_entries_for_the_same_resources_take_the_old_ones_place() -> None:
    before = acl(entry("Topic:a", "Pub"), entry("Topic:b", "Pub"))
    after = before.merged(acl(entry("Topic:a", "Sub", decision="Deny")))
    assert [e.resource for e in after.told("u").policies[0].entries] == ["Topic:a", "Topic:b"]
    asked = [Asked(ResourceType.TOPIC, "a", (action,)) for action in (Action.PUB, Action.SUB)]
    assert [after.refusal(one, None) for one in asked] == [NO_POLICY, DENIED]
    assert before.refusal(asked[0], None) == "", "the one before is as it was"


def test_of_one_request_that_says_both_the_refusal_holds() -> None:
    both = acl(entry("Topic:a", "Pub", decision="Deny"), entry("Topic:a", "Pub"))
    assert both.refusal(Asked(ResourceType.TOPIC, "a", (Action.PUB,)), None) == DENIED


def test_without_an_address_no_entry_with_sources_matches() -> None:
    mine = acl(entry("Topic:a", "Pub", ips=("0.0.0.0/0",)))
    assert mine.refusal(Asked(ResourceType.TOPIC, "a", (Action.PUB,)), None) == NO_POLICY


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("10.1.2.3:5000", "10.1.2.3"),
        ("[::1]:5000", "::1"),
        ("[fe80::1%eth0]:5000", "fe80::1"),
        ("[::ffff:10.1.2.3]:5000", "10.1.2.3"),
    ],
)
def test_addresses_of_peers(peer: str, address: str) -> None:
    assert address_of(peer) == ip_address(address)
    assert address_of("somewhere:1") is None


names = st.text(alphabet="ab*", max_size=4)
kinds = st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP])
resources = st.builds(lambda kind, name: f"{kind.value}:{name}", kinds, names) | st.just("*")
entries = st.builds(
    lambda r, actions, allow: entry(r, *actions, decision="Allow" if allow else "Deny"),
    resources,
    st.lists(st.sampled_from(["Pub", "Sub", "All"]), min_size=1, max_size=2),
    st.booleans(),
)


def naive(found: list[Entry], asked: Asked) -> str:
    """Whoever is most exact decides; of equals, who denies."""
    best: list[Entry] = []
    for one in (e for e in found if e.matches(asked, None)):
        if not best or one.resources.rank < best[0].resources.rank:
            best = [one]
        elif one.resources.rank == best[0].resources.rank:
            best.append(one)
    if not best:
        return NO_POLICY
    return "" if all(one.allows for one in best) else DENIED


@given(st.lists(entries, min_size=1, max_size=8), kinds, st.text(alphabet="ab", max_size=4))
def test_the_most_exact_decides(given_entries: list[PolicyEntryInfo], kind: ResourceType, name: str) -> None:
    mine = acl(*given_entries)
    asked = Asked(kind, name, (Action.PUB,))
    found = [e for of in mine.entries["Custom"].values() for e in of]
    assert mine.refusal(asked, None) == naive(found, asked)


@given(resources)
def test_resources_are_told_as_they_are_read(text: str) -> None:
    found = Resources.of(text)
    assert found is not None and Resources.of(found.key) == found
    assert (found.pattern is Pattern.LITERAL) == (not text.endswith("*"))
