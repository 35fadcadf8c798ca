"""Transactions, as the kernel is told of them."""

from __future__ import annotations

from collections.abc import Callable

from perseid.base.machine import Millis
from perseid.broker.kernel.capability import Capability, Requests, Step, Timer, leading
from perseid.broker.kernel.request import Request
from perseid.broker.kernel.roles import RoleHook, Roles
from perseid.broker.scheduled.escape import Escape
from perseid.broker.transactions.service import TransactionService


def capability(
    roles: Roles, escape: Escape, service: TransactionService, requests: tuple[Requests, ...],
    answer: Callable[[Request], None],
) -> Capability:  # fmt: skip
    """`answer` does a request."""

    def tick(now: Millis) -> None:
        if not roles.is_slave or escape.on:
            service.tick(now)

    return Capability(
        name="transactions",
        requests=requests,
        hooks=(RoleHook("transactions", service.start, service.stop, sent_away=True, at_start=True),),
        timers=(Timer("transactions", tick, service.next_deadline),),
        settles=(Step("words of producers", lambda: service.do_words(answer)),),
        checks=(leading(roles, service.validate),),
    )
