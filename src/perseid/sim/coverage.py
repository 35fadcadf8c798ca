"""What a long run has to have met. A kind of fault, state or refusal that never occurred was not tested at all,
so a run of `ENOUGH_SEEDS` or more that misses one has failed."""

from __future__ import annotations

from collections import Counter

from perseid import core
from perseid.sim.features.played import KNOWN
from perseid.sim.models.broker.slaves import KINDS
from perseid.sim.models.raft.run import KINDS as RAFT_KINDS
from perseid.sim.rare_faults import KINDS as RARE_KINDS
from perseid.sim.tls_faults import KINDS as TLS_KINDS

ENOUGH_SEEDS = 200

FAULTS = (
    "broker isolated",
    "chopped bytes",
    "clean restart",
    "clock jump",
    "clock jump by days",
    "connection reset",
    "crash soon again",
    "crash within a call",
    "crash within recovery",
    "disk full",
    "disk pressure",
    "failing create",
    "failing fsync",
    "failing read",
    "failing remove",
    "failing save",
    "half-open connection",
    "hostile peer",
    "name server crash",
    "page cache emptied",
    "partition",
    "partition from the broker",
    "partition to the broker",
    "power cut",
    "power cut within a flush",
    "process crash",
    "refused connects",
    *KINDS,
    "slow fsync",
    "slow reader",
    "stall",
)

CONSEQUENCES = (
    "chopped write",
    "client timeout",
    "connect refused",
    "connect timeout",
    "crash in a job: flush",
    "crash in a job: save",
    "crash within a disk call",
    "crashed within recovery",
    "latency spike",
    "malformed frame refused",
    "power cut: name kept",
    "power cut: name lost",
    "power cut: page drop",
    "power cut: page garbage",
    "power cut: page keep",
    "power cut: page torn",
    "power cut: size lost",
)

FEATURES = {
    "pop": (
        *(("acknowledged on the fast road", "popped on the fast road") if core.compiled is not None else ()),
        "acknowledged one by one in one write",
        "change of an invisible time refused",
        "invisible time changed",
        "pop without a message",
        "popped",
        "popped again",
        "popped and left",
    ),
    "batches": (
        "batch record read",
        "batch record stored",
        "read alone, with BatchCQ",
        "sent to a topic with BatchCQ",
    ),
    "compaction": (
        "nothing was compacted",
        "older messages of a key went",
        "read from a compacted topic",
        "sent to a compacted topic",
    ),
    "lite": (
        "lite ack in vain",
        "lite invisible time changed",
        "lite message acknowledged",
        "lite message left",
        "lite message popped",
        "lite message popped again",
        "lite topics subscribed",
        "sent to a lite topic",
        "subscribed in vain",
    ),
    "static": (
        "logical offset of a group",
        "logical queue moved",
        "logical queue moved to a queue with messages",
        "old step of a mapping refused",
        "read from a logical queue",
        "read from where it was moved to",
        "sent to a logical queue",
        "sent without an offset yet",
        "step of a mapping acknowledged",
    ),
}
"""Feature → what it has to have met, in each model that plays it."""

def of_features(model: str) -> list[str]:
    """What the features of a model have to have met."""
    return [state for name in KNOWN[model] for state in (f"feature {name}", *FEATURES[name])]


TLS_STATES = (
    "TLS demanded",
    "TLS handshake",
    "TLS handshake cut",
    "TLS handshake took too long",
    "a bit flipped on its way",
    "a client without a certificate refused",
    "a client's certificate refused",
    "a server's certificate refused",
    "a member without a certificate refused",
    "plain bytes refused",
    "plain bytes where TLS is taken",
    "spoilt bytes refused",
    *(f"fault {kind}" for kind in TLS_KINDS),
)
USER_STATES = (
    "guest refused",
    "guest served",
    "permission given",
    "permission revoked",
    "signature missing",
    "signature wrong",
    "stranger refused",
)
SECURITY = {"TLS": list(TLS_STATES), "users": list(USER_STATES)}
"""Of the seeds that have one or both (`sim/security.py`)."""

STATES = (
    "offsets of a group are linearizable",
    "queue is linearizable",
    "queue with losses, not checked for linearizability",
    "a fetch failed",
    "a save failed and is tried again",
    "a setting was as it was left",
    "acknowledged by slaves",
    "asked about a half",
    "broker ended: cleanly",
    "broker ended: could not start",
    "broker ended: crash point",
    "broker ended: disk failed",
    "broker registered",
    "committed unasked",
    "committed when asked",
    "fetched from the disk",
    "half set aside",
    "half stored",
    "held pull ended empty",
    "held pull woken by a message",
    "index given up",
    "log file deleted",
    "log file rolled",
    "name server dropped the broker",
    "queue lock refused",
    "queue locked",
    "read from a slave",
    "recovery cut off a tail",
    "rolled back unasked",
    "rolled back when asked",
    "route found",
    "slave ahead of its master",
    "slave follows",
    "slave refused a send",
    "slave refused",
    "slave started",
    "slave wiped",
    "start after a clean stop",
    "start after a crash",
    "stranger cut off",
    "timed message came",
    "topic with BatchCQ",
    "transaction was decided already",
    "unflushed messages lost",
)

