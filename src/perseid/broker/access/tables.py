"""Users and policies as files of a broker: `config/auth/users.json`, whose secrets are sealed, and
`config/auth/acls.json`. Both are saved at the end of the turn that changes them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from perseid.base.errors import RequestRefused, StoreError
from perseid.security.policies import USER, Acl
from perseid.security.sealed import Sealer
from perseid.security.users import User, Users, user_status, user_type
from perseid.wire import fastjson
from perseid.wire.users import ACLS

USERS_PATH = "config/auth/users.json"
ACLS_PATH = "config/auth/acls.json"


class _Row(msgspec.Struct):
    name: str
    type: str
    status: str
    sealed: str


_ROWS = msgspec.json.Decoder(list[_Row])


class UserTable(Users):
    """The users. `changed` is called with each change."""

    def __init__(self, sealer: Sealer | None, changed: Callable[[], None]) -> None:
        """`sealer` is None where no users are kept."""
        super().__init__()
        self.dirty = False
        self._sealer = sealer
        self._changed = changed

    def delete(self, name: str) -> bool:
        """Was there such a user? It is gone."""
        was_there = super().delete(name)
        if was_there:
            self._change()
        return was_there

    def _put(self, user: User) -> None:
        super()._put(user)
        self._change()

    def _change(self) -> None:
        self.dirty = True
        self._changed()

    def to_json(self) -> bytes:
        """The file's text."""
        assert self._sealer is not None, "users are kept without a key"
        seal = self._sealer.seal
        rows = [_Row(user.name, user.type, user.status, seal(user.name, user.secret)) for user in self.listed()]
        return msgspec.json.format(msgspec.json.encode(rows), indent=1)

    def load(self, text: bytes) -> None:
        """Take the file up, where there are users. StoreError when it is none, or the key is another one."""
        if self._sealer is None:
            return
        try:
            rows = _ROWS.decode(text)
        except (ValueError, RecursionError) as error:
            raise StoreError(f"{USERS_PATH} can't be taken up: {error}; repair it, or remove it") from None
        self.replace_all([self._user(row) for row in rows])
        self._changed()

    def _user(self, row: _Row) -> User:
        kind, status = user_type(row.type), user_status(row.status)
        if kind is None or status is None or not row.name.strip():
            what = f"user {row.name!r} has type {row.type!r} and status {row.status!r}"
            raise StoreError(f"{USERS_PATH} can't be taken up: {what}; repair it, or remove it")
        assert self._sealer is not None
        try:
            return User(row.name, self._sealer.unseal(row.name, row.sealed), kind, status)
        except StoreError as error:
            raise StoreError(f"{USERS_PATH}: {error}") from None


class AclTable:
    """Policies by the name of their user. `changed` is called with each change."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.dirty = False
        self.acls: dict[str, Acl] = {}
        self._changed = changed

    def put(self, name: str, acl: Acl | None) -> None:
        """These are the user's policies from now on; None, or one without entries: it has none."""
        if acl is not None and acl.entries:
            self.acls[name] = acl
        elif self.acls.pop(name, None) is None:
            return
        self.dirty = True
        self._changed()

    def to_json(self) -> bytes:
        """The file's text."""
        return fastjson.dumps([self.acls[name].told(name) for name in sorted(self.acls)])

    def load(self, text: bytes) -> None:
        """Take the file up. StoreError when it is none."""
        found = {}
        try:
            for info in ACLS.decode(text):
                subject = info.subject or ""
                if not subject.startswith(USER):
                    raise StoreError(f"{ACLS_PATH} can't be taken up: {subject!r} is no user; repair it, or remove it")
                found[subject.removeprefix(USER)] = Acl.of(info)
        except (ValueError, RecursionError) as error:
            raise StoreError(f"{ACLS_PATH} can't be taken up: {error}; repair it, or remove it") from None
        except RequestRefused as refused:
            raise StoreError(f"{ACLS_PATH} can't be taken up: {refused.remark}; repair it, or remove it") from None
        self.acls = found
        self._changed()
