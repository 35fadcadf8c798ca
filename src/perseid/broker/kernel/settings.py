"""The settings as they are now: parts look them up when they need them, for operators change them (`live`)."""

from __future__ import annotations

from perseid.broker.config import BrokerConfig
from perseid.wire.host import Host, host_from


class Settings:
    """Those of one broker."""

    def __init__(self, config: BrokerConfig) -> None:
        self.current = config
        self.store_host: Host = host_from(config.address)
        """As records name the broker that stored them. What it is made of does not change."""
