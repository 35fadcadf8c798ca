"""Users and permissions of a server process: what its file says, and the key with which secrets are stored."""

from __future__ import annotations

import ipaddress
import logging
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from perseid.app.rotated import RotatedFile
from perseid.base.config import Setting, build
from perseid.base.errors import ConfigError
from perseid.broker.access.config import Access, AccessOptions, access_of
from perseid.security.audit import AuditOptions, Journal
from perseid.security.members import MemberOptions, Members, members_of
from perseid.security.sealed import KEY_BYTES
from perseid.security.tls_settings import DEFAULT, Chosen

log = logging.getLogger("perseid.access")

KEY_FILE = Path("config/auth/secret.key")
"""Below the store's folder, where no other file is named."""
AUDIT_FOLDER, AUDIT_FILE = "audit", "audit.log"
_HOW = f"{2 * KEY_BYTES} hexadecimal digits in a file of its own are wanted: `openssl rand -hex {KEY_BYTES}`"


def load(settings: Mapping[str, Setting]) -> AccessOptions:
    """What a file says. ConfigError when it makes no sense."""
    options = build(AccessOptions, settings)
    if options.authorization_enabled and not options.authentication_enabled:
        raise ConfigError(
            f"{settings['authorizationEnabled'].where}: authorizationEnabled=true: anybody could pass "
            "for any user; set authenticationEnabled=true, too"
        )
    return options


def load_members(settings: Mapping[str, Setting]) -> MemberOptions:
    """What the file of a name server or a controller says."""
    return build(MemberOptions, settings)


def members(options: MemberOptions, root: Path, *, certified: bool = False) -> Members:
    """Who may speak as a member at a name server or a controller whose own files are in `root`. ConfigError when that
    can't be told."""
    journal = _audit(options, root) if options.authentication_enabled else None
    return members_of(options, certified=certified, journal=journal)


def access(options: AccessOptions, root: Path) -> Access:
    """Who may do what at a node whose store is at `root`. ConfigError when that can't be told."""
    if not options.authentication_enabled:
        return access_of(options)
    return access_of(options, _key(options, root), _audit(options, root))


def _audit(options: AuditOptions, root: Path) -> Journal | None:
    """The audit log of a node whose own files are in `root`."""
    if not options.audit_log_enabled:
        return None
    folder = Path(options.audit_log_path).expanduser() if options.audit_log_path else root / AUDIT_FOLDER
    file = RotatedFile(folder / AUDIT_FILE, options.audit_log_file_size, options.audit_log_file_count)
    return Journal(file.write, options.audit_log_refusals_per_second)


def _key(options: AccessOptions, root: Path) -> bytes:
    if options.auth_secret_key_file:
        return _read(Path(options.auth_secret_key_file).expanduser())
    path = root / KEY_FILE
    if not path.exists():
        _make(path)
        log.warning(
            "authSecretKeyFile is not set: secrets of users are stored with a key beside them (%s), so whoever has the "
            "folder has both; keep the key elsewhere, and name it in authSecretKeyFile",
            path,
        )
    return _read(path)


def _make(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(file, secrets.token_hex(KEY_BYTES).encode())
        os.fsync(file)
    finally:
        os.close(file)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _read(path: Path) -> bytes:
    try:
        text = path.read_text().strip()
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"authSecretKeyFile={path}: {error}; {_HOW}") from None
    if stat.S_IMODE(mode) & 0o077:
        log.warning("authSecretKeyFile=%s can be read by others than its owner: chmod 600 it", path)
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigError(f"authSecretKeyFile={path}: that is no key; {_HOW}")
    return key


def warn_if_open(what: str, host: str, port: int, options: AccessOptions | MemberOptions, tls: Chosen) -> None:
    """One line, where everybody who reaches the machine may do everything."""
    if options.authentication_enabled or tls.certified_alone or _is_loopback(host):
        return
    if isinstance(options, AccessOptions):
        may, users = "read, write and administer", ", authorizationEnabled=true and initAuthenticationUser"
    else:
        may = "say which brokers there are, and change settings"
        users = " and innerClientAuthenticationCredentials"
    log.warning(
        "%s: whoever reaches %s:%d may %s: set authenticationEnabled=true%s, or tls.server.mode=enforcing and "
        "tls.server.need.client.auth=require, or bindAddress=127.0.0.1 (docs/security.md)",
        what, host, port, may, users,
    )  # fmt: skip


def warn_if_ha_is_open(
    host: str, port: int, options: AccessOptions, *, members_alone: bool, tls: Chosen = DEFAULT
) -> None:
    """One line, where clients have to say who they are, and whoever reaches the HA port may copy all messages: its
    stream has nothing to sign. `members_alone`: others are turned away there."""
    closed = options.authentication_enabled or tls.certified_alone
    if closed and not members_alone and not _is_loopback(host):
        log.warning(
            "HA port %s:%d: whoever reaches it may copy all messages, without a signature: set haTls=true, "
            "tls.server.authClient=true, tls.server.need.client.auth=require and tls.server.trustCertPath, or let "
            "nobody reach it but the slaves (docs/security.md)",
            host, port,
        )  # fmt: skip


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
