"""Makes a folder of certificates: a CA, and certificates of servers and clients that it vouches for.

Files are their owner's alone. `ca.key` makes further certificates: keep it where no server runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from perseid.base.errors import ConfigError
from perseid.disk.real import FILE_MODE, FOLDER_MODE
from perseid.security.certificates import AUTHORITY_DAYS, DAYS, Pair, Wanted, authority, issue

CA, SERVER, CLIENT = "ca", "server", "client"
LOCAL = ("localhost", "127.0.0.1", "::1")
RENEW = timedelta(days=30)
"""A certificate that ends sooner is made anew at a start of `perseid up --secure`."""


def now() -> datetime:
    """By this machine's clock."""
    return datetime.fromtimestamp(time.time(), UTC)


def make_authority(folder: Path, name: str = "Perseid CA", days: int = AUTHORITY_DAYS) -> Path:
    """A CA in `folder`: its certificate's path. ConfigError when there is one already."""
    path = folder / f"{CA}.pem"
    if path.exists():
        raise ConfigError(f"{path}: is there already; certificates of it would be of no use with another one")
    _write(folder, CA, authority(name, now(), days))
    return path


def make(folder: Path, name: str, hosts: Sequence[str] = (), days: int = DAYS) -> Path:
    """A certificate of the folder's CA, in place of the one of that name: of a server that is dialled by `hosts`, or
    of a client. Its path."""
    if not name or name == CA or "/" in name:
        raise ConfigError(f"{name!r}: no name for a certificate's files")
    try:
        signer = Pair((folder / f"{CA}.pem").read_bytes(), (folder / f"{CA}.key").read_bytes())
    except OSError as error:
        at = error.filename or folder
        raise ConfigError(f"{at}: can't be read: {error.strerror}; `perseid admin certs ca` makes a CA") from None
    try:
        made = issue(signer, Wanted(name, now(), hosts, days))
    except ValueError as error:
        raise ConfigError(f"{folder / CA}.pem, {CA}.key: no CA that can be used: {error}") from None
    _write(folder, name, made)
    return folder / f"{name}.pem"


def ends_soon(path: Path) -> bool:
    """A certificate is not there, or is valid for less than `RENEW`."""
    from cryptography import x509  # dear, for who has certificates

    if not path.exists():
        return True
    found = x509.load_pem_x509_certificate(path.read_bytes())
    return found.not_valid_after_utc - now() < RENEW


def write(path: Path, data: bytes) -> None:
    """A file of its owner alone, whole; its folder is made when it is missing. ConfigError when it can't be."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        number = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
        with open(number, "wb") as file:
            file.write(data)
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        raise ConfigError(f"{error.filename or path}: can't be written: {error.strerror or error}") from None


def _write(folder: Path, name: str, made: Pair) -> None:
    """Both files, the key first."""
    write(folder / f"{name}.key", made.key)
    write(folder / f"{name}.pem", made.certificate)


def secured(folder: Path) -> Mapping[str, str]:
    """The settings of a cluster on this machine that takes TLS alone, with certificates in `folder`; what is missing
    there, or ends soon, is made."""
    if not (folder / f"{CA}.pem").exists():
        make_authority(folder)
    for name, hosts in ((SERVER, LOCAL), (CLIENT, ())):
        if ends_soon(folder / f"{name}.pem"):
            make(folder, name, hosts)
    server, key, ca = folder / f"{SERVER}.pem", folder / f"{SERVER}.key", folder / f"{CA}.pem"
    return {
        "tls.server.mode": "enforcing", "tls.server.certPath": str(server), "tls.server.keyPath": str(key),
        "tls.server.need.client.auth": "require", "tls.server.authClient": "true", "tls.server.trustCertPath": str(ca),
        "tls.client.certPath": str(server), "tls.client.keyPath": str(key), "tls.client.authServer": "true",
        "tls.client.trustCertPath": str(ca), "tls.client.checkHost": "true", "haTls": "true",
    }  # fmt: skip
