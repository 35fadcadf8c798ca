"""What a broker can do: the list of its capabilities, and the orders in which they take part.

A new capability is a folder with a `capability` of its own, and one line of `capabilities`.
"""

from __future__ import annotations

from collections.abc import Callable

from perseid.base.machine import DiskFailed, Millis
from perseid.broker.access.capability import capability as access_capability
from perseid.broker.access.tables import ACLS_PATH, USERS_PATH
from perseid.broker.admin.capability import capability as admin_capability
from perseid.broker.admin.runtime import RuntimeRequests
from perseid.broker.admin.statistics import AdminRequests
from perseid.broker.admin.upkeep import UpkeepRequests
from perseid.broker.clients.capability import capability as clients_capability
from perseid.broker.clients.lock_requests import LockRequests
from perseid.broker.clients.member_requests import ClientRequests
from perseid.broker.composition import Parts
from perseid.broker.consume.capability import capability as consume_capability
from perseid.broker.consume.offset_requests import OffsetRequests
from perseid.broker.consume.offsets import LMQ_OFFSETS_PATH, OFFSETS_PATH
from perseid.broker.consume.query import QueryRequests
from perseid.broker.consume.subscription_checks import SubscriptionChecks
from perseid.broker.kernel.arrivals import Arrivals
from perseid.broker.kernel.capability import Capability, Timer, in_order, tries_again
from perseid.broker.kernel.roles import RoleHook
from perseid.broker.kernel.route import route_table
from perseid.broker.lite.capability import capability as lite_capability
from perseid.broker.metadata.capability import capability as metadata_capability
from perseid.broker.metadata.group_requests import GroupRequests
from perseid.broker.metadata.groups import GROUPS_PATH
from perseid.broker.metadata.topic_requests import TopicRequests
from perseid.broker.metadata.topics import TOPICS_PATH
from perseid.broker.pop.ack_requests import PopAckRequests
from perseid.broker.pop.assignment import AssignmentRequests
from perseid.broker.pop.capability import capability as pop_capability
from perseid.broker.pop.modes import MODES_PATH
from perseid.broker.pop.order import ORDER_PATH
from perseid.broker.produce.replies import ReplyRequests
from perseid.broker.produce.send import SendRequests
from perseid.broker.produce.send_back import SendBackRequests
from perseid.broker.registration.capability import capability as registration_capability
from perseid.broker.replication.capability import capability as replication_capability
from perseid.broker.replication.requests import ReplicationRequests
from perseid.broker.scheduled.capability import capability as scheduled_capability
from perseid.broker.scheduled.delay import OFFSETS_PATH as DELAYS_PATH
from perseid.broker.scheduled.recall import RecallRequests
from perseid.broker.scheduled.timer_metrics import METRICS_PATH
from perseid.broker.static_topics.capability import capability as static_topics_capability
from perseid.broker.static_topics.mappings import MAPPINGS_PATH
from perseid.broker.transactions.capability import capability as transactions_capability
from perseid.broker.transactions.requests import TransactionRequests
from perseid.store.truncation import Cut

LOST_MASTERSHIP = "another broker became master before enough replicas had the message"
SAVED = (
    GROUPS_PATH, MAPPINGS_PATH, TOPICS_PATH, MODES_PATH, OFFSETS_PATH, LMQ_OFFSETS_PATH, ORDER_PATH, DELAYS_PATH,
    METRICS_PATH, USERS_PATH, ACLS_PATH,
)  # fmt: skip
"""Files of one turn are saved in this order."""
HANGING = (
    "quick pulls", "who hears of appends", "answers that wait", "copies of the master's tables", "consumer offsets",
    "groups that are ahead", "delayed messages", "messages for a time", "transactions", "pop", "lite topics",
    "topics", "version of the topics", "name servers",
)  # fmt: skip
"""What becomes another role's, from the first to the last."""
TICKING = (
    "acknowledgements", "delayed messages", "transactions", "pop", "lite topics", "messages for a time", "replication",
    "controllers", "copies of the master's tables", "acting", "store", "calls", "name servers", "static topics",
    "state files", "counts of quick sends", "counts of quick deliveries", "statistics", "housekeeping",
    "audit",
)  # fmt: skip
SETTLING = ("settings", "decisions of producers", "acknowledgements of popped messages", "promises", "replication")
"""At the end of a turn. Replication is last: what a group has committed, pulls wait for, which come next."""
ENDING = ("name servers", "replication", "progress of pops", "the group")


