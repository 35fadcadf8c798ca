"""TLS of the sources and of the sink: options, or what the command that makes them was told.

The files that they name must be where the driver and the executors run. A key's password is no option, which plans and
logs show: it stands in a file.
"""

from __future__ import annotations

from collections.abc import Mapping

from perseid.base.errors import ConfigError
from perseid.client.tls import ClientTls, default
from perseid.spark.option import SparkOption, names

OPTIONS = (
    SparkOption(
        "tls",
        "`true`: use TLS. Any other TLS option also turns it on. Files must be on the driver and "
        "on all executors. See [security](../security.md).",
        "what `PERSEID_TLS` and so on say; else none",
        "true, false",
    ),
    SparkOption(
        "tls.ca",
        "A PEM file with the CAs of the servers' certificates.",
        "the system's",
    ),
    SparkOption(
        "tls.cert",
        "A PEM file with a certificate to show to servers.",
    ),
    SparkOption(
        "tls.key",
        "A PEM file with its key, if it is not in the same file.",
    ),
    SparkOption(
        "tls.keyPasswordFile",
        "A file with the password of an encrypted key.",
    ),
    SparkOption(
        "tls.verify",
        "`false`: servers' certificates are not verified. For trials only.",
        "true",
        "true, false",
    ),
    SparkOption(
        "tls.serverName",
        "The name that servers' certificates must have.",
        "the host of the address",
    ),
)
NAMES = names(OPTIONS)


def parse(given: Mapping[str, str]) -> ClientTls | None:
    """Of options by their lower-case names; None: without TLS."""
    texts = {name: given[name.lower()] for name in NAMES if given.get(name.lower())}
    if not texts:
        return default()
    for name in ("tls", "tls.verify"):
        if texts.get(name, "true").lower() not in ("true", "false"):
            raise ConfigError(f"{name}={texts[name]!r} is neither true nor false")
    if texts.get("tls", "true").lower() == "false":
        if len(texts) > 1:
            raise ConfigError(f"tls=false and {next(name for name in texts if name != 'tls')}: leave one of them out")
        return None
    return ClientTls(
        ca=texts.get("tls.ca", ""),
        cert=texts.get("tls.cert", ""),
        key=texts.get("tls.key", ""),
        key_password_file=texts.get("tls.keyPasswordFile", ""),
        verify=texts.get("tls.verify", "true").lower() == "true",
        server_name=texts.get("tls.serverName", ""),
    )
