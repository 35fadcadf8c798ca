"""What may happen to a broker set and its controllers: the faults of a Raft group, and those of a set."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from perseid.sim.models.broker.slaves import Stranger
from perseid.sim.models.ha.broker import HA_PORT, IDENTITY
from perseid.sim.models.ha.clients import Client, Operator
from perseid.sim.models.raft.group import PORT, Watched
from perseid.sim.models.raft.run import KINDS as OF_GROUPS
from perseid.sim.models.raft.run import LOSING, Faults, both_ways
from perseid.sim.net import End
from perseid.sim.scheduler import US_PER_MS, US_PER_S
from perseid.wire.ha_auto import encode_report, encode_slave_handshake

if TYPE_CHECKING:
    from perseid.sim.models.ha.cluster import Ha
    from perseid.sim.models.ha.members import Replica

OF_SETS = (
    "active controller killed",
    "address changed",
    "controller and master killed",
    "controllers cut off",
    "disk wiped",
    "election ordered",
    "master cut off",
    "master deaf or mute",
    "master killed",
    "metadata cleaned",
    "name server killed",
    "port of replication shut",
    "strangers at the port of replication",
    "clients cut off",
    "clean restart",
    "flapping slave",
    "masters killed in a row",
    "last in sync killed",
)
KINDS = tuple(sorted((*(kind for kind in OF_GROUPS if kind not in ("leader lost with one behind",)), *OF_SETS)))
ONCE = frozenset(("disk wiped", "metadata cleaned", "address changed"))
"""At most one of each in a run: an operator who does more at a time may well lose something."""
OFTEN = frozenset((
    "controllers cut off", "master cut off", "master deaf or mute", "master killed", "masters killed in a row",
    "port of replication shut", "power cut", "power cut of all",
))  # fmt: skip
"""Drawn twice as often as the others: they change masters, and let logs differ."""
SHUTDOWN_US = 30 * US_PER_S


LIVING = 0.6
"""So many operators have the controllers forget a broker that runs, and is in sync perhaps."""


class HaFaults(Faults):
    """Draws them and carries them out."""

    def __init__(self, ha: Ha, clients: Sequence[Client], operator: Operator) -> None:
        super().__init__(ha)
        self.ha, self.clients, self.operator = ha, clients, operator
        self.targets = [*ha.controllers, *ha.replicas]
        self._hasty = ha.scheduler.stream("hasty operators")
        self._done: set[str] = set()
        self._shut: list[str] = []
        self._wiped = 0
        """Whose disk was wiped; 0: nobody's."""

    def kinds(self) -> Sequence[str]:
        able = [kind for kind in KINDS if (self.ha.synced or kind not in LOSING) and kind not in self._done]
        if not self.ha.settings.unclean:
            able.remove("last in sync killed")
        return [*able, *(kind for kind in able if kind in OFTEN)]

    def target(self) -> Watched:
        roll, master = self.random.random(), self.ha.master
        if roll < 0.4 and master is not None:
            return master
        if roll < 0.75:
            return self.random.choice(self.ha.replicas)
        active = [one for one in self.ha.controllers if one.active]
        return self.random.choice(active if active and roll < 0.9 else self.ha.controllers)

    # ---- helpers ----

    def _master(self) -> Replica:
        return self.ha.master or self.random.choice(self.ha.replicas)

    def _slaves(self) -> list[Replica]:
        """Those of the set that run, without the master."""
        return [one for one in self.ha.replicas if one is not self.ha.master and one.look is not None]

    def _split(self, these: list[str], those: list[str]) -> None:
        pairs = both_ways(sorted(these), sorted(those))
        self._cut(pairs)
        self._after(500, 20_000, self._reconnect, pairs)

    # ---- processes ----

    def _master_killed(self, watched: Watched) -> None:
        self._process_crash(self._master())

    def _masters_killed_in_a_row(self, watched: Watched) -> None:
        """Epochs that are over after a few messages."""
        for turn in range(4):
            self.ha.scheduler.after(turn * self.random.randint(150, 900) * US_PER_MS, self._kill_the_master)

    def _kill_the_master(self) -> None:
        master = self.ha.master
        if master is not None and not self.ha.healed:
            (self._power_cut if self.ha.synced and self.random.random() < 0.4 else self._process_crash)(master)

    def _last_in_sync_killed(self, watched: Watched) -> None:
        """A master that has lost its slaves dies: with unclean elections one of those is elected."""
        master, most_ms = self._master(), self.ha.settings.not_caught_up_ms
        self._shut.append(address := f"{master.driver.ip}:{HA_PORT}")
        self.ha.network.shut_port(address)
        self._after(most_ms + 1_000, most_ms + 4_000, self._kill_if_alone, master, address)

    def _kill_if_alone(self, master: Replica, address: str) -> None:
        if self.ha.agreed.members == {master.id} and master.driver.machine is not None and not self.ha.healed:
            self.ha.crash(master)
            self.ha.restart_later(master, 5_000, 15_000)
        self.ha.network.open_port(address)

    def _active_controller_killed(self, watched: Watched) -> None:
        for one in self.ha.controllers:
            if one.active:
                self._process_crash(one)

    def _controller_and_master_killed(self, watched: Watched) -> None:
        """#7689."""
        self._active_controller_killed(watched)
        self._process_crash(self._master())

    def _name_server_killed(self, watched: Watched) -> None:
        names = self.ha.names
        if names.driver.machine is not None:
            names.driver.crash()
            self.ha.restart_later(names, 200, 10_000)

    def _clean_restart(self, watched: Watched) -> None:
        if watched.driver.machine is not None:
            self.ha.down.add(watched.name)
            watched.driver.shut_down()
            self.ha.scheduler.after(SHUTDOWN_US, self._not_ended, watched, watched.driver.lives)
            self.ha.restart_later(watched, 31_000, 33_000)

    def _not_ended(self, watched: Watched, life: int) -> None:
        if watched.driver.machine is not None and watched.driver.lives == life:
            watched.driver.crash("does not end")

    def _flapping_slave(self, watched: Watched) -> None:
        """Its connection to the master breaks again and again."""
        for one in self._slaves()[:1]:
            for turn in range(6):
                self.ha.scheduler.after(turn * 700 * US_PER_MS, self._flap, one)

    def _flap(self, replica: Replica) -> None:
        for end in list(self.ha.network.ends.values()):
            if end.owner is replica.driver and end.other.open and f":{HA_PORT}" in (end.other.address + end.address):
                self.ha.network.reset(end, "flaps", 0, 0)

    # ---- partitions ----

    def _controllers_cut_off(self, watched: Watched) -> None:
        """From one broker, or from all."""
        brokers = [one.name for one in self.ha.replicas]
        some = self.random.choice((brokers, [self._master().name], [self.random.choice(brokers)]))
        names = [one.name for one in self.ha.controllers]
        self._split(some, self.random.choice((names, names[:2], names[1:])))

    def _master_cut_off(self, watched: Watched) -> None:
        """With or without clients, with or without a slave: #7017."""
        master = self._master()
        inside = [master.name, *self.random.choice(([], [one.name for one in self.clients[:2]]))]
        if self.random.random() < 0.4:
            inside += [one.name for one in self._slaves()[:1]]
        everybody = [*(one.name for one in (*self.targets, self.ha.names)), *(one.name for one in self.clients)]
        self._split(inside, [name for name in everybody if name not in inside])

    def _master_deaf_or_mute(self, watched: Watched) -> None:
        """One way: its bytes arrive, and none come back; or the other way round."""
        master = self._master()
        choices: tuple[Sequence[Watched], ...] = (self.ha.replicas, self.ha.controllers, self.targets)
        others = self.random.choice(choices)
        pairs = [(master.name, one.name) for one in others if one is not master]
        if self.random.random() < 0.5:
            pairs = [(b, a) for a, b in pairs]
        self._cut(pairs)
        self._after(500, 20_000, self._reconnect, pairs)

    def _port_of_replication_shut(self, watched: Watched) -> None:
        replica = self._master() if self.random.random() < 0.7 else self.random.choice(self.ha.replicas)
        self._shut_port(f"{replica.driver.ip}:{HA_PORT}")

    def _shut_port(self, address: str) -> None:
        self._shut.append(address)
        self.ha.network.shut_port(address)
        self._after(500, 20_000, self.ha.network.open_port, address)

    def _clients_cut_off(self, watched: Watched) -> None:
        some = [one.name for one in self.random.sample(list(self.clients), len(self.clients) // 2 + 1)]
        self._split([self._master().name], some)

    def _strangers_at_the_port_of_replication(self, watched: Watched) -> None:
        for _ in range(self.random.randint(1, 4)):
            Intruder(self.ha, self._master(), self.random)

    # ---- operators ----

    def _election_ordered(self, watched: Watched) -> None:
        self.operator.elect(self.random.choice([*(one.id for one in self.ha.replicas), 77]))

    def _disk_wiped(self, watched: Watched) -> None:
        """A slave's disk is replaced, and the file with its id put back. While the set serves: a controller's decision
        that is not committed yet may make of a slave the only one in sync, and without its disk nobody may lead."""
        slaves = self._slaves()
        whole = [one for one in self.ha.replicas if one.id in self.ha.agreed.members and one.look is not None]
        if self.ha.serving and len(whole) >= 2 and slaves:
            self._done.add("disk wiped")
            one = self.random.choice(slaves)
            self._wiped = one.id
            self.ha.crash(one)
            self.ha.wipe(one, (IDENTITY,) if self.random.random() < 0.7 else ())
            self.ha.count("wiped with its old id")
            self.ha.restart_later(one, 100, 3_000)

    def _metadata_cleaned(self, watched: Watched) -> None:
        """A slave is stopped and forgotten, or forgotten while it runs; then it comes back without the file with its
        id. Not the last one in sync whose disk was never wiped."""
        agreed = self.ha.agreed
        left = agreed.members - {self._wiped}
        slaves = [one for one in self._slaves() if len(left - {one.id}) and one.id != agreed.master]
        if slaves:
            self._done.add("metadata cleaned")
            one = self.random.choice(slaves)
            if self._hasty.random() < LIVING:
                self.operator.clean(one.id, living=True)
                self._after(10_000, 20_000, self._see_to_it, one)
                return
            self.ha.crash(one)
            self.ha.down.add(one.name)
            self._after(4_000, 8_000, self._clean, one)

    def _clean(self, replica: Replica) -> None:
        self.operator.clean(replica.id)
        self.ha.scheduler.after(2 * US_PER_S, self._cleaned, replica)

    def _cleaned(self, replica: Replica) -> None:
        if replica.driver.machine is None and replica.id not in self.ha.agreed.ids:
            self._forget_id(replica)
        self.ha.restart(replica)

    def _see_to_it(self, replica: Replica) -> None:
        """A broker that was forgotten while it ran gets a new id."""
        if not self.ha.healed and replica.id and replica.id not in self.ha.agreed.ids:
            self.ha.crash(replica)
            self._forget_id(replica)
            self.ha.restart_later(replica, 100, 1_000)

    def _forget_id(self, replica: Replica) -> None:
        replica.driver.disk.failing.pop("remove", None)  # an operator tries until it works
        replica.driver.disk.remove(IDENTITY)
        self.ha.count("cleaned, comes back with a new id")

    def bring_back_forgotten(self) -> None:
        """The operator's order may be carried out long after it was given, when the broker runs again with its old id:
        then no controller knows that, the broker's master says so, and the operator does what is left to do."""
        for one in self.ha.replicas:
            if "metadata cleaned" in self._done and one.id and one.id not in self.ha.agreed.ids:
                self.ha.crash(one)
                self._forget_id(one)
                self.ha.restart(one)

    def _address_changed(self, watched: Watched) -> None:
        """A broker comes back at another address."""
        one = self.random.choice(self.ha.replicas)
        if one.driver.machine is not None:
            self._done.add("address changed")
            self.ha.crash(one)
            self.ha.move(one)
            self.ha.restart_later(one, 50, 5_000)

    def heal(self) -> None:
        """All is well from now on."""
        for address in self._shut:
            self.ha.network.open_port(address)
        super().heal()
        self.ha.restart(self.ha.names)
        self.ha.healed_at_us = self.ha.scheduler.now_us


class Intruder(Stranger):
    """Somebody at a port of replication who is no replica of the set."""

    def __init__(self, ha: Ha, replica: Replica, random: Random) -> None:
        self.ha, self.replica, self.random = ha, replica, random
        ha.network.dial(self, ha.client_ip(self.name), f"{replica.driver.ip}:{HA_PORT}")

    def opened(self, end: End, listener: str, dialled: str) -> None:
        random, log_end = self.random, self.replica.end
        claimed = random.choice((-1, 0, 99, *(one.id for one in self.ha.replicas)))
        greeting = encode_slave_handshake(claimed, from_last_file=False, learner=False)
        ahead = log_end + random.choice((1, 1 << 20, 1 << 60))
        data = random.choice((
            encode_report(log_end),
            encode_report(0) + encode_report(log_end),
            greeting,
            greeting,
            greeting + encode_report(log_end),
            greeting + encode_report(0) + encode_report(ahead),
            greeting + encode_report(ahead),
            greeting + greeting + encode_report(log_end),
            greeting[:12],
            b"\0\0\0\7" + encode_report(log_end),
            random.randbytes(random.randrange(1, 40)),
            encode_report(-1),
        ))  # fmt: skip
        self.ha.network.write(end, data)
        self.end = end
        self.ha.scheduler.after(random.randint(1, 8_000) * US_PER_MS, self._report)

    def _report(self) -> None:
        """After some time it says that it has everything: believed, it would stand for a replica."""
        self.ha.network.write(self.end, encode_report(self.replica.end))

    def closed(self, end: End, reason: str) -> None:
        self.ha.count("stranger cut off")


__all__ = ["KINDS", "PORT", "HaFaults"]
