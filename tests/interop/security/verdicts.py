"""Who may ask what: each question by each kind of user, and what a broker makes of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import rig
import secured
from questions import Question
from secured import SUPER, Policy, ask

from perseid.client import Credentials

PLAIN, OFF = Credentials("plain", "plain-secret"), Credentials("off", "off-secret")
ACTIONS = ("Pub", "Sub", "Create", "Update", "Delete", "Get", "List")
NO_PERMISSION = 16
PASSED = "passed"
OTHER_ACTIONS = "other actions"
_SECONDS = 5.0

Asks = list[tuple[str, list[str]]]
"""Resources, each with the actions of which one is needed."""

_REFUSALS = tuple(
    (re.compile(pattern), said)
    for pattern, said in (
        (r"username cannot be null\.", "no user"),
        (r"User:\S+ is not found\.", "unknown user"),
        (r"User:\S+ is disabled\.", "disabled user"),
        (r"check signature failed\.", "wrong signature"),
        (r"User:\S+ has no permission to access (\S+) from \S+, no matched policies\.", r"no policy for \1"),
        (r"User:\S+ has no permission to access (\S+) from \S+, the decision is deny\.", r"denied \1"),
        (r"parse authorization context error\.", "can't be read"),
    )
)


def verdict(code: int, remark: str | None) -> str:
    """`PASSED`, or why authentication or authorization refused it."""
    for pattern, said in _REFUSALS if code == NO_PERMISSION else ():
        if match := pattern.fullmatch(remark or ""):
            return f"{code} {match.expand(said)}"
    return PASSED


def _put(address: str, question: Question, by: Credentials | None) -> str:
    try:
        fields: dict[str, Any] = {**question.ext}
        body = question.body.encode()
        answer = rig.call(address, question.code, by.sign(fields, body) if by else fields, body, timeout=_SECONDS)
    except TimeoutError:
        return f"{PASSED}, no answer"
    return verdict(answer.code, answer.remark)


def _policies(asks: Asks) -> Iterator[tuple[str, list[Policy]]]:
    """Kinds of users by their policies."""
    exact = {resource: Policy([resource], actions) for resource, actions in asks}
    yield "policy", [*exact.values()]
    if len(exact) > 1:
        for left_out in exact:
            yield f"all but {left_out}", [policy for resource, policy in exact.items() if resource != left_out]
    others = [(r, [a for a in ACTIONS if a not in actions]) for r, actions in asks]
    if asks and all(actions for _, actions in others):
        yield OTHER_ACTIONS, [Policy([resource], actions) for resource, actions in others]


NOT_AUTHENTICATED = {
    "nobody": "16 no user", "unknown": "16 unknown user", "disabled": "16 disabled user",
    "wrong secret": "16 wrong signature",
}  # fmt: skip
"""The same for each request, since this is looked at first."""


def by_policies(asks: Asks) -> dict[str, str]:
    """What a broker that asks for this says to users with a right secret: of the first resource that is missing."""

    def without(missing: set[str]) -> str:
        return next((f"{NO_PERMISSION} no policy for {r}" for r, _ in asks if r in missing), PASSED)

    everything = {resource for resource, _ in asks}
    expected = {"no policy": without(everything)}
    for kind, policies in _policies(asks) if asks else ():
        given = {resource for policy in policies for resource in policy.resources}
        expected[kind] = without(everything if kind == OTHER_ACTIONS else everything - given)
    return {**expected, "super": PASSED}


class Users:
    """Users by their policies, made when first asked for."""

    def __init__(self, address: str) -> None:
        self._address, self._known = address, dict[str, Credentials]()

    def with_policies(self, policies: Sequence[Policy]) -> Credentials:
        user = self._known.get(repr(policies))
        if user is None:
            user = self._known[repr(policies)] = Credentials(f"may_{len(self._known)}", "may-secret")
            secured.create_user(self._address, user)
            secured.forbid(self._address, user)
            made = secured.permit(self._address, user, *policies)
            assert made.code == 0, made
        return user


def table(address: str, asked: Sequence[tuple[Question, Asks]]) -> list[dict[str, str]]:
    """What this broker says to each question: by the kind of user who asks it."""
    for user in (PLAIN, OFF):
        secured.create_user(address, user)
        secured.forbid(address, user)
    secured.disable_user(address, OFF)
    users, found = Users(address), []
    for question, asks in asked:
        row = {
            "nobody": _put(address, question, None),
            "unknown": _put(address, question, Credentials("unknown", "x")),
            "disabled": _put(address, question, OFF),
            "wrong secret": _put(address, question, Credentials(PLAIN.access_key, "x")),
            "no policy": _put(address, question, PLAIN),
        }
        for kind, policies in _policies(asks) if asks else ():
            row[kind] = _put(address, question, users.with_policies(policies) if policies else PLAIN)
        row["super"] = _put(address, question, SUPER)
        found.append(row)
    assert ask(address, 28, SUPER).code == 0, "it is still there"
    return found
