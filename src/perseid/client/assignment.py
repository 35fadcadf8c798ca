"""Which queues are assigned to a consumer: its part in rebalancing its group's queues.

A round compares the new assignment (or all queues, when broadcasting) with the present one. Queues that went to
other members are given up first: their offsets are committed, their locks released. New ones are begun where the group
left off. Rounds come every 20 s, at once when the broker says that members changed or a route changed, and
again after 500 ms when something could not be done yet.

Offsets are committed by requests of their own, one after the other: the original's broker takes what a pull commits on
the way and what a request commits in no certain order, so that a group could be left behind what it had handled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from perseid.base.errors import PerseidError
from perseid.client.assigned_queue import AssignedQueue
from perseid.client.errors import NoRoute
from perseid.client.locks import QueueLocks
from perseid.client.model import MessageQueue
from perseid.client.offsets import BrokerOffsets, FileOffsets, OffsetStore, only
from perseid.client.pulling import Offsets
from perseid.client.rebalance import allocate_averagely, changes, stable_members
from perseid.client.routes import TopicRoute
from perseid.wire.bodies import GetConsumerListByGroupResponseBody
from perseid.wire.codes import RequestCode
from perseid.wire.headers.clients import GetConsumerListByGroupRequest
from perseid.wire.names import RETRY_PREFIX

if TYPE_CHECKING:
    from perseid.client.consumer import PushConsumer

log = logging.getLogger("perseid.client")

INTERVAL_MS = 20_000
AGAIN_MS = 500
COMMIT_INTERVAL_MS = 1000
"""How often the offsets that moved are committed."""
PERSIST_INTERVAL_MS = 5000
"""How often those are that a broker may have lost."""
LOCK_INTERVAL_MS = 20_000
FORCED_DROP_MS = 20_000
"""A handler that runs on for this long after its queue went to another member loses the queue all the same."""


class Assignment:
    """One consumer's assigned queues."""

    def __init__(self, consumer: PushConsumer, folder: Path) -> None:
        self._consumer = consumer
        self._session = consumer.session
        self._group = consumer.group
        self.queues: dict[MessageQueue, AssignedQueue] = {}
        self._leaving: dict[MessageQueue, tuple[AssignedQueue, int]] = {}
        self._start_at: dict[MessageQueue, int] = {}
        self._round = asyncio.Event()
        self._positions = Offsets(consumer.session)
        self._locks = QueueLocks(consumer.session, consumer.group)
        self._store: OffsetStore
        if consumer.mode.is_broadcast:
            ip = consumer.session.client_id.partition("@")[0]
            self._store = FileOffsets(folder / ip / f"{consumer.group}.json")
        else:
            self._store = BrokerOffsets(consumer.session, self._positions, consumer.group)
        self._committing = asyncio.Lock()
        self.moved = asyncio.Event()
        """Some offset is another than what was last committed."""
        self._committed: dict[MessageQueue, int] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._commits: list[asyncio.Task[None]] = []

    # ---- lifecycle ----

    async def join(self) -> None:
        """Make ourselves known to the brokers, and begin."""
        consumer, routes = self._consumer, self._session.routes
        await self._store.open()
        for topic in consumer.subscriptions:
            routes.watch(topic)
            try:
                await routes.fetch(topic)
            except NoRoute:
                if not topic.startswith(RETRY_PREFIX):
                    text = "group %s: topic %s does not exist yet; it is looked for each second"
                    log.warning(text, self._group, topic)
        await self._check_expressions()
        self._session.members.append(consumer)
        await self._session.heartbeat()  # makes the broker create the retry topic
        if not consumer.mode.is_broadcast:
            await routes.refresh(RETRY_PREFIX + self._group, at_once=True)
        routes.on_change.append(self._route_changed)
        spawn, every = self._session.spawn, self._session.every
        self._tasks = [spawn(self._rounds(), f"rebalance {self._group}")]
        self._commits = [
            spawn(every(COMMIT_INTERVAL_MS, self._commit_moved, due=self.moved), f"commit {self._group}"),
            spawn(every(PERSIST_INTERVAL_MS, self.persist), f"persist {self._group}"),
        ]
        if consumer.mode.needs_locks:
            self._tasks.append(spawn(every(LOCK_INTERVAL_MS, self.renew_locks), f"locks {self._group}"))

    def wind_down(self) -> None:
        """No more rounds, pulls or new handlers."""
        for task in self._tasks:
            task.cancel()
        for assigned in self.queues.values():
            assigned.wind_down()

    async def leave(self) -> None:
        """Commit, unlock, and say good-bye."""
        for assigned in [*self.queues.values(), *(assigned for assigned, _ in self._leaving.values())]:
            assigned.cancel()
        await self.persist()  # after the commit that is on its way, if one is
        for task in self._commits:
            task.cancel()
        if self._consumer.mode.needs_locks:
            await self._locks.release_all()
        self.queues.clear()
        self._leaving.clear()
        self._session.routes.on_change.remove(self._route_changed)
        self._session.members.remove(self._consumer)
        await self._session.unregister(consumer_group=self._group)

    def rebalance_soon(self) -> None:
        """Begin a round at once."""
        self._round.set()

    async def persist(self) -> None:
        """Commit the offsets of all assigned queues, and of those that are being given up, but for those that are
        surely kept already."""
        queues = [*self.queues, *self._leaving]
        lacking = [queue for queue in queues if self._has_moved(queue) or not self._store.keeps(queue)]
        if lacking:
            await self._commit(lacking)

    async def _commit_moved(self) -> None:
        """Commit the offsets that are others than what was last committed."""
        self.moved.clear()
        moved = [queue for queue in self.queues if self._has_moved(queue)]
        if moved:
            await self._commit(moved)
        if any(map(self._has_moved, moved)):
            self.moved.set()

    def _has_moved(self, queue: MessageQueue) -> bool:
        return self._consumer.offsets.get(queue) != self._committed.get(queue)

    async def _commit(self, queues: Iterable[MessageQueue]) -> None:
        async with self._committing:
            offsets = only(self._consumer.offsets, queues)
            for queue in await self._store.save(offsets):
                self._committed[queue] = offsets[queue]

    async def renew_locks(self) -> None:
        """Confirm the locks of all assigned queues; a lost one stops its queue until it is ours again."""
        ours = await self._locks.acquire(self.queues)
        for queue, assigned in self.queues.items():
            if queue in ours:
                assigned.lock_confirmed()

    def restart(self, assigned: AssignedQueue, offset: int) -> None:
        """Begin a queue anew at `offset`, once a handler that runs has ended; what was assigned of it is forgotten."""
        if self.queues.get(assigned.queue) is not assigned:
            return
        del self.queues[assigned.queue]
        assigned.let_go()
        self._leaving[assigned.queue] = (assigned, self._consumer.now())
        self._start_at[assigned.queue] = self._consumer.offsets[assigned.queue] = offset
        self._round.set()

    # ---- rounds ----

    async def _rounds(self) -> None:
        while True:
            self._round.clear()
            try:
                settled = await self.rebalance()
            except PerseidError as error:
                log.warning("group %s: sharing out failed: %s", self._group, error)
                settled = False
            try:
                async with asyncio.timeout((INTERVAL_MS if settled else AGAIN_MS) / 1000):
                    await self._round.wait()
            except TimeoutError:
                pass

    async def rebalance(self) -> bool:
        """One round; False when something is left to be done soon."""
        settled = True
        for queue, (assigned, since) in list(self._leaving.items()):
            settled &= await self._finish(queue, assigned, since)
        for topic in self._consumer.subscriptions:
            route = self._session.routes.known(topic)
            if route is None:
                continue
            share = await self._share(route)
            if share is None:
                settled = False
                continue
            away, fresh = changes((q for q in self.queues if q.topic == topic), share)
            for queue in away:
                settled &= await self._give_up(queue)
            for queue in fresh:
                settled &= await self._take(queue)
            if away or fresh:
                self._consumer.counts.rebalances += 1
                log.info("group %s: %s: %d queues are assigned now", self._group, topic, len(share))
        return settled

    async def _share(self, route: TopicRoute) -> list[MessageQueue] | None:
        """Our part of a topic's queues; None when it can't be known now (what we hold, we keep)."""
        queues = route.read_queues()
        if self._consumer.mode.is_broadcast:
            return queues
        addresses = [ids[min(ids)] for ids in route.brokers.values() if ids]
        if not addresses:
            return None
        address = self._session.random.choice(addresses)
        request = GetConsumerListByGroupRequest(consumer_group=self._group)
        try:
            answer = await self._session.connections.ask(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, request)
            members = stable_members(GetConsumerListByGroupResponseBody.from_json(answer.body).consumer_id_list)
        except PerseidError as error:
            log.info("group %s: %s names no members: %s", self._group, address, error)
            members = []
        if self._session.client_id not in members:
            await self._session.heartbeat_soon()
            return None
        return allocate_averagely(self._session.client_id, queues, members)

    async def _give_up(self, queue: MessageQueue) -> bool:
        assigned = self.queues.pop(queue)
        return await self._finish(queue, assigned, self._consumer.now())

    async def _finish(self, queue: MessageQueue, assigned: AssignedQueue, since: int) -> bool:
        """End the work on a queue; an ordered handler that runs is waited for, up to FORCED_DROP_MS in all."""
        if not await assigned.drop() and self._consumer.now() - since < FORCED_DROP_MS:
            self._leaving[queue] = (assigned, since)
            return False
        self._leaving.pop(queue, None)
        assigned.cancel()
        await self._commit([queue])
        self._consumer.offsets.pop(queue, None)
        self._committed.pop(queue, None)
        if self._consumer.mode.needs_locks:
            await self._locks.release([queue])
        return True

    async def _take(self, queue: MessageQueue) -> bool:
        if queue in self._leaving:
            return False
        if self._consumer.mode.needs_locks and queue not in await self._locks.acquire([queue]):
            log.info("group %s: %s is still locked by another member", self._group, queue)
            return False
        try:
            offset = await self._begin_at(queue)
        except PerseidError as error:
            log.warning("group %s: %s is not begun yet: %s", self._group, queue, error)
            return False
        assigned = AssignedQueue(self._consumer, queue, offset)
        if self._consumer.mode.needs_locks:
            assigned.lock_confirmed()
        self.queues[queue] = assigned
        assigned.start()
        return True

    async def _begin_at(self, queue: MessageQueue) -> int:
        """Where to begin: where the group left off, else where `from_where` says."""
        if queue in self._start_at:
            return self._start_at.pop(queue)
        kept = await self._store.read(queue)
        if kept is not None:
            return kept
        retry = queue.topic.startswith(RETRY_PREFIX)
        where = self._consumer.from_where
        if where == "first" or (retry and where == "last"):
            return 0  # an offset below the lowest one is put right by the first pull
        if where == "last" or retry:
            return await self._positions.max(queue)
        return await self._positions.at_time(queue, int(where))

    # ---- other ----

    def _route_changed(self, topic: str) -> None:
        if topic in self._consumer.subscriptions:
            self._session.spawn(self._greet_then_rebalance(), f"new route of {topic}")

    async def _greet_then_rebalance(self) -> None:
        await self._session.heartbeat()
        self._round.set()

    async def _check_expressions(self) -> None:
        """Have a broker read each SQL expression before we begin, as a bad one would only fail later."""
        for subscription in self._consumer.subscriptions.values():
            route = self._session.routes.known(subscription.topic)
            if subscription.kind != "TAG" and route is not None:
                await self._consumer.puller.check(subscription, route)
