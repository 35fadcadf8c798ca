"""Users: names with a secret, of two types. A Super user may do everything; a Normal one what policies allow."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from perseid.base.errors import RequestRefused
from perseid.wire.codes import ResponseCode

MAX_USERS = 10_000
MAX_NAME_CHARS = 255
MAX_SECRET_CHARS = 1_024
SUPER, NORMAL = "Super", "Normal"
ENABLED, DISABLED = "enable", "disable"
_TYPES = {kind.lower(): kind for kind in (SUPER, NORMAL)}
_STATES = {state.lower(): state for state in (ENABLED, DISABLED)}


def refuse(remark: str, code: int = ResponseCode.NO_PERMISSION) -> RequestRefused:
    """What the original answers when users or policies are wrong: code 16."""
    return RequestRefused(code, remark)


@dataclass(frozen=True, slots=True)
class User:
    """One user. `secret` is what it signs with."""

    name: str
    secret: str = field(repr=False)
    type: str = NORMAL
    status: str = ENABLED

    @property
    def is_super(self) -> bool:
        return self.type == SUPER

    @property
    def is_enabled(self) -> bool:
        return self.status == ENABLED


def user_type(text: str | None) -> str | None:
    """Super or Normal, in any case; None for what is neither, as the original ignores it."""
    return _TYPES.get((text or "").lower())


def user_status(text: str | None) -> str | None:
    """enable or disable, in any case; None for what is neither."""
    return _STATES.get((text or "").lower())


class Users:
    """Those of one node, by name. RequestRefused(16), in the original's words, when a change can't be."""

    def __init__(self) -> None:
        self._users: dict[str, User] = {}

    def __len__(self) -> int:
        return len(self._users)

    def get(self, name: str) -> User | None:
        """The user of that name."""
        return self._users.get(name)

    def listed(self, part: str = "") -> list[User]:
        """Those whose name has this in it, in the order of their names."""
        return [self._users[name] for name in sorted(self._users) if part in name]

    def replace_all(self, users: list[User]) -> None:
        """These are the users from now on."""
        self._users = {user.name: user for user in users}

    def create(self, name: str, secret: str | None, kind: str | None, status: str | None) -> None:
        """A new user; Normal and enabled where nothing else is said."""
        if not (secret or "").strip():
            raise refuse("password can not be blank")
        if name in self._users:
            raise refuse("The user is existed")
        if len(self._users) >= MAX_USERS:
            raise refuse(f"there are {MAX_USERS} users already; delete some")
        assert secret is not None
        self._put(User(name, secret, kind or NORMAL, status or ENABLED))

    def update(self, name: str, secret: str | None, kind: str | None, status: str | None) -> None:
        """Change what is given of a user."""
        old = self._users.get(name)
        if old is None:
            raise refuse("The user is not exist")
        given = secret if secret is not None and secret.strip() else old.secret
        self._put(replace(old, secret=given, type=kind or old.type, status=status or old.status))

    def delete(self, name: str) -> bool:
        """Was there such a user? It is gone."""
        return self._users.pop(name, None) is not None

    def _put(self, user: User) -> None:
        if not user.name.strip():
            raise refuse("username can not be blank")
        for what, text, most in (("username", user.name, MAX_NAME_CHARS), ("password", user.secret, MAX_SECRET_CHARS)):
            if len(text) > most:
                raise refuse(f"{what} has {len(text)} characters, {most} are the most")
        self._users[user.name] = user
