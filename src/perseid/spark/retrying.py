"""Borne for a while: brokers that are away, restarted, or changing masters."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from perseid.client.errors import ClientError, ConnectFailed, ConnectionLost, NoRoute, RequestTimeout, ServerRefused
from perseid.client.producer import RETRY_CODES

log = logging.getLogger("perseid.spark")

PAUSE_FIRST_MS = 50
PAUSE_MAX_MS = 1000
NO_ROUTE_MS = 5000
"""A topic that no name server knows is asked for this long only: most often it is not there. (When its only broker
is away, the name servers forget the topic too.)"""
T = TypeVar("T")


def transient(error: ClientError) -> bool:
    """Whether the same request may go well later."""
    if isinstance(error, ServerRefused):
        return error.code in RETRY_CODES
    return isinstance(error, ConnectFailed | ConnectionLost | RequestTimeout | NoRoute) or type(error) is ClientError


async def until(
    deadline_ms: int, what: str, ask: Callable[[], Awaitable[T]], between: Callable[[], Awaitable[None]]
) -> T:
    """The result of `ask`, tried again after transient errors until the deadline; then the last error is raised."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    pause_ms = PAUSE_FIRST_MS
    while True:
        try:
            return await ask()
        except ClientError as error:
            patience_ms = min(deadline_ms, NO_ROUTE_MS) if isinstance(error, NoRoute) else deadline_ms
            if not transient(error) or (loop.time() - began) * 1000 + pause_ms >= patience_ms:
                raise
            log.info("%s: tried again in %d ms: %s", what, pause_ms, error)
        await asyncio.sleep(pause_ms / 1000)
        pause_ms = min(pause_ms * 2, PAUSE_MAX_MS)
        await between()
