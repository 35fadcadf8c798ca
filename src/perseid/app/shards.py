"""More cores: one configuration, N brokers, a process each. `perseid broker --shards N`.

Shard i is the broker `brokerName-i` at listenPort + 10·i, with a log of its own in the folder i of storePathRootDir.
Clients spread over them as over any cluster. The supervisor only starts them, starts one that died anew, and ends them
all when it is told to: it touches no message.

N must not shrink below the folders found: what is in the others would be out of everyone's sight.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from perseid.app import process
from perseid.app.broker import Loaded
from perseid.app.children import Child, perseid
from perseid.base.errors import ConfigError
from perseid.security.tls_settings import flag_of

log = logging.getLogger("perseid.shards")

PORT_STEP = 10
MAX_SHARDS = 64
MAX_FAILED_STARTS = 5
"""One after the other, of one shard; then all end."""
SETTLED_S = 10.0
"""A shard that ran for so long had started."""
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 10.0
"""Before a shard is started anew; doubled each time."""
UNSHARDED = "commitlog"
"""A folder of this name in storePathRootDir is that of a broker without shards."""


def of(loaded: Loaded, shard: int, count: int) -> Loaded:
    """The configuration of one shard of `count`: what is in the machine's memory, they share."""
    own = loaded.process
    log = own.store_path_commit_log
    audit = loaded.access.audit_log_path
    shared = f"shards share {loaded.kept_in}: change it there too" if loaded.kept_in is not None else ""
    return replace(
        loaded,
        kept_in=None,
        why_not_kept=shared or loaded.why_not_kept,
        process=replace(
            own,
            store_path_root_dir=str(Path(own.store_path_root_dir) / str(shard)),
            store_path_commit_log=str(Path(log) / str(shard)) if log else "",
        ),
        store=replace(loaded.store, physical_memory_bytes=loaded.store.physical_memory_bytes // count),
        access=replace(loaded.access, audit_log_path=str(Path(audit) / str(shard)) if audit else ""),
        broker=replace(
            loaded.broker,
            broker_name=f"{loaded.broker.broker_name}-{shard}",
            listen_port=loaded.broker.listen_port + PORT_STEP * shard,
        ),
    )


def check(loaded: Loaded, count: int) -> None:
    """ConfigError when `count` shards (0: a broker without any) don't fit the folders that are there."""
    root = Path(loaded.process.store_path_root_dir)
    found = [int(folder.name) for folder in root.glob("[0-9]*") if folder.name.isdecimal() and folder.is_dir()]
    if found and max(found) >= count:
        raise ConfigError(f"{root}: has a log of shard {max(found)}: start it with --shards {max(found) + 1} at least")
    log = loaded.process.store_path_commit_log
    elsewhere = bool(log) and any(one.is_file() for one in Path(log).glob("[0-9]*"))
    if count and ((root / UNSHARDED).exists() or elsewhere):
        raise ConfigError(f"{root}: has the log of a broker without shards: choose another storePathRootDir")
    last = loaded.broker.listen_port + PORT_STEP * (count - 1) + 1
    if count and last > 65_535:
        raise ConfigError(f"listenPort={loaded.broker.listen_port}: the last of {count} shards would need port {last}")


def commands(config_file: Path | None, namesrv: str | None, count: int, flags: Mapping[str, str]) -> list[list[str]]:
    """What runs each shard; `flags` of TLS, by their keys."""
    return [_command(config_file, namesrv, number, count, flags) for number in range(count)]


def _command(
    config_file: Path | None, namesrv: str | None, shard: int, count: int, flags: Mapping[str, str]
) -> list[str]:
    own = perseid("broker", "--shard", str(shard), "--shards", str(count))
    own += ["-c", str(config_file)] if config_file is not None else []
    for key, value in flags.items():
        own += [flag_of(key), value]
    return own + (["-n", namesrv] if namesrv is not None else [])


async def serve(commands: Sequence[Sequence[str]]) -> int:
    """Run shards until told to end; 0 when all ended well, 1 when one could not be kept running."""
    told = process.told_to_end()
    shards = [Child(f"shard {number}", command) for number, command in enumerate(commands)]
    keepers = [asyncio.create_task(_keep(shard), name=shard.name) for shard in shards]
    await asyncio.wait({told, *keepers}, return_when=asyncio.FIRST_COMPLETED)
    lost = any(keeper.done() for keeper in keepers)
    for keeper in keepers:
        keeper.cancel()
    await asyncio.gather(*keepers, return_exceptions=True)
    codes = await asyncio.gather(*(shard.end() for shard in shards))
    return process.FAILED if lost or any(codes) else process.OK


async def _keep(shard: Child) -> None:
    """Run a shard, again and again; returns when it does not start."""
    loop, failed_starts = asyncio.get_running_loop(), 0
    while True:
        began = loop.time()
        await shard.start()
        code = await shard.wait()
        failed_starts = 1 if loop.time() - began >= SETTLED_S else failed_starts + 1
        wait = min(FIRST_WAIT_S * 2 ** (failed_starts - 1), LONGEST_WAIT_S)
        if failed_starts == MAX_FAILED_STARTS:
            log.error("%s ended with code %d, %d times at its start: all shards end", shard.name, code, failed_starts)
            return
        log.error("%s ended with code %d; it is started again in %.1f s", shard.name, code, wait)
        await asyncio.sleep(wait)
