"""Settings of a running broker, for a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import rig

from perseid.client.blocking import BlockingAdmin


@contextmanager
def set_for_a_while(cluster: rig.Cluster, setting: str, value: str, afterwards: str) -> Iterator[None]:
    """A broker's setting, for a test; then it is again what other tests rely on."""
    with BlockingAdmin(cluster.namesrv) as admin:
        assert admin._thread is not None and admin._client is not None
        run, client = admin._thread.run, admin._client
        run(client.update_broker_config(cluster.broker, {setting: value}))
        assert run(client.broker_config(cluster.broker))[setting] == value
        try:
            yield
        finally:
            run(client.update_broker_config(cluster.broker, {setting: afterwards}))
