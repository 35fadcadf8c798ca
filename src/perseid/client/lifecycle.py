"""The lifecycle of clients: `start`, `stop`, `async with`; and how functions of the user's are called."""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import copy_context
from types import TracebackType
from typing import Any, Self


class Client(ABC):
    """Started by `async with`, or by hand; stopped the same way."""

    @abstractmethod
    async def start(self) -> None:
        """Get ready. A second call does nothing."""

    @abstractmethod
    async def stop(self) -> None:
        """Finish, and close the connections. A second call does nothing."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling a function of the user's gives something to await: an `async def`, or an object whose call is."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
    )


async def call(function: Callable[[Any], Any], given: object, threads: Executor | None) -> Any:
    """The result of a function of the user's: called in a thread, or here where there are none (`is_async`); in the
    caller's context variables either way."""
    if threads is not None:
        result = await asyncio.get_running_loop().run_in_executor(threads, copy_context().run, function, given)
    else:
        result = function(given)
    return await result if inspect.isawaitable(result) else result
