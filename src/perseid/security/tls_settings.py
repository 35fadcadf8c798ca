"""What a server process is told of TLS: the original's keys, from its own file, from tls.properties and as flags.

In the original these are properties of the JVM (`-Dtls.server.mode=…`); here they may stand in the `-c` file as well.
What tls.properties (`tls.config.file`) says of certificates wins, as there.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace

from perseid.base import config
from perseid.base.config import Setting, option
from perseid.base.errors import ConfigError
from perseid.security import certificates
from perseid.security.certificates import NONE, OPTIONAL, REQUIRE, Own, Terms
from perseid.security.tls import Mode

FILE = "/etc/rocketmq/tls.properties"
"""Read where it is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """The keys. Paths name PEM files."""

    mode: str = option(
        Mode.PERMISSIVE.value, key="tls.server.mode", choices=tuple(each.value for each in Mode), important=True
    )
    """`disabled`, `permissive` (both are taken), `enforcing`."""
    config_file: str = option(FILE, key="tls.config.file")
    test_mode: bool = option(True, key="tls.test.mode.enable")
    """A certificate of our own making where none is named; as a client, any server is trusted."""

    server_key: str = option("", key="tls.server.keyPath")
    server_key_password: str = option("", key="tls.server.keyPassword", secret=True)
    server_certificate: str = option("", key="tls.server.certPath")
    need_client_auth: str = option(NONE, key="tls.server.need.client.auth", choices=(NONE, OPTIONAL, REQUIRE))
    auth_client: bool = option(False, key="tls.server.authClient")
    """Certificates of clients are verified. Without it none is asked for: any would do."""
    server_trust: str = option("", key="tls.server.trustCertPath")

    enable: bool = option(False, key="tls.enable")
    """Connections to other nodes use TLS; `useTLS` says the same."""
    use_tls: bool = option(False, key="useTLS")
    client_key: str = option("", key="tls.client.keyPath")
    client_key_password: str = option("", key="tls.client.keyPassword", secret=True)
    client_certificate: str = option("", key="tls.client.certPath")
    auth_server: bool = option(False, key="tls.client.authServer")
    client_trust: str = option("", key="tls.client.trustCertPath")
    check_host: bool = option(False, key="tls.client.checkHost")
    """Ours: a server's certificate has to name the host that was dialled."""

    protocols: str = option("", key="tls.protocols")
    ciphers: str = option("", key="tls.ciphers")
    ha: bool = option(False, key="haTls")
    """Ours: what is replicated goes over TLS, where master and slave are Perseid's."""

    # ---- what follows ----

    @property
    def own(self) -> Own | None:
        """The server's certificate, where one is named."""
        return _own("server", self.server_certificate, self.server_key, self.server_key_password)

    @property
    def client_own(self) -> Own | None:
        """The certificate that is shown to servers, where one is named."""
        return _own("client", self.client_certificate, self.client_key, self.client_key_password)

    @property
    def terms(self) -> Terms:
        """Versions and ciphers."""
        return Terms(_names(self.protocols), _names(self.ciphers))

    def server_context(self) -> ssl.SSLContext:
        """Of the named certificate. ConfigError when it can't be had."""
        own = self.own
        assert own is not None, "a certificate is named"
        ask = self.need_client_auth if self.auth_client else NONE
        trust = self.server_trust if ask != NONE else ""
        if ask != NONE and not trust:
            raise ConfigError("tls.server.authClient=true needs tls.server.trustCertPath, the clients' CA")
        return certificates.server_context(own, trust=trust, ask=ask, terms=self.terms)

    def client_context(self) -> ssl.SSLContext:
        """For connections to other nodes. ConfigError when a file can't be used."""
        return certificates.client_context(
            trust=self.client_trust if self.auth_server else "",
            own=self.client_own,
            verify=self.auth_server,
            name=self.check_host,
            terms=self.terms,
        )

    @property
    def files(self) -> tuple[str, ...]:
        """All files that are named: when one changes, contexts are made anew."""
        named = (self.server_key, self.server_certificate, self.server_trust)
        return tuple(filter(None, (*named, self.client_key, self.client_certificate, self.client_trust)))


