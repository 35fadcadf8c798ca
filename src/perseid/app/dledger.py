"""One member of a Raft group as a process: a log that others append to and read (`perseid dledger`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random

from perseid.app import process
from perseid.app.tls import ProcessTls
from perseid.base import config
from perseid.base.config import Foreign, Ignored, Refusal, option
from perseid.base.errors import ConfigError
from perseid.base.original import AUTH_CACHES, AUTH_CLASSES, METRICS, NO_METRICS
from perseid.net.driver import Driver, Listener
from perseid.raft.config import RaftConfig, peers_of
from perseid.raft.files import FileLog
from perseid.raft.log import MemoryLog
from perseid.raft.node import LISTENER, Raft
from perseid.security.members import EVERYBODY, OPEN, MemberOptions, Members, members_of
from perseid.security.tls_settings import DEFAULT, Chosen, TlsConfig

FILE, MEMORY = "FILE", "MEMORY"


_KEEPS = "Perseid keeps it at dledger-ID/data below storeBaseDir"

FOREIGN = Foreign(
    refused=(
        Refusal("dataStorePath", (), f"the log would be there; {_KEEPS}", "move it there"),
        Refusal("readOnlyDataStoreDirs", (), f"older files of the log would be read from there, too; {_KEEPS}",
                "move them there"),
        Refusal("enableLeaderElector", ("true",), "this member would never stand for election nor vote; Perseid's "
                "always do"),
    ),
    ignored=(
        NO_METRICS,
        *AUTH_CLASSES,
        Ignored("enablePushToFollower", ("true",), "a leader always pushes"),
        Ignored("enableFastAdvanceCommitIndex", ("false",), "a commit is told with the next push"),
        Ignored("fileReservedHours", ("72",), "all files are kept"),
        Ignored("deleteWhen", ("04",), "all files are kept"),
    ),
    meaningless=METRICS
    | AUTH_CACHES
    | {
        "configFilePath",
        "diskSpaceRatioToCheckExpired",
        "diskSpaceRatioToForceClean",
        "enableBatchAppend",
        "enableDiskForceClean",
        "enableSnapshot",
        "flushFileInterval",
        "maxBatchAppendIntervalMs",
        "maxBatchAppendSize",
        "maxSnapshotReservedNum",
        "peerPushQuota",
        "peerPushThrottlePoint",
        "resetSnapshotEntriesButKeepLastEntriesNum",
        "resetSnapshotEntriesDelayTime",
        "snapshotEntryResetStrategy",
    },
)  # fmt: skip
"""What is done with DLedger's other keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DLedgerConfig:
    """What concerns the process."""

    store_base_dir: str = option(
        "/tmp/dledgerstore",
        "The folder of the member's log; the files are in `dledger-ID` below it.",
        section="Process",
        important=True,
    )
    store_type: str = option(
        FILE,
        "`FILE` keeps entries on disk. `MEMORY` keeps them until the process ends, for trials.",
        choices=(FILE, MEMORY),
    )


def load(path: Path | None) -> tuple[DLedgerConfig, RaftConfig]:
    """The configuration of a file (or the defaults); ConfigError when it can't be."""
    settings = process.plain(process.read_settings(path), DLedgerConfig, RaftConfig)
    config.refuse(settings, FOREIGN.refused)
    process.report(settings, FOREIGN, DLedgerConfig, RaftConfig, TlsConfig, MemberOptions)
    raft = config.build(RaftConfig, settings)
    if raft.self_id not in peers_of(raft.peers):
        raise ConfigError(f"selfId={raft.self_id} is not among the peers ({raft.peers})")
    return config.build(DLedgerConfig, settings), raft


def driver(own: DLedgerConfig, raft: RaftConfig, tls: ProcessTls, members: Members = OPEN) -> Driver:
    """A member in `storeBaseDir`/dledger-ID, as the original names it, listening where `peers` says. `members`: who is
    answered."""
    disk = process.open_disk(Path(own.store_base_dir).expanduser().absolute() / f"dledger-{raft.self_id}")
    sizes = raft.mapped_file_size_for_entry_data, raft.mapped_file_size_for_entry_index
    log = FileLog(disk, *sizes) if own.store_type == FILE else MemoryLog()
    _, _, port = peers_of(raft.peers)[raft.self_id].rpartition(":")
    listeners = tls.secure({LISTENER: Listener("0.0.0.0", int(port), setting="peers")})
    node = Raft(raft, log, disk, Random())
    node.caller.sign, node.stranger = members.sign, members.stranger
    return Driver(node, disk, listeners, name=raft.self_id, dials=tls.dials())


async def serve(
    own: DLedgerConfig, raft: RaftConfig, chosen: Chosen = DEFAULT, access: MemberOptions = EVERYBODY
) -> int:
    """Run until told to end; the exit code."""
    tls = ProcessTls(chosen)
    running = driver(own, raft, tls, members_of(access))

    async def ready() -> None:
        process.say(f"member {raft.self_id} of {raft.group} listens at {peers_of(raft.peers)[raft.self_id]}")

    return await process.serve([running], ready, tls)
