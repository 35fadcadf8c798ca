"""All parts of a broker, each with the ports that it needs and no more.

Nothing else knows them all but `capabilities`, which tells the kernel of them. A new part is built here, after those
that it stands on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from perseid.broker.access.audit import Audit
from perseid.broker.access.config import Access
from perseid.broker.access.gate import Gate
from perseid.broker.access.tables import AclTable, UserTable
from perseid.broker.admin.live_settings import LivePorts, LiveSettings
from perseid.broker.admin.progress import Progress
from perseid.broker.admin.stats import BrokerStats
from perseid.broker.clients.locks import QueueLocks
from perseid.broker.clients.members import ConsumerTable, ProducerTable
from perseid.broker.clients.relay_requests import RelayRequests
from perseid.broker.clients.relays import Relays
from perseid.broker.config import BrokerConfig
from perseid.broker.consume.fetches import Fetches
from perseid.broker.consume.held_pulls import Holds
from perseid.broker.consume.offsets import ConsumerOffsets
from perseid.broker.consume.pull import PullRequests
from perseid.broker.fast_path.core_turns import CorePorts, commits_of, delays_of, deliveries_of
from perseid.broker.fast_path.plain_sends import QuickSends, SendPorts
from perseid.broker.kernel.acks import Acks
from perseid.broker.kernel.answers import Answers
from perseid.broker.kernel.arrivals import Arrivals
from perseid.broker.kernel.connections import Connections
from perseid.broker.kernel.dispatch import Dispatch
from perseid.broker.kernel.durability import Durability
from perseid.broker.kernel.generation import Generation
from perseid.broker.kernel.intake import Intake
from perseid.broker.kernel.lifecycle import Lifecycle
from perseid.broker.kernel.peers import Peers
from perseid.broker.kernel.roads import Roads
from perseid.broker.kernel.roles import Roles
from perseid.broker.kernel.saves import Saves
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.lite.requests import LiteRequests
from perseid.broker.lite.service import LitePorts, LiteService
from perseid.broker.metadata.groups import SubscriptionGroupTable
from perseid.broker.metadata.topics import TopicTable
from perseid.broker.pop.requests import PopRequests
from perseid.broker.pop.service import PopPorts, PopService
from perseid.broker.pop.topic_routes import Routes
from perseid.broker.produce.admission import Admission
from perseid.broker.produce.appender import Appender, Transformer
from perseid.broker.produce.inner_batches import InnerBatches
from perseid.broker.registration.name_servers import Registration
from perseid.broker.replication.copies import Copies, CopyPorts
from perseid.broker.replication.forwards import Forwards
from perseid.broker.replication.modes.choice import mode_of
from perseid.broker.replication.modes.mode import LaterPorts, ModePorts
from perseid.broker.replication.replicas import Replicas, ReplicasPorts
from perseid.broker.scheduled.delay import DelayService
from perseid.broker.scheduled.escape import Escape
from perseid.broker.scheduled.timers import TimerService
from perseid.broker.static_topics.cleaner import StaticCleaner
from perseid.broker.static_topics.mappings import TopicMappings
from perseid.broker.static_topics.requests import StaticTopicRequests
from perseid.broker.transactions.service import TransactionPorts, TransactionService
from perseid.disk.port import Disk
from perseid.raft.config import RaftConfig
from perseid.raft.files import FileLog
from perseid.replication.config import ReplicationConfig
from perseid.security.authentication import stranger
from perseid.security.sealed import Sealer
from perseid.security.verdicts import Verdicts
from perseid.store.config import SYNC_FLUSH, StoreConfig
from perseid.wire.ids import UniqueIds
from perseid.wire.names import revive_topic
from perseid.wire.rpc import Caller


class Parts:
    """Those of one broker."""

    arrivals: Arrivals
    """Made when it is known what hears of messages (`capabilities.arrange`)."""

    def __init__(
        self, config: BrokerConfig, store: StoreConfig, replication: ReplicationConfig, raft: RaftConfig | None,
        disk: Disk, random: Random, new_log: type[FileLog], access: Access,
    ) -> None:
        self.disk = disk
        self.random = random
        self.settings = Settings(config)
        self.answers = Answers(config)
        self.access = access
        self.caller = Caller()
        self.caller.sign = access.inner.sign if access.inner is not None else None
        self.turn = Turn(self.answers, self.caller)
        self.generation = Generation()
        self.roles = Roles(self.turn, self.settings)
        self.acks = Acks()
        ports = ModePorts(
            turn=self.turn, settings=self.settings, roles=self.roles, acks=self.acks, disk=disk, caller=self.caller
        )
        self.mode = mode_of(ports, replication, store, raft, random, new_log)
        self.store = self.mode.store
        self._build_tables(config)
        self._build_durability()
        self._build_access()
        self._build_waits()
        self._build_scheduled()
        self._build_pop_and_lite()
        self._build_replication()
        self._build_quick_ways()
        self._build_requests()

    def _build_tables(self, config: BrokerConfig) -> None:
        lmq = self.store.appends.lmq
        self.topics = TopicTable(config, 0, lmq=lmq)
        self.store.queues.batch_topics, self.store.compaction.topics = self.topics.batch_topics, self.topics.compacted
        self.mappings = TopicMappings(config.broker_name)
        self.groups = SubscriptionGroupTable(0, lmq=lmq)
        self.offsets = ConsumerOffsets(0, lmq=lmq)
        self.producers = ProducerTable(self.turn, self.settings)
        self.consumers = ConsumerTable(self.turn, self.settings)
        self.locks = QueueLocks()
        one_row = lmq and not config.enable_lmq_stats
        self.stats = BrokerStats(0, self.topics.is_system, one_row_of_lmq=one_row)

    def _build_access(self) -> None:
        access, verdicts = self.access, Verdicts()
        sealer = Sealer(access.key, self.random.randbytes) if access.authenticates else None
        self.users = UserTable(sealer, verdicts.forget)
        self.acls = AclTable(verdicts.forget)
        self.audit: Audit | None = None
        if access.authenticates and access.audit is not None:
            nodes = access.inner.access_key if access.inner is not None else ""
            self.audit = Audit(access.audit, self.turn, nodes)
        users, unsigned = self.users, access.unsigned
        self.mode.guard(
            self.caller.sign, lambda command: stranger(command, users, unsigned) if access.authenticates else ""
        )
        self.gate: Gate | None = None
        if access.authenticates:
            self.gate = Gate(access, self.turn, self.settings, self.users, self.acls, verdicts, self.audit)
            self.dispatch.admit = self.gate.admit

    def _build_durability(self) -> None:
        nodes = self.mode.nodes
        sync_flush = self.store.config.flush_disk_type == SYNC_FLUSH and not nodes.by_quorum
        self.durability = Durability(
            self.turn, self.settings, self.store, nodes, self.acks, self.stats, sync_flush=sync_flush
        )
        self.saves = Saves(self.turn, self.settings, self.store.log, self.store.flusher, self.disk)
        self.roads = Roads()
        self.dispatch = Dispatch(self.turn, self.saves, self.generation, self.caller, self.roads)
        self.connections = Connections(self.turn, self.caller, self.generation, self.mode.stream)
        self.lifecycle = Lifecycle(self.turn, self.dispatch, self.store, self.saves, self.durability, self.roles)

    def _build_waits(self) -> None:
        self.holds = Holds()
        self.fetches = Fetches(self.turn, self.settings, self.connections)
        self.relays = Relays(self.turn, self.caller)
        self.registration = Registration(
            self.turn, self.settings, self.caller, self.topics, self.mappings, self.mode
        )
        self.peers = Peers(self.turn, self.registration)
        self.static_cleaner = StaticCleaner(
            self.turn, self.settings, self.store.reads, self.mappings, self.roles, self.peers
        )

    def _build_scheduled(self) -> None:
        turn, settings, store = self.turn, self.settings, self.store
        self.core_ports = CorePorts(
            turn=turn, settings=settings, store=store, topics=self.topics, holds=self.holds, stats=self.stats,
            durability=self.durability, pop_topic=revive_topic(settings.current.broker_cluster_name),
        )
        self.appender = Appender(turn, store, self.durability, self.stats)
        self.escape = Escape(turn, settings, self.peers)
        delays = partial(delays_of, self.core_ports)
        self.delay = DelayService(turn, settings, store.reads, self.appender, self.escape, delays)
        quick = partial(deliveries_of, self.core_ports)
        self.timers = TimerService(turn, settings, store, self.disk, self.random, self.appender, self.escape, quick)
        self.transformer = Transformer(store, self.timers)
        self.transactions = TransactionService(
            TransactionPorts(
                turn=turn, settings=settings, reads=store.reads,
                queues=store.queues, topics=self.topics, offsets=self.offsets,
                appender=self.appender, transformer=self.transformer, producers=self.producers, escape=self.escape,
                quick=partial(commits_of, self.core_ports),
            )
        )

    def _build_pop_and_lite(self) -> None:
        self.routes_of_topics = Routes(self.turn, self.settings, self.topics)
        self.pop = PopService(
            PopPorts(
                turn=self.turn, settings=self.settings, reads=self.store.reads,
                queues=self.store.queues, topics=self.topics, groups=self.groups,
                offsets=self.offsets, appender=self.appender, holds=self.holds, routes=self.routes_of_topics,
                nodes=self.mode.nodes, alone=not self.mode.elects,
            )
        )
        self.lite = LiteService(
            LitePorts(
                turn=self.turn, settings=self.settings, reads=self.store.reads,
                queues=self.store.queues, store=self.store, topics=self.topics, groups=self.groups,
                offsets=self.offsets, holds=self.holds, stats=self.stats, random=self.random,
                routes=self.routes_of_topics, saves=self.saves, connections=self.connections,
            )
        )

    def _build_replication(self) -> None:
        copies = Copies(
            CopyPorts(
                turn=self.turn, generation=self.generation, topics=self.topics, groups=self.groups,
                offsets=self.offsets, mappings=self.mappings, modes=self.pop.modes, timers=self.timers,
                delay=self.delay,
            )
        )
        self.mode.join(
            LaterPorts(
                registration=self.registration, topics=self.topics, offsets=self.offsets, timers=self.timers,
                delay=self.delay, escape=self.escape, copies=copies, fail=self.lifecycle.fail,
            )
        )
        self.replicas = Replicas(
            ReplicasPorts(
                turn=self.turn, settings=self.settings, store=self.store, roles=self.roles, mode=self.mode,
                copies=copies, forwards=Forwards(self.turn, self.settings, self.mode),
            )
        )

    def _build_quick_ways(self) -> None:
        self.unique_ids = UniqueIds(
            self.settings.store_host.ip, self.random.getrandbits(16), self.random.getrandbits(32)
        )
        self.pulls = PullRequests(
            turn=self.turn, settings=self.settings, store=self.store, topics=self.topics, groups=self.groups,
            offsets=self.offsets, consumers=self.consumers, holds=self.holds, fetches=self.fetches, stats=self.stats,
            replicas=self.replicas,
        )
        self.pop_requests = PopRequests(
            turn=self.turn, settings=self.settings, reads=self.store.reads, topics=self.topics, groups=self.groups,
            appender=self.appender, consumers=self.consumers, holds=self.holds, fetches=self.fetches,
            stats=self.stats, random=self.random, generation=self.generation, pop=self.pop,
        )
        self.quick = QuickSends(
            SendPorts(
                turn=self.turn, settings=self.settings, store=self.store, topics=self.topics, holds=self.holds,
                stats=self.stats, durability=self.durability, answers=self.answers, roles=self.roles,
                mappings=self.mappings, transactions=self.transactions, timers=self.timers, delays=self.delay,
                pulls=self.pulls, generation=self.generation, dispatch=self.dispatch, gate=self.gate,
                pop_topic=self.pop.topic, pops=self.pop_requests, roads=self.roads,
                groups=self.groups, locks=self.locks, saves=self.saves, unique_ids=self.unique_ids,
            )
        )
        self.intake = Intake(
            self.turn, self.dispatch, self.durability, self.connections, self.quick, self.mode.stream
        )

    def _build_requests(self) -> None:
        """What several handlers of requests share."""
        self.admission = Admission(turn=self.turn, settings=self.settings, topics=self.topics, random=self.random)
        self.inner_batches = InnerBatches(
            turn=self.turn, settings=self.settings, appender=self.appender, stats=self.stats, answers=self.answers,
            unique_ids=self.unique_ids,
        )
        self.progress = Progress(
            settings=self.settings, reads=self.store.reads, offsets=self.offsets, mappings=self.mappings
        )
        self.relay_requests = RelayRequests(
            turn=self.turn, settings=self.settings, reads=self.store.reads, topics=self.topics, groups=self.groups,
            offsets=self.offsets, consumers=self.consumers, relays=self.relays,
        )
        self.lite_requests = LiteRequests(
            turn=self.turn, settings=self.settings, reads=self.store.reads,
            queues=self.store.queues, topics=self.topics, groups=self.groups,
            offsets=self.offsets, holds=self.holds, fetches=self.fetches, stats=self.stats, pop=self.pop,
            service=self.lite, connections=self.connections,
        )
        self.static_topics = StaticTopicRequests(
            turn=self.turn, reads=self.store.reads, offsets=self.offsets, mappings=self.mappings, peers=self.peers,
            check_reader=self.pulls.check_reader,
        )

    def take_settings(self, shown: Callable[[], dict[str, str]] | None, path: str, why_not: str) -> None:
        """Settings may change while the broker runs. For the arguments see `LiveSettings`."""
        self.live = LiveSettings(
            LivePorts(
                turn=self.turn, settings=self.settings, store=self.store, disk=self.disk, topics=self.topics,
                durability=self.durability, generation=self.generation, answers=self.answers, mode=self.mode,
                registration=self.registration, saves=self.saves, quick=self.quick,
            ),
            shown, path, why_not,
        )