def _own(side: str, certificate: str, key: str, password: str) -> Own | None:
    if not certificate and not key:
        return None
    if not certificate or not key:
        there, missing = ("keyPath", "certPath") if key else ("certPath", "keyPath")
        raise ConfigError(f"tls.{side}.{there} is set and tls.{side}.{missing} is not: a certificate needs both")
    return Own(certificate, key, password)


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (each.strip() for each in text.split(","))))


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a process does about TLS."""

    keys: TlsConfig
    mode: Mode
    dial: bool
    """Connections to other nodes use TLS."""
    made: bool
    """The server's certificate is one of our own making."""
    warnings: tuple[str, ...] = ()

    @property
    def takes(self) -> bool:
        """Connections that begin with TLS are taken."""
        return self.mode is not Mode.DISABLED

    @property
    def certifies(self) -> bool:
        """Clients are asked for certificates, which are verified."""
        return self.takes and not self.made and self.keys.auth_client and self.keys.need_client_auth != NONE

    @property
    def certified_alone(self) -> bool:
        """Nobody is taken without a certificate, nor without TLS."""
        return self.certifies and self.mode is Mode.ENFORCING and self.keys.need_client_auth == REQUIRE

    @property
    def certified_ha(self) -> bool:
        """Only slaves with a certificate are taken at the HA port."""
        return self.keys.ha and self.certifies

    @property
    def certified_group(self) -> bool:
        """Members of a Raft group have to show each other certificates."""
        return self.dial and self.certifies


_ONLY_HERE = ("tls.server.mode", "tls.config.file", "tls.enable", "useTLS", "haTls")
"""Not looked for in tls.properties."""


def read(given: Mapping[str, Setting], file: Mapping[str, Setting]) -> Chosen:
    """What `given` (a node's own file, and flags) and tls.properties say. ConfigError when that can't be."""
    settings = {**given, **{key: one for key, one in file.items() if key not in _ONLY_HERE}}
    settings = {key: one for key, one in settings.items() if one.value}
    asked = settings.get("tls.server.need.client.auth")
    if asked is not None:
        settings[asked.key] = replace(asked, value=asked.value.lower())
    keys = config.build(TlsConfig, settings)
    mode = Mode(keys.mode)
    said = "tls.test.mode.enable" in settings
    test = keys.test_mode if said else not (keys.own or keys.client_own or keys.client_trust)
    warnings = _warnings(keys, test, said)
    if mode is Mode.DISABLED:
        made = False
    elif test:
        made = True
    else:
        made = keys.own is None
        if made and mode is Mode.ENFORCING and said:
            raise ConfigError(
                "tls.server.mode=enforcing and tls.test.mode.enable=false need tls.server.certPath and "
                "tls.server.keyPath: the certificate of this server"
            )
        if made and said:
            warnings.append("TLS is not taken: tls.server.certPath and tls.server.keyPath are not set")
            mode, made = Mode.DISABLED, False
    named = "tls.enable" in settings or "useTLS" in settings
    dial = keys.enable or keys.use_tls if named else mode is Mode.ENFORCING
    if made and mode is Mode.ENFORCING:
        warnings.append(
            "TLS is required, and the certificate is one of our own making, which nobody can verify: set "
            "tls.server.certPath and tls.server.keyPath"
        )
    if (dial or keys.ha) and not keys.auth_server:
        warnings.append(
            "connections to other nodes use TLS, and their certificates are not verified (tls.client.authServer=false)"
        )
    found = Chosen(keys, mode, dial, made)
    if (found.certified_ha or found.certified_group) and keys.client_own is None:
        warnings.append(
            "members of the cluster are asked for certificates, and this one has none to show: set "
            "tls.client.certPath and tls.client.keyPath"
        )
    if keys.ha and mode is Mode.DISABLED:
        warnings.append("haTls=true and tls.server.mode=disabled: slaves without TLS are taken at the HA port")
    return replace(found, warnings=tuple(warnings))


def _warnings(keys: TlsConfig, test: bool, said: bool) -> list[str]:
    found = []
    if said and test and keys.own is not None:
        found.append("tls.test.mode.enable=true: tls.server.certPath has no effect, as on RocketMQ")
    if keys.need_client_auth != NONE and not keys.auth_client:
        found.append(
            f"tls.server.need.client.auth={keys.need_client_auth} has no effect without tls.server.authClient=true: "
            "any certificate would do"
        )
    return found


def flag_of(key: str) -> str:
    """The command line's name of a key: `tls.server.keyPath` is `--tls-server-key-path`."""
    return "--" + re.sub("(?<=[a-z])([A-Z])", r"-\1", key.replace(".", "-")).lower()


DEFAULT = read({}, {})
"""What the original does by default: both kinds of connections are taken, and others are dialled without TLS."""