ANSWERS = (
    "FLUSH_DISK_TIMEOUT",
    "FLUSH_SLAVE_TIMEOUT",
    "INVALID_PARAMETER",
    "MESSAGE_ILLEGAL",
    "NO_PERMISSION",
    "PULL_NOT_FOUND",
    "PULL_OFFSET_MOVED",
    "PULL_RETRY_IMMEDIATELY",
    "QUERY_NOT_FOUND",
    "REQUEST_CODE_NOT_SUPPORTED",
    "SERVICE_NOT_AVAILABLE",
    "SUCCESS",
    "SYSTEM_ERROR",
    "TOPIC_NOT_EXIST",
)

RAFT_ANSWERS = (
    "INDEX_OUT_OF_RANGE",
    "INCONSISTENT_TERM",
    "LEADER_TRANSFERRING",
    "NOT_LEADER",
    "SUCCESS",
    "TERM_CHANGED",
    "UNKNOWN_MEMBER",
    "WAIT_QUORUM_ACK_TIMEOUT",
)
"""To clients."""

EXPECTED = {
    "faults": [f"fault {name}" for name in FAULTS],
    "what came of them": list(CONSEQUENCES),
    "features": [*FEATURES["pop"], *of_features("broker")],
    "states": list(STATES),
    "answers": [f"answer {name}" for name in ANSWERS],
    **SECURITY,
}


ACTING_EXPECTED = {
    **EXPECTED,
    "features": [*FEATURES["pop"], *of_features("acting")],
    "slaves that act": [
        "a slave acts",
        "committed to who acts",
        "fault master away",
        "locked at who acts",
        "read from who acts",
        "the master goes on where a slave's groups were",
    ],
}
"""Of brokers whose slaves act for their master (`--model acting`)."""


RAFT_STATES = (
    "all lose power after a commit",
    "append acknowledged",
    "became candidate",
    "became follower",
    "became leader",
    "chopped write",
    "committed",
    "connect refused",
    "connect timeout",
    "crash in a job: flush",
    "crash in a job: save",
    "crash within a disk call",
    "doubt: a quorum is deaf",
    "doubt: the leader answers",
    "follower follows",
    "follower had other entries",
    "killed after a cut",
    "killed when it was followed",
    "latency spike",
    "leader met a higher term",
    "leader silent",
    "leader without a quorum",
    "leadership handed over",
    "log cut",
    "member ended: crash point",
    "member ended: disk failed",
    "read",
    "recovery cut off a tail",
    "start from a snapshot",
    "transfer refused",
    "transfer succeeded",
    "vote given",
    "votes: passed",
    "votes: revote immediately",
    "votes: wait to revote",
    "votes: wait to vote next",
)

RAFT_EXPECTED = {
    "faults": [f"fault {name}" for name in RAFT_KINDS],
    "states": list(RAFT_STATES),
    "answers": [f"answer {name}" for name in RAFT_ANSWERS],
    "TLS": list(TLS_STATES),
}

DLEDGER_EXPECTED = {
    "faults": RAFT_EXPECTED["faults"],
    "features": of_features("dledger"),
    "states": [
        "acknowledged",
        "acknowledged: delayed",
        "acknowledged: half",
        "became leader",
        "became master",
        "became slave again",
        "committed unasked",
        "follower had other entries",
        "log cut",
        "message read",
        "older terms committed by a mark",
        "queue is linearizable",
        "recovery cut off a tail",
        "rolled back unasked",
        "timed message came",
    ],
    "answers": [
        f"answer {name}"
        for name in ("PULL_NOT_FOUND", "SERVICE_NOT_AVAILABLE", "SUCCESS", "SYSTEM_BUSY", "SYSTEM_ERROR")
    ],
    **SECURITY,
    "members": ["member without a signature refused"],
}
"""Of brokers in a group."""

HA_KINDS = (
    "active controller killed",
    "address changed",
    "chopped bytes",
    "clean restart",
    "clients cut off",
    "clock jump",
    "connection reset",
    "controller and master killed",
    "controllers cut off",
    "crash within a call",
    "disk full",
    "disk wiped",
    "election ordered",
    "failing fsync",
    "failing save",
    "flapping slave",
    "half open",
    "last in sync killed",
    "master cut off",
    "master deaf or mute",
    "master killed",
    "masters killed in a row",
    "metadata cleaned",
    "name server killed",
    "partition",
    "port of replication shut",
    "power cut",
    "power cut of all",
    "process crash",
    "slow fsync",
    "stall",
    "strangers at the port of replication",
)

HA_MODES = (
    "a broker begins with the last file",
    "a learner",
    "acknowledged by so many nodes",
    "asynchronous flush, and power fails",
    "clocks drift",
    "reported before it is durable, and power fails",
    "so many have to be in sync",
    "synchronous flush, and power stays",
    "unclean elections are allowed",
)

