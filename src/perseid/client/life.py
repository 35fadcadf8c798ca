"""What all clients have in common: `async with`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


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
