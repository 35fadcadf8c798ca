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

    authentication_enabled: bool = False
    """Each request has to be signed by a user."""
    authorization_enabled: bool = False
    """Users who are not Super may do what policies allow them."""
    init_authentication_user: str = option("", secret=True)
    """`{"username":"…","password":"…"}`: a Super user, made at a start when there is no user of that name."""
    inner_client_authentication_credentials: str = option("", secret=True)
    """`{"accessKey":"…","secretKey":"…"}`: what this node signs with when it asks others; here a Super user."""
    authentication_whitelist: str = ""
    """Request codes, with commas between them, that need no signature."""
    authorization_whitelist: str = ""
    """Request codes that need no permission."""
    auth_secret_key_file: str = ""
    """A file of 64 hexadecimal digits: the key with which secrets are stored. Empty: one is made beside them."""


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
