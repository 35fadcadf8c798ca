"""Faults of TLS, for each model in the seeds that have it: they strike connections of whatever listeners there are.

Strangers come without TLS where it is demanded, without a certificate, with one of another CA, or with one that nobody
trusts any more; some say half a handshake and wait. What must not happen then `secured.py` says.
"""

from __future__ import annotations

from perseid.controller.node import LISTENER as CONTROLLER
from perseid.raft.node import LISTENER as GROUP
from perseid.replication.receiver import LISTENER as HA
from perseid.sim.net import End, Network
from perseid.sim.promises import Violation
from perseid.sim.scheduler import US_PER_MS, Stream
from perseid.sim.secured import PLAIN, STEPS, Dress, Secured
from perseid.wire.codes import RequestCode
from perseid.wire.command import encode_request
from perseid.wire.dledger import DLedgerRequest, HeartBeatRequest

TIMES = (2, 4)
"""How often each kind strikes."""
LASTS_MS = (300, 4_000)
STRANGERS = (2, 6)
"""At once."""
AT_MEMBERS, CLAIMS = 0.5, 0.7
"""So many of them come to ports of members; so many of those that get through to a controller speak as one."""
HALF = 0.3
"""So many of those that speak plainly say the first half of a handshake."""
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
"""How each client's first TLS record begins."""
BEAT = encode_request(DLedgerRequest.HEART_BEAT, 1, None, HeartBeatRequest(group="g", remote_id="n0").to_json())
"""As a controller, or a member of a group, says it."""
ASKED = (RequestCode.GET_BROKER_CONFIG, RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_BROKER_CLUSTER_INFO)
MEMBERS = (HA, GROUP, CONTROLLER)
IP = "10.9.8.7"


def plan_tls_faults(network: Network, start_us: int, end_us: int) -> None:
    """Spread them over a time, where there is TLS."""
    if network.tls is not None:
        TlsFaults(network, network.tls).plan(start_us, end_us)


class TlsFaults:
    """Of one run."""

    def __init__(self, network: Network, tls: Secured) -> None:
        self.network, self.tls = network, tls
        self.scheduler = network.scheduler
        self.random: Stream = self.scheduler.stream("tls faults")

    def plan(self, start_us: int, end_us: int) -> None:
        for kind in self.scheduler.chosen.kinds(KINDS):
            times = len(STEPS) - 1 if kind == CHANGED else self.random.randint(*TIMES)
            for _ in range(times):
                self.scheduler.plan(self.random.randrange(start_us, end_us), self.random, self._begin, kind)

    def _begin(self, kind: str) -> None:
        chosen = self.scheduler.chosen
        kind = chosen.kind(kind)
        if chosen.healed_us is None:
            self.network.count(f"fault {kind}")
            self.scheduler.note("fault", kind)
            getattr(self, f"_{kind.replace(' ', '_')}")()

    # ---- what they strike ----

    def _secured_ends(self) -> list[End]:
        """Those of connections that both sides take for ready."""
        ready = [end for end in self.network.ends.values() if end.tls is not None and end.unready is None]
        return [end for end in ready if end.link is not None and end.link.begun and end.other.open]

    def _some(self, ends: list[End]) -> list[End]:
        return self.random.sample(ends, self.random.randint(1, len(ends))) if ends else []

    def _dialled_again(self, ends: list[End]) -> None:
        """Connections break, so that they are begun anew."""
        for end in ends:
            if end.open and end.other.open:
                self.network.reset(end, "connection reset", 0, self.random.randint(0, 1_000))

    # ---- the faults ----

    def _handshakes_cut(self) -> None:
        self.tls.cuts = True
        self.scheduler.after(self.random.randint(*LASTS_MS) * US_PER_MS, self._whole)
        self._dialled_again(self._some(self._secured_ends()))

    def _whole(self) -> None:
        self.tls.cuts = False

    def _certificates_changed(self) -> None:
        """An operator's next step; connections go on with what they have."""
        self.tls.step = min(self.tls.step + 1, len(STEPS) - 1)

    def _somebody_in_a_servers_place(self) -> None:
        """Whoever reconnects to a machine comes to somebody who has no certificate of the CA."""
        servers = [end for end in self._secured_ends() if end.address in self.network.listeners]
        if servers:
            end = self.random.choice(servers)
            machine = end.owner.name
            self.tls.impostors.add(machine)
            self.scheduler.after(self.random.randint(*LASTS_MS) * US_PER_MS, self.tls.impostors.discard, machine)
            self._dialled_again([one for one in servers if one.owner is end.owner])

    def _bits_flip(self) -> None:
        for end in self._some(self._secured_ends()):
            end.spoil = True

    def _strangers_without_certificates(self) -> None:
        for _ in range(self.random.randint(*STRANGERS)):
            at = self.random.randint(0, 2_000) * US_PER_MS
            self.scheduler.after(at, self._comes)

    def _comes(self) -> None:
        listeners = self.network.listeners
        of_members = sorted(each for each, (_, name) in listeners.items() if name in MEMBERS)
        if self.scheduler.chosen.healed_us is None and listeners:
            at_members = bool(of_members) and self.random.random() < AT_MEMBERS
            Stranger(self, self.random.choice(of_members if at_members else sorted(listeners)))


CHANGED = "certificates changed"
KINDS = (
    "bits flip",
    CHANGED,
    "handshakes cut",
    "somebody in a servers place",
    "strangers without certificates",
)


class Stranger:
    """Somebody who belongs to no machine of the run, and asks as if he did."""

    name = "somebody"

    def __init__(self, faults: TlsFaults, address: str) -> None:
        self._random, self._network = faults.random, faults.network
        self._dress: Dress = self._random.choice(faults.tls.strangers())
        self._is_ha = self._network.listeners[address][1] == HA
        certified = faults.tls.certified(GROUP) and self._network.listeners[address][1] == CONTROLLER
        self._claims = certified and self._dress.ca is None and self._random.random() < CLAIMS
        """It says that it is a controller, where these have certificates."""
        self._network.machines[IP] = self.name
        self._network.dial(self, IP, address, stranger=self._dress)

    def opened(self, end: End, listener: str, dialled: str) -> None:
        """It thinks that it has got in."""
        if self._dress is PLAIN and self._random.random() < HALF:
            data = HELLO[: self._random.randint(1, len(HELLO))]
        elif self._claims:
            data = BEAT
        elif self._is_ha:
            data = self._random.randbytes(self._random.randrange(1, 40))
        else:
            data = encode_request(self._random.choice(ASKED), 1, None)
        self._network.write(end, data)

    def connect_failed(self, address: str, reason: str) -> None: ...

    def received(self, end: End, frames: bytearray) -> None:
        link = end.link
        assert link is not None
        is_let_in = (not link.demands_tls) if self._dress.plain else link.begun
        if not is_let_in or self._claims:
            raise Violation("a stranger learns nothing", f"{self._dress.name}: {len(frames)} bytes from {end.other}")

    def closed(self, end: End, reason: str) -> None:
        if self._claims and "without a certificate" in reason:
            self._network.count("a controller without a certificate refused")

