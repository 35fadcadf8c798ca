"""Is there a name server? Asked before Spark starts, which would be borne for minutes with a wrong address."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from perseid.base.errors import ConfigError
from perseid.client.blocking import BlockingAdmin
from perseid.client.errors import ClientError, ServerRefused
from perseid.wire.codes import ResponseCode

ANSWER_MS = 3000
"""Each address has so long to be reached, and as long again to answer."""
MAX_ASKED = 16
"""Addresses that are asked at the same time."""


def check(nameserver: str) -> None:
    """ConfigError, within seconds, when none of these name servers (`host:port;host:port`) answers as one; it says of
    each why."""
    addresses = list(dict.fromkeys(text.strip() for text in nameserver.replace(",", ";").split(";") if text.strip()))
    if not addresses:
        raise ConfigError("no name server given: --namesrv host:port (several: 'host:port;host:port')")
    with ThreadPoolExecutor(min(len(addresses), MAX_ASKED)) as threads:
        refusals = list(threads.map(_refusal, addresses))
    if all(refusals):
        told = "; ".join(f"{address}: {why}" for address, why in zip(addresses, refusals, strict=True))
        raise ConfigError(f"no name server answers ({told}): give --namesrv the host:port of one that runs")


def _refusal(address: str) -> str:
    """Why there is no name server at an address; empty where there is one."""
    try:
        with BlockingAdmin(address, timeout_ms=ANSWER_MS) as admin:
            admin.cluster_info()
    except ServerRefused as refused:
        return "" if refused.code == ResponseCode.NO_PERMISSION else str(refused)  # it is there
    except ClientError as error:
        return str(error.__cause__ or error)
    return ""
