"""Certificates: contexts for TLS, of PEM files or of what we made ourselves.

What makes certificates (`cryptography`) is imported by who asks for one: a node without TLS never pays for it.
OpenSSL reads the files by their names; nothing else here touches the disk.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, NamedTuple

from perseid.base.errors import ConfigError
from perseid.disk.lent import lent

if TYPE_CHECKING:
    from cryptography import x509

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
"""As Java names them (tls.protocols). Older ones are broken."""
NONE, OPTIONAL, REQUIRE = "none", "optional", "require"
"""Of tls.server.need.client.auth."""
DAYS = 825
"""A certificate of a server or a client is valid for so long, unless told otherwise."""
AUTHORITY_DAYS = 3650
BACKDATED = timedelta(minutes=5)
"""A peer's clock may be behind ours."""


@dataclass(frozen=True, slots=True)
class Own:
    """The files of an own certificate, with its chain, and of its key; `password` of an encrypted key."""

    certificate: str
    key: str
    password: str = ""


@dataclass(frozen=True, slots=True)
class Terms:
    """What both sides of a context share. Empty: what OpenSSL and we allow (TLS 1.2 and 1.3)."""

    versions: Sequence[str] = ()
    ciphers: Sequence[str] = ()
    """Names of OpenSSL or of Java. Those of TLS 1.3 are always allowed."""


NO_TERMS = Terms()


# ---- contexts ----


def server_context(own: Own, *, trust: str = "", ask: str = NONE, terms: Terms = NO_TERMS) -> ssl.SSLContext:
    """Of a server. `trust`: PEM certificates of the CAs of clients; `ask`: whether clients have to show one.
    ConfigError names the file that can't be used."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, terms)
    _load(context, own)
    if trust:
        _trust(context, trust)
        context.verify_mode = ssl.CERT_REQUIRED if ask == REQUIRE else ssl.CERT_OPTIONAL
    return context


def client_context(
    *, trust: str = "", own: Own | None = None, verify: bool = True, name: bool = True, terms: Terms = NO_TERMS
) -> ssl.SSLContext:
    """Of a client. `trust`: PEM certificates of CAs; empty: those of the system. `verify`: the server's certificate is
    checked at all; `name`: and whether it names the host. ConfigError names the file that can't be used."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, terms)
    context.check_hostname = verify and name
    context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
    if trust:
        _trust(context, trust)
    elif verify:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if own is not None:
        _load(context, own)
    return context


def context_of(made: Pair) -> ssl.SSLContext:
    """A server's context of a certificate in memory; clients need none."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, NO_TERMS)
    with lent(made.certificate + made.key) as path:
        context.load_cert_chain(path)
    return context


def _context(protocol: int, terms: Terms) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    # no tickets: each connection is checked against the certificates as they are by then
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_NO_TICKET
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0
    unknown = [each for each in terms.versions if each not in VERSIONS]
    if unknown:
        raise ConfigError(f"tls.protocols={','.join(terms.versions)}: {unknown[0]}: {' or '.join(VERSIONS)} is wanted")
    versions = sorted(VERSIONS[each] for each in terms.versions) or [*VERSIONS.values()]
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    older = [name for each in terms.ciphers if (name := cipher(each))]
    if older:
        try:
            context.set_ciphers(":".join(older))
        except ssl.SSLError:
            raise ConfigError(f"tls.ciphers={','.join(terms.ciphers)}: OpenSSL has none of them") from None
    return context


def cipher(name: str) -> str:
    """OpenSSL's name of a cipher for TLS 1.2, of its own or of Java's name; empty for one of TLS 1.3."""
    if not name.startswith("TLS_"):
        return name
    exchange, found, rest = name.removeprefix("TLS_").partition("_WITH_")
    if not found:
        return ""
    rest = rest.replace("AES_128_CBC", "AES128").replace("AES_256_CBC", "AES256")
    rest = rest.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("POLY1305_SHA256", "POLY1305")
    parts = [rest] if exchange == "RSA" else [exchange, rest]
    return "-".join(parts).replace("_", "-")


def _load(context: ssl.SSLContext, own: Own) -> None:
    for path in (own.certificate, own.key):
        _readable(path)
    asked = False

    def password() -> str:
        nonlocal asked
        asked = True
        return own.password

    try:
        context.load_cert_chain(own.certificate, own.key, password)  # so that OpenSSL never asks on the terminal
    except ssl.SSLError as error:
        both = f"{own.certificate} with the key {own.key}"
        if asked:
            wrong = "not this one" if own.password else "missing"
            raise ConfigError(f"{own.key}: the key is encrypted, and its password is {wrong}") from None
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(f"{both}: the key is not this certificate's") from None
        raise ConfigError(f"{both}: can't be used: {error.reason or error}; PEM files are wanted") from None


def _trust(context: ssl.SSLContext, path: str) -> None:
    _readable(path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise ConfigError(f"{path}: holds no certificates in PEM: {error.reason or error}") from None


def _readable(path: str) -> None:
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise ConfigError(f"{path}: can't be read: {error.strerror or error}") from None


# ---- of our own making ----


class Pair(NamedTuple):
    """A certificate and its key, PEM; the key is not encrypted."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class Wanted:
    """A certificate that is to be made, good from `since` on. `hosts`: names and addresses that a server's may be
    dialled by; a client's has none. `stable`: every certificate and every signature has the same length (Ed25519; for
    the simulator)."""

    name: str
    since: datetime
    hosts: Sequence[str] = ()
    days: int = DAYS
    stable: bool = False


