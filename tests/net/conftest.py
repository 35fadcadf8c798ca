"""Every test of the driver runs on both event loops."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from .world import DEADLINE


def loops() -> list[Any]:
    try:
        import uvloop
    except ImportError:
        return [asyncio.new_event_loop]
    return [asyncio.new_event_loop, uvloop.new_event_loop]


@pytest.fixture(params=loops(), ids=lambda factory: factory.__module__.split(".")[0])
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[None]], None]:
    def runner(main: Awaitable[None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as loop:
            loop.run(asyncio.wait_for(main, 3 * DEADLINE))

    return runner
