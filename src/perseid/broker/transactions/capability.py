"""Transactions, as the kernel is told of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from perseid.broker.kernel.capability import Capability, Requests, Step, Timer, leading
from perseid.broker.kernel.request import Request
from perseid.broker.kernel.roles import RoleHook, Roles
from perseid.broker.scheduled.escape import Escape, leading_or_escaping
from perseid.broker.transactions.service import TransactionService


def capability(
    roles: Roles, escape: Escape, service: TransactionService, requests: tuple[Requests, ...],
    answer: Callable[[Request], None],
) -> Capability:  # fmt: skip
    """`answer` does a request."""
    return Capability(
        name="transactions",
        requests=requests,
        hooks=(RoleHook("transactions", service.start, service.stop, sent_away=True, at_start=True),),
        timers=(Timer("transactions", leading_or_escaping(roles, escape, service.tick), service.next_deadline),),
        settles=(Step("decisions of producers", partial(service.carry_out, answer)),),
        checks=(leading(roles, service.validate),),
    )