def self_made(wanted: Wanted) -> Pair:
    """A server's certificate that nobody but itself vouches for."""
    return _issue(wanted, None)


def authority(name: str, since: datetime, days: int = AUTHORITY_DAYS, *, stable: bool = False) -> Pair:
    """A CA of one's own."""
    return _issue(Wanted(name, since, days=days, stable=stable), None, ca=True)


def issue(ca: Pair, wanted: Wanted) -> Pair:
    """A certificate of a CA's: for a server when it has `hosts`, else for a client."""
    return _issue(wanted, ca)


def _issue(wanted: Wanted, signer: Pair | None, *, ca: bool = False) -> Pair:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519
    from cryptography.x509.oid import NameOID

    key: Any = ed25519.Ed25519PrivateKey.generate() if wanted.stable else ec.generate_private_key(ec.SECP256R1())
    named = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, wanted.name)])
    issuer, signing = named, key
    if signer is not None:
        issuer = x509.load_pem_x509_certificate(signer.certificate).subject
        signing = serialization.load_pem_private_key(signer.key, None)
    begin = wanted.since - BACKDATED
    builder = (
        x509.CertificateBuilder()
        .subject_name(named)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(_serial(wanted.stable))
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=wanted.days))
    )
    for extension, critical in _extensions(wanted, ca=ca):
        builder = builder.add_extension(extension, critical=critical)
    edwards = isinstance(signing, ed25519.Ed25519PrivateKey)
    made = builder.sign(signing, None if edwards else hashes.SHA256())
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    return Pair(made.public_bytes(pem), key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))


def _serial(stable: bool) -> int:
    from cryptography import x509

    return 1 << 120 if stable else x509.random_serial_number()


def _extensions(wanted: Wanted, *, ca: bool) -> list[tuple[x509.ExtensionType, bool]]:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    keys = x509.KeyUsage(not ca, *(False,) * 4, ca, ca, *(False,) * 2)  # to sign with; of a CA, certificates alone
    found: list[tuple[x509.ExtensionType, bool]] = [
        (x509.BasicConstraints(ca=ca, path_length=0 if ca else None), True),
        (keys, True),
    ]
    if not ca:
        purpose = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if wanted.hosts:
            purpose.append(ExtendedKeyUsageOID.SERVER_AUTH)
            found.append((x509.SubjectAlternativeName([_host(each) for each in wanted.hosts]), False))
        found.append((x509.ExtendedKeyUsage(purpose), False))
    return found


def _host(text: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)
