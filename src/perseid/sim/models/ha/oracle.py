"""What the controllers of a set have agreed on, read from their committed entries by a second reading of the rules.

It shares nothing with `perseid.controller`: an event is two bytes and JSON (controller.md §5), its effect is §4.6.

C1  an epoch has one master                       C6  who is elected was in sync, unless that is allowed
C2  epochs only rise                              C7  an id belongs to one check code, until it is cleaned
C3  the master is in sync                         C8  only it acknowledges
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from perseid.sim.promises import Violation
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command

ALTER, APPLY_ID, ELECT, CLEAN, UPDATE_ADDRESS = 1, 2, 3, 5, 6
ADOPTED = (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST)
"""Answers to 1002 whose master a broker takes."""


@dataclass(slots=True)
class BrokerSet:
    """One broker set, and what it was at each epoch."""

    ids: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Id → address, check code."""
    next_id: int = 1
    master: int | None = None
    master_epoch: int = 0
    members: frozenset[int] = frozenset()
    set_epoch: int = 0
    masters: dict[int, int | None] = field(default_factory=dict)
    """Master's epoch → who was elected for it."""
    sets: dict[int, frozenset[int]] = field(default_factory=lambda: {0: frozenset()})
    """The set's epoch → who was in sync."""
    unclean_at: int = 0
    """The epoch of the last master who was not in sync before; 0: there was none."""
    cleaned: bool = False
    """An operator has taken somebody out: the next election may be of anybody (C6)."""

    def state(self) -> tuple[Any, ...]:
        """All that every controller has to have."""
        ids = tuple((number, *self.ids[number]) for number in sorted(self.ids))
        return ids, self.next_id, self.master, self.master_epoch, tuple(sorted(self.members)), self.set_epoch


