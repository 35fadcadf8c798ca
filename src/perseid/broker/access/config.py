"""What a broker is told about users. Names and defaults are those of AuthConfig; the last one is ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from perseid.base.config import option
from perseid.base.errors import ConfigError
from perseid.security import given
from perseid.security.credentials import Credentials
from perseid.security.sealed import KEY_BYTES
from perseid.security.users import User


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessOptions:
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
    audit_log_enabled: bool = True
    """Where requests have to be signed: who asked for what is written down."""
    audit_log_path: str = ""
    """The folder of `audit.log`. Empty: `audit` below storePathRootDir."""
    audit_log_file_size: int = option(16 << 20, low=1 << 16, high=1 << 30)
    """In bytes: then it becomes `audit.log.1`, which was `audit.log.2`, and so on."""
    audit_log_file_count: int = option(10, low=2, high=1_000)
    """Files that are kept."""
    audit_log_refusals_per_second: int = option(100, low=1, high=100_000)
    """Refusals that have lines; one more line says how many had none."""


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
    audit: Callable[[bytes], None] | None = field(default=None, compare=False, repr=False)
    """Takes the lines of the audit log; None: there is none."""
    audited_refusals_per_second: int = 100


def access_of(options: AccessOptions, key: bytes = b"", audit: Callable[[bytes], None] | None = None) -> Access:
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
        audited_refusals_per_second=options.audit_log_refusals_per_second,
    )
