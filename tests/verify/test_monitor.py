"""Which answers of controllers and brokers become phases of an outage."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest
from tests.client.fake import BROKER, run

from perseid.client import Session
from perseid.client.admin import BrokerEpochs
from perseid.client.controller import ControllerClient, ReplicaSet
from perseid.verify import Outage, OutageMonitor
from perseid.verify.monitor import _BrokerSet
from perseid.verify.outage import FIRST_ACK
from perseid.wire.bodies import MASTER_ID


class Slow:
    """Controllers and a broker that answer once they are let; the new master is broker 2, in epoch 2."""

    active = "c"

    def __init__(self) -> None:
        self.asked, self.told = asyncio.Event(), asyncio.Event()

    async def replica_sets(self, names: Sequence[str]) -> list[ReplicaSet]:
        self.asked.set()
        await self.told.wait()
        return [ReplicaSet(BROKER, 2, "new", 2, 2, ())]

    async def broker_epochs(self, address: str) -> BrokerEpochs:
        return BrokerEpochs(BROKER, address, MASTER_ID, ((2, 5),), 7)

    def attach(self, monitor: OutageMonitor) -> None:
        monitor._known[BROKER] = _BrokerSet(BROKER, controllers="c", epoch=1, master_id=1)
        monitor._controllers["c"] = cast(ControllerClient, self)
        cast(Any, monitor._admin).broker_epochs = self.broker_epochs


def test_an_acknowledgement_may_overtake_the_news_of_the_election() -> None:
    async def test() -> None:
        slow, ended = Slow(), list[Outage]()
        async with OutageMonitor(Session("127.0.0.1:1"), poll_ms=1, on_end=ended.append) as monitor:
            slow.attach(monitor)
            monitor.outage_began(BROKER, "old", monitor._now(), 0)
            monitor.outage_ended(BROKER, "new")
            await slow.asked.wait()
            assert not ended
            slow.told.set()
        (outage,) = ended
        assert outage.epochs == (1, 2) and monitor._known[BROKER].epoch == 2
        seen = {part.name: part.seen for part in outage.phases()}
        assert seen["election"] and seen["role change"] and seen[FIRST_ACK]
        assert outage.length_ms == pytest.approx(sum(part.length_ms for part in outage.phases()))

    run(test())


def test_the_next_outage_does_not_wait_for_news_of_the_one_before() -> None:
    async def test() -> None:
        slow, ended = Slow(), list[Outage]()
        async with OutageMonitor(Session("127.0.0.1:1"), poll_ms=1, on_end=ended.append) as monitor:
            slow.attach(monitor)
            monitor.outage_began(BROKER, "old", monitor._now(), 0)
            monitor.outage_ended(BROKER, "new")
            monitor.outage_began(BROKER, "new", monitor._now(), 0)
            assert [one.old_master for one in ended] == ["old"]
            monitor.outage_ended(BROKER, "new")
            assert [one.old_master for one in ended] == ["old", "new"]

    run(test())
