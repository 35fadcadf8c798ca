"""A CA with certificates of all kinds, as files, made once in a run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from perseid.security.certificates import Own, Pair, Wanted, authority, issue

PASSWORD = "planted-key-password"
HOSTS = ("localhost", "127.0.0.1")
NOW = datetime.now(UTC).replace(microsecond=0)  # noqa: TID251
LONG_AGO = NOW - timedelta(days=900)


@dataclass(frozen=True, slots=True)
class Files:
    """Names of files."""

    folder: Path

    def path(self, name: str) -> str:
        return str(self.folder / name)

    @property
    def ca(self) -> str:
        return self.path("ca.pem")

    def own(self, name: str, password: str = "") -> Own:
        return Own(self.path(f"{name}.pem"), self.path(f"{name}.key"), password)

    def write(self, name: str, pair: Pair) -> None:
        (self.folder / f"{name}.pem").write_bytes(pair.certificate)
        (self.folder / f"{name}.key").write_bytes(pair.key)


@cache
def files() -> Files:
    """ca, server, other_host, expired, client, expired_client; other_ca, other_server, stranger (a client of the other
    one); encrypted (a server), encrypted_client."""
    made = Files(Path(mkdtemp(prefix="perseid-pki-")))
    ca, other = authority("Test CA", NOW), authority("Other CA", NOW)
    made.write("ca", ca)
    made.write("other_ca", other)
    for name, wanted in {
        "server": Wanted("server", NOW, HOSTS),
        "other_host": Wanted("elsewhere", NOW, ("elsewhere.example",)),
        "expired": Wanted("expired", LONG_AGO, HOSTS),
        "client": Wanted("orders", NOW),
        "expired_client": Wanted("late", LONG_AGO),
    }.items():
        made.write(name, issue(ca, wanted))
    made.write("stranger", issue(other, Wanted("stranger", NOW)))
    made.write("other_server", issue(other, Wanted("other", NOW, HOSTS)))
    sealed = {"encrypted": Wanted("encrypted", NOW, HOSTS), "encrypted_client": Wanted("sealed", NOW)}
    for name, wanted in sealed.items():
        plain = issue(ca, wanted)
        key = load_pem_private_key(plain.key, None)
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSWORD.encode()))
        made.write(name, Pair(plain.certificate, secret))
    return made
