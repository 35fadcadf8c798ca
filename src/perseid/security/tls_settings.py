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
        Mode.PERMISSIVE.value,
        "`disabled`: no TLS. `permissive`: a client may speak TLS or not. `enforcing`: connections without TLS are "
        "closed, and this node dials others with TLS (unless `tls.enable` says otherwise).",
        section="Connections that are taken",
        key="tls.server.mode",
        choices=tuple(each.value for each in Mode),
        important=True,
    )
    config_file: str = option(
        FILE,
        "A properties file with the `tls.…` keys of certificates. It is read where it is there, and wins over the "
        "node's own file.",
        key="tls.config.file",
    )
    test_mode: bool = option(
        True,
        "`true`, when written out: the node uses a certificate that it makes itself, which nobody can verify, and "
        "ignores named ones, as RocketMQ does. Left out: it does so only when no certificate is named.",
        key="tls.test.mode.enable",
    )

    server_key: str = option(
        "",
        "The PEM file with the private key of the certificate. Needed with `tls.server.certPath`.",
        section="The node's certificate",
        key="tls.server.keyPath",
    )
    server_key_password: str = option(
        "",
        "The password of an encrypted key.",
        key="tls.server.keyPassword",
        secret=True,
    )
    server_certificate: str = option(
        "",
        "The PEM file with the node's certificate and its chain. It is read again when it changes; connections that "
        "are open go on.",
        key="tls.server.certPath",
    )

    need_client_auth: str = option(
        NONE,
        "Whether clients must show a certificate: `none`, `optional`, `require`. Has an effect only with "
        "`tls.server.authClient=true`.",
        section="Certificates of clients",
        key="tls.server.need.client.auth",
        choices=(NONE, OPTIONAL, REQUIRE),
    )
    auth_client: bool = option(
        False,
        "Clients' certificates are verified against `tls.server.trustCertPath`. Without it none is asked for.",
        key="tls.server.authClient",
    )
    server_trust: str = option(
        "",
        "The PEM file with the CAs of clients' certificates. Needed with `tls.server.authClient=true`.",
        key="tls.server.trustCertPath",
    )

    enable: bool = option(
        False,
        "This node dials others with TLS. With `tls.server.mode=enforcing` that is so by default.",
        section="Connections to other nodes",
        key="tls.enable",
    )
    use_tls: bool = option(
        False,
        "The same as `tls.enable`, under the name that brokers' files have.",
        key="useTLS",
    )
    client_key: str = option(
        "",
        "The PEM file with the key of `tls.client.certPath`.",
        key="tls.client.keyPath",
    )
    client_key_password: str = option(
        "",
        "The password of that key, if it is encrypted.",
        key="tls.client.keyPassword",
        secret=True,
    )
    client_certificate: str = option(
        "",
        "The PEM file with the certificate that this node shows to others. Needed where they ask for one.",
        key="tls.client.certPath",
    )
    auth_server: bool = option(
        False,
        "Other nodes' certificates are verified. Without it the node trusts any, and says so at the start.",
        key="tls.client.authServer",
    )
    client_trust: str = option(
        "",
        "The PEM file with the CAs of other nodes' certificates. Empty: the system's.",
        key="tls.client.trustCertPath",
    )
    check_host: bool = option(
        False,
        "A node's certificate must also name the host that was dialled. Needs `tls.client.authServer`.",
        key="tls.client.checkHost",
        ours=True,
    )

    protocols: str = option(
        "",
        "TLS versions that are allowed, with commas between them.",
        section="Both",
        key="tls.protocols",
        computed="TLSv1.2,TLSv1.3",
    )
    ciphers: str = option(
        "",
        "Ciphers that are allowed, with commas between them, by OpenSSL's or Java's names. Those of TLS 1.3 are always "
        "allowed.",
        key="tls.ciphers",
        computed="OpenSSL's",
    )
    ha: bool = option(
        False,
        "Replication between a master and its slaves goes over TLS; both must be Perseid's, and have the setting.",
        key="haTls",
        ours=True,
    )

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
