"""All parts of a broker, each with the ports that it needs and no more; and what the kernel is told of them.

Nothing else knows them all. Whoever adds a part builds it here, after those that it stands on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Protocol

from perseid.base.machine import Millis
from perseid.broker.admin.live_settings import LivePorts, LiveSettings
from perseid.broker.admin.progress import Progress
from perseid.broker.admin.runtime import RuntimeRequests
from perseid.broker.admin.statistics import AdminRequests
from perseid.broker.admin.stats import BrokerStats
from perseid.broker.admin.upkeep import UpkeepRequests
from perseid.broker.clients.lock_requests import LockRequests
from perseid.broker.clients.locks import QueueLocks
from perseid.broker.clients.member_requests import ClientRequests
from perseid.broker.clients.members import ConsumerTable, ProducerTable
from perseid.broker.clients.relay_requests import RelayRequests
from perseid.broker.clients.relays import Relays
from perseid.broker.config import BrokerConfig
from perseid.broker.consume.fetches import Fetches
from perseid.broker.consume.held_pulls import Holds
from perseid.broker.consume.offset_requests import OffsetRequests
from perseid.broker.consume.offsets import LMQ_OFFSETS_PATH, OFFSETS_PATH, ConsumerOffsets
from perseid.broker.consume.pull import PullRequests
from perseid.broker.consume.query import QueryRequests
from perseid.broker.fast_path.core_turns import CorePorts, again_of, decided_of
from perseid.broker.fast_path.plain_sends import QuickSends, SendPorts
from perseid.broker.kernel.acks import Acks
from perseid.broker.kernel.answers import Answers
from perseid.broker.kernel.arrivals import Arrivals, Service
from perseid.broker.kernel.connections import Connections
from perseid.broker.kernel.dispatch import Dispatch
from perseid.broker.kernel.durability import Durability
from perseid.broker.kernel.generation import Generation
from perseid.broker.kernel.intake import Intake
from perseid.broker.kernel.peers import Peers
from perseid.broker.kernel.request import Connection
from perseid.broker.kernel.roles import RoleHook, Roles
from perseid.broker.kernel.route import Route, route_table
from perseid.broker.kernel.saves import Saves, StateFile
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.lite.requests import LiteRequests
from perseid.broker.lite.service import LitePorts, LiteService
from perseid.broker.metadata.group_requests import GroupRequests
from perseid.broker.metadata.groups import GROUPS_PATH, SubscriptionGroupTable
from perseid.broker.metadata.topic_requests import TopicRequests
from perseid.broker.metadata.topics import TOPICS_PATH, TopicTable
from perseid.broker.pop.ack_requests import PopAckRequests
from perseid.broker.pop.assignment import AssignmentRequests
from perseid.broker.pop.modes import MODES_PATH
from perseid.broker.pop.order import ORDER_PATH
from perseid.broker.pop.requests import PopRequests
from perseid.broker.pop.service import PopPorts, PopService
from perseid.broker.pop.topic_routes import Routes
from perseid.broker.produce.admission import Admission
from perseid.broker.produce.appender import Appender, Transformer
from perseid.broker.produce.inner_batches import InnerBatches
from perseid.broker.produce.replies import ReplyRequests
from perseid.broker.produce.send import SendRequests
from perseid.broker.produce.send_back import SendBackRequests
from perseid.broker.registration.name_servers import Registration
from perseid.broker.replication.acting import Acting, ActingPorts
from perseid.broker.replication.copies import Copies, CopyPorts
from perseid.broker.replication.forwards import Forwards
from perseid.broker.replication.manager import ManagerPorts, ReplicasManager
from perseid.broker.replication.new_master import LostTopics, set_groups_back
from perseid.broker.replication.raft_group import Group
from perseid.broker.replication.replicas import Replicas, ReplicationPorts
from perseid.broker.replication.requests import ReplicationRequests
from perseid.broker.scheduled.delay import OFFSETS_PATH as DELAYS_PATH
from perseid.broker.scheduled.delay import DelayService
from perseid.broker.scheduled.escape import Escape
from perseid.broker.scheduled.recall import RecallRequests
from perseid.broker.scheduled.timer_metrics import METRICS_PATH
from perseid.broker.scheduled.timers import TimerService
from perseid.broker.static_topics.cleaner import StaticCleaner
from perseid.broker.static_topics.mappings import MAPPINGS_PATH, TopicMappings
from perseid.broker.static_topics.requests import StaticTopicRequests
from perseid.broker.transactions.requests import TransactionRequests
from perseid.broker.transactions.service import TransactionPorts, TransactionService
from perseid.disk.port import Disk
from perseid.raft.config import RaftConfig
from perseid.raft.files import FileLog
from perseid.replication.config import ReplicationConfig
from perseid.store.config import SYNC_FLUSH, StoreConfig
from perseid.store.store import MessageStore
from perseid.wire.ids import UniqueIds
from perseid.wire.names import SCHEDULE_TOPIC, TIMER_TOPIC, revive_topic
from perseid.wire.rpc import Caller

LOST_MASTERSHIP = "another broker became master before enough replicas had the message"


class Requests(Protocol):
    """Handlers of requests, with their rows."""

    def routes(self) -> tuple[Route, ...]:
        """The rows."""


class Parts:
    """Those of one broker."""

    def __init__(
        self, config: BrokerConfig, store: StoreConfig, replication: ReplicationConfig, raft: RaftConfig | None,
        disk: Disk, random: Random, new_log: type[FileLog],
    ) -> None:
        self.disk = disk
        self.random = random
        self.settings = Settings(config)
        self.answers = Answers(config)
        self.caller = Caller()
        self.turn = Turn(self.answers, self.caller)
        self.generation = Generation()
        self.roles = Roles(self.turn, self.settings)
        self._build_store(config, store, raft, new_log)
        self._build_tables(config)
        self._build_durability(replication)
        self._build_waits()
        self._build_scheduled()
        self._build_pop_and_lite()
        self._build_replication(config)
        self._build_quick_ways()

    def _build_store(
        self, config: BrokerConfig, store: StoreConfig, raft: RaftConfig | None, new_log: type[FileLog]
    ) -> None:
        self.group: Group | None = None
        if raft is not None:
            self.group = Group(self.turn, self.settings, self.roles, raft, store, self.disk, self.random, new_log)
            self.store: MessageStore = self.group.store
        else:
            self.store = MessageStore(self.disk, store, self.settings.store_host, gated=config.enable_controller_mode)

    def _build_tables(self, config: BrokerConfig) -> None:
        lmq = self.store.lmq
        self.topics = TopicTable(config, 0, lmq=lmq)
        self.store.batch_topics, self.store.compaction.topics = self.topics.batch_topics, self.topics.compacted
        self.mappings = TopicMappings(config.broker_name)
        self.groups = SubscriptionGroupTable(0, lmq=lmq)
        self.offsets = ConsumerOffsets(0, lmq=lmq)
        self.producers = ProducerTable(self.turn, self.settings)
        self.consumers = ConsumerTable(self.turn, self.settings)
        self.locks = QueueLocks()
        one_row = lmq and not config.enable_lmq_stats
        self.stats = BrokerStats(0, self.topics.is_system, one_row_of_lmq=one_row)

    def _build_durability(self, replication: ReplicationConfig) -> None:
        self.acks = Acks()
        ports = ReplicationPorts(
            turn=self.turn, settings=self.settings, store=self.store, disk=self.disk, caller=self.caller,
            roles=self.roles, acks=self.acks,
        )
        self.replicas = Replicas(ports, replication, self.group)
        sync_flush = self.store.config.flush_disk_type == SYNC_FLUSH and self.group is None
        self.durability = Durability(
            self.turn, self.settings, self.store, self.replicas, self.acks, self.stats, sync_flush=sync_flush
        )
        self.saves = Saves(self.turn, self.settings, self.store, self.disk)
        self.dispatch = Dispatch(self.turn, self.saves, self.generation, self.caller)
        self.connections = Connections(self.turn, self.caller, self.generation, self.replicas)

    def _build_waits(self) -> None:
        self.holds = Holds()
        self.fetches = Fetches(self.turn, self.settings)
        self.relays = Relays(self.turn, self.caller)
        self.registration = Registration(
            self.turn, self.settings, self.caller, self.topics, self.mappings, self.replicas
        )
        self.peers = Peers(self.turn, self.registration)
        self.static_cleaner = StaticCleaner(self.turn, self.settings, self.store, self.mappings, self.roles, self.peers)

    def _build_scheduled(self) -> None:
        turn, settings, store = self.turn, self.settings, self.store
        self.core_ports = CorePorts(
            turn=turn, settings=settings, store=store, topics=self.topics, holds=self.holds, stats=self.stats,
            durability=self.durability, pop_topic=revive_topic(settings.current.broker_cluster_name),
        )
        self.appender = Appender(turn, store, self.durability, self.stats)
        self.escape = Escape(turn, settings, self.peers)
        self.delay = DelayService(turn, settings, store, self.appender, self.escape)
        quick = partial(again_of, self.core_ports)
        self.timers = TimerService(turn, settings, store, self.disk, self.random, self.appender, self.escape, quick)
        self.transformer = Transformer(store, self.timers)
        self.transactions = TransactionService(
            TransactionPorts(
                turn=turn, settings=settings, store=store, topics=self.topics, offsets=self.offsets,
                appender=self.appender, transformer=self.transformer, producers=self.producers, escape=self.escape,
                quick=partial(decided_of, self.core_ports),
            )
        )

    def _build_pop_and_lite(self) -> None:
        self.routes_of_topics = Routes(self.turn, self.settings, self.topics)
        alone = self.group is None and not self.settings.current.enable_controller_mode
        self.pop = PopService(
            PopPorts(
                turn=self.turn, settings=self.settings, store=self.store, topics=self.topics, groups=self.groups,
                offsets=self.offsets, appender=self.appender, holds=self.holds, routes=self.routes_of_topics,
                nodes=self.replicas, alone=alone,
            )
        )
        self.lite = LiteService(
            LitePorts(
                turn=self.turn, settings=self.settings, store=self.store, topics=self.topics, groups=self.groups,
                offsets=self.offsets, holds=self.holds, stats=self.stats, random=self.random,
                routes=self.routes_of_topics, saves=self.saves, connections=self.connections,
            )
        )

    def _build_replication(self, config: BrokerConfig) -> None:
        turn, settings, replicas = self.turn, self.settings, self.replicas
        copies = Copies(
            CopyPorts(
                turn=turn, generation=self.generation, topics=self.topics, groups=self.groups, offsets=self.offsets,
                mappings=self.mappings, modes=self.pop.modes, timers=self.timers, delay=self.delay,
            )
        )
        acting: Acting | None = None
        if config.enable_slave_acting_master:
            acting = Acting(
                ActingPorts(
                    turn=turn, settings=settings, store=self.store, topics=self.topics, offsets=self.offsets,
                    roles=self.roles, replicas=replicas, registration=self.registration, timers=self.timers,
                    delay=self.delay, escape=self.escape,
                )
            )
        manager: ReplicasManager | None = None
        if replicas.auto is not None:
            ports = ManagerPorts(
                turn=turn, settings=settings, store=self.store, topics=self.topics, offsets=self.offsets,
                roles=self.roles, disk=self.disk, caller=self.caller, replicas=replicas,
                registration=self.registration,
            )
            manager = ReplicasManager(ports, replicas.auto)
        forwards = Forwards(turn, settings, replicas)
        replicas.join(self.registration, self.offsets, copies, forwards, acting, manager)
        if self.group is not None:
            self.group.changed = self.registration.hurry

    def _build_quick_ways(self) -> None:
        self.unique_ids = UniqueIds(
            self.settings.store_host.ip, self.random.getrandbits(16), self.random.getrandbits(32)
        )
        self.pulls = PullRequests(
            turn=self.turn, settings=self.settings, store=self.store, topics=self.topics, groups=self.groups,
            offsets=self.offsets, consumers=self.consumers, holds=self.holds, fetches=self.fetches, stats=self.stats,
            replicas=self.replicas,
        )
        self.quick = QuickSends(
            SendPorts(
                turn=self.turn, settings=self.settings, store=self.store, topics=self.topics, holds=self.holds,
                stats=self.stats, durability=self.durability, answers=self.answers, roles=self.roles,
                mappings=self.mappings, transactions=self.transactions, timers=self.timers, pulls=self.pulls,
                generation=self.generation, pop_topic=self.pop.topic,
            )
        )
        self.intake = Intake(self.turn, self.dispatch, self.durability, self.connections, self.quick, self.replicas)
        self.arrivals = Arrivals(
            self.store, self.roles, self.holds, self.stats,
            (
                Service(SCHEDULE_TOPIC, self.delay.arrived),
                Service(TIMER_TOPIC, lambda queue_id, tag_code: self.timers.arrived()),
                Service(self.pop.topic, lambda queue_id, tag_code: self.pop.arrived(queue_id), on_slave=True),
            ),
            self.lite.arrived,
        )

    # ---- what the kernel is told ----

    def _dialled_closed(self, conn: Connection) -> None:
        if conn.dialled:
            self.registration.connection_closed(conn.dialled, self.turn.now)
            self.replicas.dialled_closed(conn.dialled, self.turn.now)

    def connect(self, shown: Callable[[], dict[str, str]] | None, path: str, why_not: str) -> None:
        """Tell the kernel what is saved, what hangs on the role, and what is served. For the arguments see `live`."""
        self.live = LiveSettings(
            LivePorts(
                turn=self.turn, settings=self.settings, store=self.store, disk=self.disk, topics=self.topics,
                durability=self.durability, generation=self.generation, answers=self.answers, replicas=self.replicas,
                registration=self.registration, saves=self.saves, quick=self.quick,
            ),
            shown, path, why_not,
        )
        self.saves.keep(self._files())
        self.roles.hang(self.role_hooks())
        self.static_topics = StaticTopicRequests(
            turn=self.turn, store=self.store, offsets=self.offsets, mappings=self.mappings, peers=self.peers,
            check_reader=self.pulls.check_reader,
        )
        self.dispatch.serve(self._routes(), (self.replicas.gate,), self.static_topics.serve)
        self.connections.tell(
            (
                lambda conn: self.holds.connection_closed(conn.id),
                self._dialled_closed, lambda conn: self.producers.connection_closed(conn.id),
                lambda conn: self.consumers.connection_closed(conn.id),
            )
        )

    def _files(self) -> tuple[StateFile, ...]:
        """The state files; those that are saved in one turn are so in this order."""

        def offsets_ms(config: BrokerConfig) -> Millis:
            return config.flush_consumer_offset_interval

        def delays_ms(config: BrokerConfig) -> Millis:
            return config.flush_delay_offset_interval

        topics, groups, mappings, offsets = self.topics, self.groups, self.mappings, self.offsets
        order, modes, delay, metrics = self.pop.order, self.pop.modes, self.delay, self.timers.metrics
        return (
            StateFile(path=GROUPS_PATH, table=groups, text=groups.to_json),
            StateFile(
                path=MAPPINGS_PATH, table=mappings, text=mappings.to_json,
                in_use=lambda: mappings.version.counter > 0,
            ),
            StateFile(
                path=TOPICS_PATH, table=topics, text=topics.to_json, loaded_first=True,
                told=lambda: self.registration.topics_changed(topics.take_changed(), self.turn.now),
            ),
            StateFile(path=MODES_PATH, table=modes, text=modes.to_json),
            StateFile(
                path=offsets.path, table=offsets, text=offsets.to_json, every=offsets_ms,
                instead=OFFSETS_PATH if offsets.path == LMQ_OFFSETS_PATH else "",
            ),
            StateFile(path=ORDER_PATH, table=order, text=lambda: order.to_json(self.turn.now), every=offsets_ms),
            StateFile(path=DELAYS_PATH, table=delay, text=delay.to_json, every=delays_ms),
            StateFile(
                path=METRICS_PATH, table=metrics, text=metrics.to_json, every=delays_ms, in_use=lambda: metrics.dirty
            ),
        )

    def role_hooks(self) -> tuple[RoleHook, ...]:
        """What hangs on the role, from the first to the last."""
        turn, changed, replicas = self.turn, self.generation.rise, self.replicas
        topics = LostTopics(turn, self.settings, self.store, self.topics)

        def lead_offsets() -> None:
            self.offsets.lead()
            if replicas.manager is not None:
                set_groups_back(self.offsets, self.store)

        def drop_pops() -> None:
            self.pop.stop()
            self.holds.pops.everyone()  # to be told who is master

        def complete_topics() -> None:
            if replicas.manager is not None or self.group is not None:
                topics.make()

        def new_version() -> None:
            """Name servers take the table of the newer master (B37)."""
            if replicas.manager is not None:
                self.topics.bump(turn.now, replicas.manager.epoch)

        return (
            RoleHook("quick pulls", changed, changed),
            RoleHook("who hears of appends", self.arrivals.listen, self.arrivals.listen),
            RoleHook("answers that wait", follow=partial(self.durability.give_up, LOST_MASTERSHIP)),
            RoleHook("copies of the master's tables", lambda: replicas.copies.follow(None, turn.now)),
            RoleHook("consumer offsets", lead_offsets, self.offsets.follow),
            RoleHook("delayed messages", lambda: self.delay.start(turn.now), self.delay.stop, sent_away=True),
            RoleHook("messages for a time", lambda: self.timers.start(turn.now), self.timers.stop, sent_away=True),
            RoleHook("transactions", self.transactions.start, self.transactions.stop, sent_away=True),
            RoleHook("pop", lambda: self.pop.start(turn.now), drop_pops),
            RoleHook("lite topics", lambda: self.lite.start(turn.now), self.lite.stop),
            RoleHook("topics", complete_topics),
            RoleHook("the table's version", new_version),
            RoleHook("name servers", *2 * (lambda: self.registration.role_changed(turn.now),)),
        )

    def _routes(self) -> dict[int, Route]:
        """All requests that are served."""
        relayed = RelayRequests(
            turn=self.turn, settings=self.settings, store=self.store, topics=self.topics, groups=self.groups,
            offsets=self.offsets, consumers=self.consumers, relays=self.relays,
        )
        requests = (relayed, *self._of_clients(), *self._of_tables(relayed), *self._of_operators())
        return route_table(row for part in requests for row in part.routes())

    def _of_clients(self) -> tuple[Requests, ...]:
        """Messages: sent, read, acknowledged."""
        admission = Admission(turn=self.turn, settings=self.settings, topics=self.topics, random=self.random)
        inner_batches = InnerBatches(
            turn=self.turn, settings=self.settings, appender=self.appender, stats=self.stats, answers=self.answers,
            unique_ids=self.unique_ids,
        )
        lite = LiteRequests(
            turn=self.turn, settings=self.settings, store=self.store, topics=self.topics, groups=self.groups,
            offsets=self.offsets, holds=self.holds, fetches=self.fetches, stats=self.stats, pop=self.pop,
            service=self.lite, connections=self.connections,
        )
        return (
            self.pulls, lite, LockRequests(turn=self.turn, locks=self.locks),
            QueryRequests(settings=self.settings, store=self.store),
            RecallRequests(
                turn=self.turn, settings=self.settings, topics=self.topics, appender=self.appender,
                transformer=self.transformer, answers=self.answers, roles=self.roles,
            ),
            ReplyRequests(
                turn=self.turn, settings=self.settings, store=self.store, topics=self.topics, appender=self.appender,
                transformer=self.transformer, producers=self.producers, answers=self.answers,
                durability=self.durability, admission=admission, relays=self.relays,
            ),
            TransactionRequests(
                store=self.store, appender=self.appender, roles=self.roles, transactions=self.transactions,
            ),
            SendRequests(
                turn=self.turn, settings=self.settings, store=self.store, topics=self.topics, groups=self.groups,
                appender=self.appender, transformer=self.transformer, answers=self.answers, locks=self.locks,
                transactions=self.transactions, unique_ids=self.unique_ids, admission=admission,
                inner_batches=inner_batches,
            ),
            SendBackRequests(
                turn=self.turn, settings=self.settings, store=self.store, topics=self.topics, groups=self.groups,
                appender=self.appender, transformer=self.transformer, random=self.random, durability=self.durability,
            ),
            PopRequests(
                turn=self.turn, settings=self.settings, store=self.store, topics=self.topics, groups=self.groups,
                appender=self.appender, consumers=self.consumers, holds=self.holds, fetches=self.fetches,
                stats=self.stats, random=self.random, pop=self.pop,
            ),
            PopAckRequests(
                turn=self.turn, settings=self.settings, store=self.store, topics=self.topics, offsets=self.offsets,
                appender=self.appender, holds=self.holds, pop=self.pop, lite_acks=lite,
            ),
        )

    def _of_tables(self, relayed: RelayRequests) -> tuple[Requests, ...]:
        """Topics, groups, offsets, members and replicas."""
        return (
            ClientRequests(
                turn=self.turn, settings=self.settings, topics=self.topics, groups=self.groups,
                consumers=self.consumers, producers=self.producers, holds=self.holds,
            ),
            GroupRequests(
                turn=self.turn, settings=self.settings, groups=self.groups, offsets=self.offsets,
                consumers=self.consumers, stats=self.stats, saves=self.saves,
            ),
            TopicRequests(
                turn=self.turn, settings=self.settings, store=self.store, topics=self.topics, offsets=self.offsets,
                consumers=self.consumers, stats=self.stats, mappings=self.mappings, lite=self.lite,
                timers=self.timers, saves=self.saves,
            ),
            OffsetRequests(
                turn=self.turn, settings=self.settings, store=self.store, topics=self.topics, groups=self.groups,
                offsets=self.offsets, consumers=self.consumers, replicas=self.replicas,
                reset_by_clients=relayed.reset_by_clients,
            ),
            AssignmentRequests(
                turn=self.turn, settings=self.settings, topics=self.topics, groups=self.groups,
                consumers=self.consumers, pop=self.pop, connections=self.connections,
            ),
            ReplicationRequests(
                turn=self.turn, settings=self.settings, store=self.store, replicas=self.replicas, timers=self.timers,
                delay=self.delay,
            ),
        )

    def _of_operators(self) -> tuple[Requests, ...]:
        """What operators look at and change."""
        progress = Progress(settings=self.settings, store=self.store, offsets=self.offsets, mappings=self.mappings)
        return (
            AdminRequests(
                turn=self.turn, store=self.store, topics=self.topics, offsets=self.offsets, consumers=self.consumers,
                producers=self.producers, stats=self.stats, progress=progress,
            ),
            UpkeepRequests(
                turn=self.turn, settings=self.settings, store=self.store, topics=self.topics, groups=self.groups,
                offsets=self.offsets, consumers=self.consumers, fetches=self.fetches, stats=self.stats,
                progress=progress,
            ),
            RuntimeRequests(
                turn=self.turn, settings=self.settings, store=self.store, disk=self.disk, stats=self.stats,
                live=self.live,
                details=(self.replicas.runtime_info, self.timers.runtime_info, self.delay.runtime_info),
            ),
        )
