"""What drawn histories of a store share: one node, what it was asked to make durable, and what it has promised."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import MutableMapping, Sized
from random import Random
from typing import Generic, TypeVar

from .harness import Node

Queue = tuple[str, int]
S = TypeVar("S", bound=Sized)


class Promises(ABC, Generic[S]):
    """One node, and a model of what it must still have: of each queue what was sent, and how much of it is durable."""

    at_once = 6
    """Fewer effects than that are carried out at a time."""

    def __init__(self, random: Random, node: Node, sent: MutableMapping[Queue, S]) -> None:
        self.random, self.node, self.sent = random, node, sent
        self.promised: dict[Queue, int] = dict.fromkeys(sent, 0)
        self.flushes: dict[int, dict[Queue, int]] = {}
        self.number = 0

    def flush(self) -> None:
        self.number += 1
        self.flushes[self.number] = {queue: len(sent) for queue, sent in self.sent.items()}
        self.node.flush(self.number)

    def carry_out(self) -> None:
        for _ in range(self.random.randrange(self.at_once)):
            self.node.step()
        for number in self.node.events:
            assert isinstance(number, int)
            self.promised.update(self.flushes.pop(number))
        self.node.events.clear()

    def tick(self) -> None:
        self.pass_ms(self.random.randrange(900))
        self.node.effects.extend(self.node.store.tick(self.node.now))
        self.node.store.validate()

    def pass_ms(self, ms: int) -> None:
        self.node.now += ms

    def cut_power(self) -> None:
        self.node.cut_power()
        self.node.load()
        self.after(self.promised)

    @abstractmethod
    def after(self, least: dict[Queue, int]) -> None:
        """After a start: so much of each queue is there at least, and nothing but what was sent."""
