"""A name server and a broker in shards, one for each core: `perseid up --shards N`.

The processes are those that an operator would run: `perseid namesrv -c FILE` and `perseid broker -c FILE --shards N`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perseid.app import process, shards
from perseid.app.ha import ASK_TIMEOUT_MS, BROKER_NAME, HOST, POLL_S, READY_S, Cluster, Member, Plan, name_server
from perseid.app.secured import Secured
from perseid.base.errors import PerseidError
from perseid.net.ports import free_port

STEPS = range(0, shards.PORT_STEP * shards.MAX_SHARDS, shards.PORT_STEP)
PORTS = tuple(shard + step for shard in STEPS for step in (0, -2))
"""That the shards open, from the first one's: each has a second one."""


def plan(data: Path, count: int, *, namesrv_port: int, broker_port: int, secured: Secured | None = None) -> Plan:
    """What is to run on `data`, an absolute path; ports of 0 are free ones."""
    security: Mapping[str, object] = {} if secured is None else {**secured.tls, **secured.members}
    namesrv = f"{HOST}:{namesrv_port or free_port()}"
    port = broker_port or free_port(PORTS[: 2 * count])
    told: dict[str, object] = {
        "brokerName": BROKER_NAME, "brokerIP1": HOST, "listenPort": port, "bindAddress": HOST, "namesrvAddr": namesrv,
        "storePathRootDir": data / "store", **security, **({} if secured is None else secured.broker),
    }  # fmt: skip
    broker = Member("broker", BROKER_NAME, f"{HOST}:{port}", told, ("--shards", str(count)))
    return Plan(data, namesrv, "", (name_server(data, 1, namesrv, security), broker), secured)


def names(count: int) -> list[str]:
    """Of the shards."""
    return [f"{BROKER_NAME}-{shard}" for shard in range(count)]


async def serve(planned: Plan, count: int, *, as_json: bool = False) -> int:
    """Run them until told to end; 0, or 1 when one of them ended by itself or badly."""
    told = process.told_to_end()
    cluster = Cluster(planned)
    try:
        await cluster.start()
        getting_ready = asyncio.ensure_future(_ready(cluster, count))
        ends: set[asyncio.Future[Any]] = {told, getting_ready}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if getting_ready.done():
            _say_ready(planned, getting_ready.result(), as_json=as_json)
            watched = [asyncio.create_task(child.wait(), name=name) for name, child in cluster.children.items()]
            ends = {told, *watched}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for one in watched:
                one.cancel()
        getting_ready.cancel()
        if not told.done():
            cluster.check()
    finally:
        codes = await cluster.end()
    return process.FAILED if any(codes.values()) else process.OK


async def _ready(cluster: Cluster, count: int) -> dict[str, str]:
    """The address of each shard, once the name server knows them all; PerseidError when that takes too long."""
    from perseid.client.admin import Admin
    from perseid.client.errors import ClientError
    from perseid.client.session import Session

    deadline = asyncio.get_running_loop().time() + READY_S
    reached, user = cluster.keys()
    last = "it was not asked yet"
    session = Session(cluster.plan.namesrv, credentials=user, tls=reached)
    async with Admin(session=session, timeout_ms=ASK_TIMEOUT_MS) as admin:
        while asyncio.get_running_loop().time() < deadline:
            cluster.check()
            try:
                known = (await admin.cluster_info()).brokers
                if all(name in known for name in names(count)):
                    return {name: known[name][0] for name in names(count)}
                last = f"it knows {', '.join(known) or 'no broker'}"
            except ClientError as error:
                last = str(error)
            await asyncio.sleep(POLL_S)
    raise PerseidError(
        f"the name server did not know all {count} shards within {READY_S:.0f} s: {last}; logs are in "
        f"{cluster.log_of(BROKER_NAME).parent}"
    )


def _say_ready(planned: Plan, addresses: Mapping[str, str], *, as_json: bool) -> None:
    """The line of `perseid up`, with a broker's address for each shard."""
    secured = planned.secured
    if as_json:
        told = {"event": "ready", "namesrv": planned.namesrv, "brokers": dict(addresses), "data": str(planned.data)}
        process.say(json.dumps(told if secured is None else {**told, "security": secured.told()}))
        return
    process.say(f"ready namesrv={planned.namesrv} brokers={','.join(addresses.values())} data={planned.data}")
    if secured is not None:
        process.say("\n".join(secured.how_to_connect(planned.namesrv)))