def capabilities(p: Parts) -> tuple[Capability, ...]:
    """Those of a broker."""
    found = (
        access_capability(p.access, p.turn, p.users, p.acls, p.audit), _metadata(p), _clients(p), _produce(p),
        _consume(p), _scheduled(p), _transactions(p), _pop(p), _lite(p), _static_topics(p), _replication(p),
        p.mode.capability(), _registration(p), _kernel(p),
    )  # fmt: skip
    details = tuple(one for capability in found for one in capability.details)
    return (*found, _admin(p, details))


def _kernel(p: Parts) -> Capability:
    """What every capability stands on."""

    def tick(now: Millis) -> None:
        p.turn.emit_all(p.store.tick(now))

    def calls(now: Millis) -> None:
        p.turn.emit_all(p.caller.tick(now))

    def lives_on(event: DiskFailed) -> bool:
        return p.store.lives_on(event, p.turn.now)

    return Capability(
        name="kernel",
        hooks=(
            RoleHook("quick pulls", p.generation.rise, p.generation.rise),
            RoleHook("answers that wait", follow=lambda: p.durability.give_up(LOST_MASTERSHIP)),
        ),
        timers=(
            Timer("acknowledgements", p.durability.tick, p.durability.next_deadline),
            Timer("store", tick, p.store.next_deadline),
            Timer("calls", calls, p.caller.next_deadline),
            Timer("state files", p.saves.tick, p.saves.next_deadline),
            Timer("counts of quick sends", lambda now: p.quick.count()),
        ),
        details=(p.roads.details,),
        checks=(p.store.validate, p.durability.validate, p.saves.validate, p.turn.validate),
        failures=(tries_again(p.turn, lives_on),),
    )


def _metadata(p: Parts) -> Capability:
    """Topics and groups."""
    return metadata_capability(
        p.topics, p.groups,
        (
            GroupRequests(
                turn=p.turn, settings=p.settings, groups=p.groups, offsets=p.offsets,
                consumers=p.consumers, stats=p.stats, saves=p.saves,
            ),
            TopicRequests(
                turn=p.turn, settings=p.settings, store=p.store, topics=p.topics, offsets=p.offsets,
                consumers=p.consumers, stats=p.stats, mappings=p.mappings, lite=p.lite,
                waiting=p.timers.metrics, saves=p.saves,
            ),
        ),
        lambda names: p.registration.topics_changed(names, p.turn.now),
    )  # fmt: skip


def _clients(p: Parts) -> Capability:
    """Who is connected."""
    return clients_capability(
        p.generation, p.producers, p.consumers, p.locks,
        (
            p.relay_requests,
            LockRequests(turn=p.turn, locks=p.locks),
            ClientRequests(
                turn=p.turn, settings=p.settings, topics=p.topics, groups=p.groups,
                consumers=p.consumers, producers=p.producers,
            ),
        ),
    )  # fmt: skip


def _produce(p: Parts) -> Capability:
    """Sends."""
    return Capability(
        name="produce",
        requests=(
            SendRequests(
                turn=p.turn, settings=p.settings, store=p.store, topics=p.topics, groups=p.groups,
                appender=p.appender, transformer=p.transformer, answers=p.answers, locks=p.locks,
                transactions=p.transactions, unique_ids=p.unique_ids, admission=p.admission,
                inner_batches=p.inner_batches,
            ),
            SendBackRequests(
                turn=p.turn, settings=p.settings, store=p.store, topics=p.topics, groups=p.groups,
                appender=p.appender, transformer=p.transformer, random=p.random, durability=p.durability,
            ),
            ReplyRequests(
                turn=p.turn, settings=p.settings, store=p.store, topics=p.topics, appender=p.appender,
                transformer=p.transformer, producers=p.producers, answers=p.answers,
                durability=p.durability, admission=p.admission, relays=p.relays,
            ),
        ),
    )  # fmt: skip


def _consume(p: Parts) -> Capability:
    """Reads and offsets."""
    return consume_capability(
        p.offsets, p.holds,
        (
            p.pulls, SubscriptionChecks(settings=p.settings, work=p.holds.work),
            QueryRequests(settings=p.settings, reads=p.store.reads),
            OffsetRequests(
                turn=p.turn, settings=p.settings, reads=p.store.reads, topics=p.topics, groups=p.groups,
                offsets=p.offsets, consumers=p.consumers, replicas=p.replicas,
                reset_by_clients=p.relay_requests.reset_by_clients,
            ),
        ),
        lambda event: p.fetches.fetched(event, p.dispatch.request),
    )  # fmt: skip


