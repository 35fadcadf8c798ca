"""What scenarios are played on: a cluster in which nothing happens but what they say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perseid.sim.models.ha.broker import HA_PORT
from perseid.sim.models.ha.clients import Client
from perseid.sim.models.ha.members import Replica
from perseid.sim.models.ha.run import Course
from perseid.sim.models.raft.run import both_ways
from perseid.sim.options import Options
from perseid.sim.promises import Violation
from perseid.sim.scheduler import US_PER_S

SOON_S = 40
"""Longer than any timeout of a stage."""


class Stage(Course):
    """A cluster in which nothing happens but what a scenario says."""

    def __init__(self, brokers: int = 3, **given: Any) -> None:
        given = {"timed": False, "all_ack": True, "synced": True, "beat_timeout_ms": 3_000, "strangers": False, **given}
        seed, transactions = given.pop("seed", 1), given.pop("transactions", False)
        features = given.pop("features", ())
        settings = {"brokers": brokers, **given}
        super().__init__(seed, Options(transactions=transactions, features=features, settings=settings))
        self.ha.ambushes = False
        self.begin_quietly()

    def begin_quietly(self) -> None:
        """Start all, and wait until all brokers are in sync."""
        self.ha.start()
        self.until(lambda: self.ha.serving and len(self.ha.agreed.members) == len(self.ha.replicas), "all are in sync")

    # ---- time ----

    def run(self, seconds: float) -> None:
        scheduler = self.ha.scheduler
        scheduler.run(scheduler.now_us + int(seconds * US_PER_S))

    def until(
        self, done: Callable[[], bool], what: str, seconds: float = SOON_S, promise: str = "the scenario goes on"
    ) -> float:
        """Wait for it; the seconds that it took. Violation of `promise`: it did not come to pass."""
        scheduler = self.ha.scheduler
        since = scheduler.now_us
        if not done() and not scheduler.run(since + int(seconds * US_PER_S), done):
            raise Violation(promise, f"not within {seconds} s: {what}; {self.ha.settled()}")
        return (scheduler.now_us - since) / US_PER_S

    # ---- who ----

    @property
    def master(self) -> Replica:
        master = self.ha.master
        assert master is not None, self.ha.settled()
        return master

    @property
    def slaves(self) -> list[Replica]:
        return [one for one in self.ha.replicas if one is not self.ha.master]

    @property
    def acknowledged(self) -> int:
        return self.ha.history.acknowledged

    def send(self, count: int = 10, *clients: Client) -> None:
        """Let producers send until so many more were acknowledged, and stay running."""
        for client in clients or self.producers[:1]:
            if client.name not in self._sending:
                self._sending.add(client.name)
                client.begin()
        wanted = self.acknowledged + count
        self.until(lambda: self.acknowledged >= wanted, f"{count} more are acknowledged")

    @property
    def _sending(self) -> set[str]:
        return self.__dict__.setdefault("_clients_at_work", set())

    # ---- what happens ----

    def cut(self, these: list[str], those: list[str]) -> None:
        for pair in both_ways(these, those):
            self.ha.network.block(*pair)

    def heal(self) -> None:
        for pair in sorted(self.ha.network.blocked):
            self.ha.network.heal(*pair)
        for address in sorted(self.ha.network.shut):
            self.ha.network.open_port(address)

    def reset_replication(self, replica: Replica) -> None:
        """Break the connections of those who follow this broker; both sides know at once."""
        for end in list(self.ha.network.ends.values()):
            if end.owner is replica.driver and end.address.endswith(f":{HA_PORT}"):
                self.ha.network.reset(end, "cut", 0, 0)

    def shut_replication(self, replica: Replica) -> None:
        """Nobody reaches this broker's port of replication."""
        self.ha.network.shut_port(f"{replica.driver.ip}:{HA_PORT}")

    def controllers(self) -> list[str]:
        return [one.name for one in self.ha.controllers]

    def others(self, *inside: str) -> list[str]:
        """All machines but these."""
        everybody = [one.name for one in (*self.ha.controllers, *self.ha.replicas, self.ha.names, *self.clients)]
        return [name for name in everybody if name not in inside]

    def active(self) -> Any:
        return next(one for one in self.ha.controllers if one.active)

    def elections(self) -> int:
        return self.ha.counts["applied: election"] + self.ha.counts["applied: nobody elected"]
