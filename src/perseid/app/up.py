"""A name server and a broker in one process: for trying things out, for tests, for small machines."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from perseid.app import access as access_app
from perseid.app import broker as broker_app
from perseid.app import namesrv as namesrv_app
from perseid.app import process
from perseid.app import tls as tls_app
from perseid.app.secured import Secured, secure
from perseid.app.tls import ProcessTls
from perseid.base.config import Setting
from perseid.base.errors import ConfigError
from perseid.broker.access.config import AccessOptions
from perseid.broker.config import BrokerConfig
from perseid.broker.kernel.request import MAIN_LISTENER, VIP_LISTENER
from perseid.nameserver.config import NameServerConfig
from perseid.net.driver import Listener, bind
from perseid.security.members import OPEN
from perseid.security.tls_settings import DEFAULT
from perseid.store.config import StoreConfig

HOST = "127.0.0.1"
NAMESRV_PORT = "--namesrv-port"
BROKER_PORT = "--broker-port"
"""Flags of the command, for its errors."""
FOLDER = "security"
"""Of certificates and keys, below what `--data` names."""
PORT_TRIES = 100
"""Free ports that are tried until one has the port two below it free too."""


def broker_listeners(port: int) -> tuple[int, dict[str, Listener]]:
    """Bound sockets for a broker on `port` (0: a free one) and for its second port; ConfigError if they are taken."""
    for left in range(PORT_TRIES if port == 0 else 1, 0, -1):
        main = bind(HOST, port, BROKER_PORT)
        number = main.getsockname()[1]
        try:
            vip = bind(HOST, number + broker_app.VIP_OFFSET, f"{BROKER_PORT} (this one is 2 below it)")
        except ConfigError:
            main.close()
            if left == 1:
                raise
            continue
        return number, {MAIN_LISTENER: Listener(bound=main), VIP_LISTENER: Listener(bound=vip)}
    raise AssertionError("the last try returns or raises")


def ready_line(namesrv: str, broker: str, data: Path, made: Secured | None, *, as_json: bool) -> str:
    """What the process prints, once, when sends are accepted."""
    if as_json:
        told = {"event": "ready", "namesrv": namesrv, "broker": broker, "data": str(data)}
        return json.dumps(told if made is None else {**told, "security": made.told()})
    ready = f"ready namesrv={namesrv} broker={broker} data={data}"
    return "\n".join([ready, *([] if made is None else made.how_to_connect(namesrv))])


async def serve(
    data: Path,
    namesrv_port: int,
    broker_port: int,
    *,
    as_json: bool = False,
    store: StoreConfig | None = None,
    broker_config: BrokerConfig | None = None,
    secured: bool = False,
) -> int:
    """Run both on `data`, an absolute path, until told to end; the exit code. `secured`: with TLS alone, for clients
    with a certificate of the CA in `data`/security, whose requests are signed."""
    namesrv_socket = bind(HOST, namesrv_port, NAMESRV_PORT)
    namesrv_at = f"{HOST}:{namesrv_socket.getsockname()[1]}"
    number, listeners = broker_listeners(broker_port)
    names = NameServerConfig(
        listen_port=namesrv_socket.getsockname()[1],
        bind_address=HOST,
        kv_config_path=str(data / "namesrv" / "kvConfig.json"),
        config_store_path=str(data / "namesrv" / "namesrv.properties"),
    )
    made = secure(data / FOLDER) if secured else None
    tls = ProcessTls(DEFAULT if made is None else tls_app.chosen(made.tls))
    members = OPEN
    if made is not None:
        members = namesrv_app.members_at(names, access_app.load_members(_settings(made.members)))
    _, name_server = namesrv_app.build(names, Listener(bound=namesrv_socket), tls, members)
    chosen = replace(
        broker_config or BrokerConfig(broker_name="broker-a"),
        broker_ip1=HOST,
        listen_port=number,
        namesrv_addr=namesrv_at,
    )
    loaded = broker_app.Loaded(
        broker_app.ProcessConfig(store_path_root_dir=str(data / "store"), bind_address=HOST),
        chosen,
        replace(store or StoreConfig(), process_id=os.getpid(), physical_memory_bytes=broker_app.memory_bytes()),
        access=AccessOptions() if made is None else access_app.load(_settings(made.broker)),
    )
    node, broker = broker_app.build(loaded, listeners, tls)

    async def ready() -> None:
        await broker.until(lambda: node.parts.registration.registered(namesrv_at))
        process.say(ready_line(namesrv_at, chosen.address, data, made, as_json=as_json))

    return await process.serve([name_server, broker], ready, tls)


def _settings(told: Mapping[str, str]) -> dict[str, Setting]:
    return {key: Setting(key, value, "--secure") for key, value in told.items()}