def _scheduled(p: Parts) -> Capability:
    """Delays and timers."""
    requests = (
        RecallRequests(
            turn=p.turn, settings=p.settings, topics=p.topics, appender=p.appender,
            transformer=p.transformer, answers=p.answers, roles=p.roles,
        ),
    )  # fmt: skip

    def cut(event: Cut) -> None:
        p.lifecycle.cut(event, p.timers.cut)

    return scheduled_capability(p.turn, p.roles, p.escape, p.delay, p.timers, requests, cut)


def _transactions(p: Parts) -> Capability:
    """Halves, and what their producers decide."""
    requests = (
        TransactionRequests(
            reads=p.store.reads, appender=p.appender, roles=p.roles, transactions=p.transactions,
        ),
    )  # fmt: skip
    return transactions_capability(p.roles, p.escape, p.transactions, requests, p.dispatch.request)


def _pop(p: Parts) -> Capability:
    """POP."""
    return pop_capability(
        p.turn, p.roles, p.holds, p.pop,
        (
            p.pop_requests,
            PopAckRequests(
                turn=p.turn, settings=p.settings, reads=p.store.reads,
                queues=p.store.queues, topics=p.topics, offsets=p.offsets,
                appender=p.appender, holds=p.holds, pop=p.pop, lite_acks=p.lite_requests,
            ),
            AssignmentRequests(
                turn=p.turn, settings=p.settings, topics=p.topics, groups=p.groups,
                consumers=p.consumers, pop=p.pop, connections=p.connections,
            ),
        ),
    )  # fmt: skip


def _lite(p: Parts) -> Capability:
    """Lite topics."""
    return lite_capability(p.turn, p.roles, p.lite, (p.lite_requests,))


def _static_topics(p: Parts) -> Capability:
    """Static topics."""
    return static_topics_capability(p.mappings, p.static_cleaner, p.peers)


def _replication(p: Parts) -> Capability:
    """Replicas."""
    requests = (
        ReplicationRequests(
            turn=p.turn, settings=p.settings, store=p.store, roles=p.roles, mode=p.mode,
            replicas=p.replicas, timers=p.timers, delay=p.delay,
        ),
    )  # fmt: skip
    return replication_capability(p.turn, p.replicas, requests)


def _registration(p: Parts) -> Capability:
    """Name servers."""
    return registration_capability(p.turn, p.registration)


def _admin(p: Parts, details: tuple[Callable[[Millis], dict[str, str]], ...]) -> Capability:
    """Operators. `details`: rows of the broker's state that other capabilities have."""
    return admin_capability(
        p.stats, p.live,
        (
            AdminRequests(
                turn=p.turn, reads=p.store.reads, topics=p.topics, offsets=p.offsets, consumers=p.consumers,
                producers=p.producers, stats=p.stats, progress=p.progress,
            ),
            UpkeepRequests(
                turn=p.turn, settings=p.settings, store=p.store, topics=p.topics, groups=p.groups,
                offsets=p.offsets, consumers=p.consumers, fetches=p.fetches, stats=p.stats,
                progress=p.progress,
            ),
            RuntimeRequests(
                turn=p.turn, settings=p.settings, log=p.store.log, reads=p.store.reads,
                retention=p.store.retention, disk=p.disk, stats=p.stats,
                live=p.live,
                details=details,
            ),
        ),
    )  # fmt: skip


def arrange(p: Parts, all_of_them: tuple[Capability, ...], settle: Callable[[], None]) -> tuple[Timer, ...]:
    """Tell the kernel's parts what there is; the timers, in the order of a tick. `settle` ends a turn."""
    services = [service for one in all_of_them for service in one.services]
    arrivals = Arrivals(p.store.appends, p.store.gate, p.roles, p.holds, p.stats, services, p.lite.arrived)
    hear = RoleHook("who hears of appends", arrivals.listen, arrivals.listen)
    p.arrivals = arrivals
    p.saves.keep(in_order(SAVED, [file for one in all_of_them for file in one.files]))
    p.roles.hang(in_order(HANGING, [hear, *(hook for one in all_of_them for hook in one.hooks)]))
    routes = route_table(row for one in all_of_them for requests in one.requests for row in requests.routes())
    p.dispatch.serve(routes, (p.replicas.gate,), p.static_topics.serve)
    p.connections.tell([gone for one in all_of_them for gone in one.gone])
    ends = in_order(ENDING, [step for one in all_of_them for step in one.ends])
    p.lifecycle.take(all_of_them, ends, settle)
    return in_order(TICKING, [timer for one in all_of_them for timer in one.timers])