HA_STATES = (
    "a group's offset was asked for",
    "a new master is killed",
    "a wiped broker has everything again",
    "acknowledged by a master that is none any more",
    "acknowledged with 1 in sync",
    "acknowledged with 2 in sync",
    "acknowledged with 3 in sync",
    "acknowledged by 2 nodes",
    "acknowledged by 3 nodes",
    "acknowledged: delayed",
    "acknowledged: half",
    "applied: broker id",
    "applied: cleaned",
    "applied: election",
    "applied: expand",
    "applied: first election",
    "applied: new address",
    "applied: nobody elected",
    "applied: shrink",
    "applied: unclean election",
    "asked about a half",
    "became leader",
    "became master",
    "became master again",
    "became slave",
    "began with the last file",
    "broker ended cleanly",
    "broker ended: could not start",
    "broker ended: crash point",
    "broker ended: disk failed",
    "chopped write",
    "cleaned, comes back with a new id",
    "committed unasked",
    "committed when asked",
    "controller ended cleanly",
    "crash within a disk call",
    "follower had other entries",
    "killed after a cut",
    "leader met a higher term",
    "leader silent",
    "learner follows",
    "log cut",
    "lost with a change of masters: acknowledged",
    "lost with an unclean election: acknowledged",
    "master of a log without its beginning",
    "member ended: disk failed",
    "message read",
    "message read from a slave",
    "queue is linearizable",
    "operator's clean: SUCCESS",
    "operator's elect: CONTROLLER_ELECT_MASTER_FAILED",
    "operator's elect: CONTROLLER_MASTER_STILL_EXIST",
    "operator's elect: SUCCESS",
    "recovery cut off a tail",
    "rolled back unasked",
    "rolled back when asked",
    "route found",
    "route without a master",
    "send refused: too few are in sync",
    "start from a snapshot",
    "stranger cut off",
    "topic forgotten with its master, made anew",
    "wiped with its old id",
    "wiped, has another history than its master",
)

HA_ANSWERS = (
    "answer FLUSH_SLAVE_TIMEOUT",
    "answer PULL_NOT_FOUND",
    "answer PULL_OFFSET_MOVED",
    "answer SERVICE_NOT_AVAILABLE",
    "answer SUCCESS",
    "answer SYSTEM_BUSY",
    "answer SYSTEM_ERROR",
    "control CONTROLLER_ALTER_SYNC_STATE_SET CONTROLLER_BROKER_NOT_ALIVE",
    "control CONTROLLER_ALTER_SYNC_STATE_SET CONTROLLER_INVALID_MASTER",
    "control CONTROLLER_ALTER_SYNC_STATE_SET CONTROLLER_INVALID_REPLICAS",
    "control CONTROLLER_ALTER_SYNC_STATE_SET CONTROLLER_NOT_LEADER",
    "control CONTROLLER_ALTER_SYNC_STATE_SET SUCCESS",
    "control CONTROLLER_APPLY_BROKER_ID CONTROLLER_BROKER_ID_INVALID",
    "control CONTROLLER_APPLY_BROKER_ID SUCCESS",
    "control CONTROLLER_ELECT_MASTER CONTROLLER_ELECT_MASTER_FAILED",
    "control CONTROLLER_ELECT_MASTER CONTROLLER_MASTER_STILL_EXIST",
    "control CONTROLLER_ELECT_MASTER SUCCESS",
    "control CONTROLLER_GET_REPLICA_INFO CONTROLLER_NOT_LEADER",
    "control CONTROLLER_GET_REPLICA_INFO SUCCESS",
    "control CONTROLLER_REGISTER_BROKER SUCCESS",
)

HA_EXPECTED = {
    "faults": [f"fault {name}" for name in HA_KINDS],
    "features": of_features("ha"),
    "modes": [f"mode: {words}" for words in HA_MODES],
    "states": list(HA_STATES),
    "answers": list(HA_ANSWERS),
    **SECURITY,
    "members": ["a controller without a certificate refused", "member without a signature refused"],
}
"""Of controllers and the brokers under them."""

OF_SLAVES = {"faults of swarms": [f"fault slave {name}" for name in RARE_KINDS]}
OF_MEMBERS = {"faults of swarms": [f"fault {name}" for name in RARE_KINDS]}
"""What swarms have to have met besides."""

Expected = dict[str, list[str]]


def missing(counts: Counter[str], expected: Expected = EXPECTED) -> list[str]:
    """What should have occurred and did not."""
    return [name for names in expected.values() for name in names if not counts[name]]


def table(counts: Counter[str], expected: Expected = EXPECTED) -> str:
    """How often each thing that is expected occurred, as lines."""
    lines = []
    for heading, names in expected.items():
        lines.append(heading)
        lines += [f"{counts[name]:>10}  {name}" for name in names]
    return "\n".join(lines)