class Oracle:
    """The agreed state. `states[i]`: what each controller has when it has applied the entries up to i."""

    def __init__(self, unclean: bool, count: Callable[[str], None]) -> None:
        self.unclean = unclean
        self.count = count
        self.is_learner: Callable[[int], bool] = lambda number: False
        """Is this a broker that may not come in sync?"""
        self.sets: dict[str, BrokerSet] = {}
        self.states: list[tuple[Any, ...]] = []
        self._acknowledging: dict[tuple[str, int], str] = {}
        """Set and epoch → which broker acknowledges in it."""

    def of(self, name: str) -> BrokerSet:
        """A broker set; an empty one when nobody knows it."""
        return self.sets.get(name) or BrokerSet()

    def apply(self, body: bytes) -> None:
        """The next entry is committed."""
        if body:
            self._event(int.from_bytes(body[:2], "big"), json.loads(body[2:]))
        self.states.append(tuple((name, *self.sets[name].state()) for name in sorted(self.sets)))

    def _event(self, kind: int, event: dict[str, Any]) -> None:
        name = event["brokerName"]
        known = self.sets.get(name)
        if kind == APPLY_ID:
            self._apply_id(known or self.sets.setdefault(name, BrokerSet()), event)
        elif known is None:
            return
        elif kind == ALTER:
            self._alter(known, frozenset(event["newSyncStateSet"]))
        elif kind == ELECT:
            self._elect(known, event.get("newMasterBrokerId") if event["newMasterElected"] else None)
        elif kind == CLEAN:
            self._clean(name, known, event.get("brokerIdSetToClean"))
        elif kind == UPDATE_ADDRESS and event["brokerId"] in known.ids:
            known.ids[event["brokerId"]] = event["brokerAddress"], known.ids[event["brokerId"]][1]
            self.count("applied: new address")

    def _apply_id(self, known: BrokerSet, event: dict[str, Any]) -> None:
        if event["newBrokerId"] not in known.ids:
            known.ids[event["newBrokerId"]] = event["brokerAddress"], event["registerCheckCode"]
            known.next_id += 1
            self.count("applied: broker id")

    def _alter(self, known: BrokerSet, members: frozenset[int]) -> None:
        if known.master is not None and known.master not in members:
            raise Violation("C3", f"{sorted(members)} are in sync, and master {known.master} is not")
        if not members <= known.ids.keys():
            raise Violation("C7", f"{sorted(members)} are in sync; registered are {sorted(known.ids)}")
        for one in sorted(members - known.members):
            if self.is_learner(one):
                raise Violation("learners stay out", f"{one} is in sync: {sorted(members)}")
        self.count("applied: shrink" if members < known.members else "applied: expand")
        self._put(known, members)

    def _put(self, known: BrokerSet, members: frozenset[int]) -> None:
        known.members = members
        known.set_epoch += 1
        known.sets[known.set_epoch] = members

    def _elect(self, known: BrokerSet, master: int | None) -> None:
        known.master_epoch += 1
        known.masters[known.master_epoch] = known.master = master
        if master is None:
            self.count("applied: nobody elected")
            return
        first = known.master_epoch == 1
        if not first and master not in known.members:
            if not self.unclean and not known.cleaned:
                raise Violation("C6", f"{master} is elected for {known.master_epoch}, in sync: {sorted(known.members)}")
            if self.unclean:
                known.unclean_at = known.master_epoch
                self.count("applied: unclean election")
        known.cleaned = False
        self.count("applied: first election" if first else "applied: election")
        self._put(known, frozenset((master,)))

    def _clean(self, name: str, known: BrokerSet, ids: list[int] | None) -> None:
        self.count("applied: cleaned")
        if not ids:
            del self.sets[name]
            return
        known.cleaned = True
        for one in ids:
            known.ids.pop(one, None)
        known.members -= frozenset(ids)
        if not known.ids or not known.members:
            raise Violation("an operator leaves somebody", f"{sorted(known.ids)}, in sync {sorted(known.members)}")

    # ---- what brokers are told ----

    def check(self, request: Command, answer: Command) -> None:
        """R9: an answer says what was agreed, nothing that may still be lost."""
        fields, code = answer.ext, answer.code
        name = request.ext.get("brokerName", "")
        known = self.sets.get(name)
        if request.code == RequestCode.CONTROLLER_APPLY_BROKER_ID and code == ResponseCode.SUCCESS:
            number, check = int(request.ext["appliedBrokerId"]), request.ext["registerCheckCode"]
            if known is None or known.ids.get(number, ("", ""))[1] != check:
                raise Violation("C7", f"{name} {number} was given to {check}; agreed: {known and known.ids}")
        elif request.code == RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET and code == ResponseCode.SUCCESS:
            said = json.loads(bytes(answer.body))
            if known is None or known.sets.get(said["syncStateSetEpoch"]) != frozenset(said["syncStateSet"]):
                raise Violation("R9", f"{name}: {said} was acknowledged, agreed: {known and known.sets}")
        elif code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
            number = int(request.ext.get("brokerId", "0"))
            if known is not None and number in known.ids:
                raise Violation("C7", f"{name} {number} is called unknown, agreed: {sorted(known.ids)}")
        elif fields.get("masterBrokerId") and (request.code != RequestCode.CONTROLLER_ELECT_MASTER or code in ADOPTED):
            self.master_is(name, int(fields["masterEpoch"]), int(fields["masterBrokerId"]))

    def acknowledges(self, name: str, epoch: int, broker_id: int, broker: str) -> None:
        """C8: one broker acknowledges in one epoch, and is its master."""
        before = self._acknowledging.setdefault((name, epoch), broker)
        if before != broker:
            raise Violation("C8", f"{before} and {broker} acknowledge in epoch {epoch}")
        self.master_is(name, epoch, broker_id)

    def master_is(self, name: str, epoch: int, master: int) -> None:
        """C1: somebody says who the master of an epoch is."""
        known = self.of(name)
        if epoch not in known.masters or known.masters[epoch] != master:
            raise Violation("C1", f"{name}: {master} is called master of {epoch}, agreed: {known.masters.get(epoch)}")
