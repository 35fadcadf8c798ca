"""What a broker is told about users. Names and defaults are those of AuthConfig; the last one is ours."""

from __future__ import annotations

from dataclasses import dataclass, field

from perseid.base.config import option
from perseid.base.errors import ConfigError
from perseid.security import given
from perseid.security.audit import AuditOptions, Journal
from perseid.security.credentials import Credentials
from perseid.security.sealed import KEY_BYTES
from perseid.security.users import User


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessOptions(AuditOptions):
    """Of users and permissions, as they stand in a file."""

    authentication_enabled: bool = option(
        False,
        "Each request must be signed by a user of this broker. Others are refused (code 16).",
        section="Users and permissions",
    )
    authorization_enabled: bool = option(
        False,
        "Users who are not Super may do what their policies allow, and nothing else. Needs `authenticationEnabled`.",
    )
    init_authentication_user: str = option(
        "",
        'A Super user who is made at a start when no user has that name: `{"username":"…","password":"…"}`. Without '
        "one nobody could make the first user.",
        secret=True,
    )
    inner_client_authentication_credentials: str = option(
        "",
        'What this broker signs with when it asks other nodes: `{"accessKey":"…","secretKey":"…"}`, the same on all '
        "nodes of the cluster. Here it is a Super user. Needed in a DLedger group with `authenticationEnabled`.",
        secret=True,
    )
    authentication_whitelist: str = option(
        "",
        "Request codes, with commas between them, that need no signature.",
    )
    authorization_whitelist: str = option(
        "",
        "Request codes, with commas between them, that need no permission.",
    )
    auth_secret_key_file: str = option(
        "",
        "A file with the key with which users' secrets are stored: 64 hexadecimal digits (`openssl rand -hex 32`). "
        "Keep it outside the store's folder, or whoever has the folder has the secrets.",
        ours=True,
        computed="a key made beside the secrets, with a warning",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The same, checked and taken apart."""

    authenticates: bool = False
    authorizes: bool = False
    initial: User | None = None
    inner: Credentials | None = None
    unsigned: frozenset[int] = frozenset()
    """Codes that need no signature."""
    permitted: frozenset[int] = frozenset()
    """Codes that need no permission."""
    key: bytes = field(default=b"", repr=False)
    """With which secrets are stored."""
    audit: Journal | None = field(default=None, compare=False, repr=False)
    """Who asked for what; None: that is not written down."""


def access_of(options: AccessOptions, key: bytes = b"", audit: Journal | None = None) -> Access:
    """ConfigError, with the setting's name and never its value, when something is not as it has to be."""
    if options.authentication_enabled and len(key) != KEY_BYTES:
        raise ConfigError(f"authSecretKeyFile: {2 * KEY_BYTES} hexadecimal digits are wanted")
    return Access(
        authenticates=options.authentication_enabled,
        authorizes=options.authorization_enabled,
        initial=given.initial_user(options.init_authentication_user),
        inner=given.inner_credentials(options.inner_client_authentication_credentials),
        unsigned=given.codes("authenticationWhitelist", options.authentication_whitelist),
        permitted=given.codes("authorizationWhitelist", options.authorization_whitelist),
        key=key,
        audit=audit,
    )
