"""A broker that has users and policies, as RocketMQ's answers requests 3001 to 3010: for commands, not for security."""

from __future__ import annotations

from tests.client.fake import Answer, FakeServer, _Peer

from perseid.wire.command import Command
from perseid.wire.headers import users as headers
from perseid.wire.users import AclInfo, UserInfo

REFUSED = 16


class FakeBrokerOfUsers(FakeServer):
    """`users` and `acls` by name and subject; `remark`: refuse everything with it."""

    def __init__(self) -> None:
        super().__init__()
        self.users: dict[str, UserInfo] = {}
        self.acls: dict[str, AclInfo] = {}
        self.remark: str | None = None

    def _refusal(self, remark: str) -> Answer:
        return Answer(REFUSED, remark=remark)

    async def _serve(self, peer: _Peer, command: Command) -> None:
        if self.remark is not None and command.code > 3000:
            remark = self.remark
            self.script[command.code].append(lambda command: self._refusal(remark))
        await super()._serve(peer, command)

    def _on_auth_create_user(self, peer: _Peer, command: Command) -> Answer:
        name = command.header(headers.UserRequest).username or ""
        if name in self.users:
            return self._refusal("The user is existed")
        given = UserInfo.from_json(bytes(command.body))
        self.users[name] = UserInfo(name, given.password, given.user_type, "enable")
        return Answer()

    def _on_auth_update_user(self, peer: _Peer, command: Command) -> Answer:
        name = command.header(headers.UserRequest).username or ""
        old, given = self.users.get(name), UserInfo.from_json(bytes(command.body))
        if old is None:
            return self._refusal("The user is not exist")
        self.users[name] = UserInfo(
            name,
            given.password or old.password,
            given.user_type or old.user_type,
            given.user_status or old.user_status,
        )
        return Answer()

    def _on_auth_delete_user(self, peer: _Peer, command: Command) -> Answer:
        self.users.pop(command.header(headers.UserRequest).username or "", None)
        return Answer()

    def _on_auth_get_user(self, peer: _Peer, command: Command) -> Answer:
        found = self.users.get(command.header(headers.UserRequest).username or "")
        return Answer(body=found.to_json() if found else b"")

    def _on_auth_list_user(self, peer: _Peer, command: Command) -> Answer:
        part = command.header(headers.ListUsersRequest).filter or ""
        rows = [user.to_json() for name, user in self.users.items() if part in name]
        return Answer(body=b"[" + b",".join(rows) + b"]")

    def _on_auth_create_acl(self, peer: _Peer, command: Command) -> Answer:
        subject = command.header(headers.AclRequest).subject or ""
        if subject.removeprefix("User:") not in self.users:
            return self._refusal(f"The subject of {subject} is not exist.")
        self.acls[subject] = AclInfo.from_json(bytes(command.body))
        return Answer()

    _on_auth_update_acl = _on_auth_create_acl

    def _on_auth_delete_acl(self, peer: _Peer, command: Command) -> Answer:
        header = command.header(headers.DeleteAclRequest)
        if header.subject not in self.acls:
            return self._refusal("The acl is not exist.")
        if header.resource is None:
            del self.acls[header.subject]
        return Answer()

    def _on_auth_get_acl(self, peer: _Peer, command: Command) -> Answer:
        subject = command.header(headers.AclRequest).subject or ""
        if subject.removeprefix("User:") not in self.users:
            return self._refusal("The subject is not exist.")
        found = self.acls.get(subject)
        return Answer(body=found.to_json() if found else b"")

    def _on_auth_list_acl(self, peer: _Peer, command: Command) -> Answer:
        part = command.header(headers.ListAclsRequest).subject_filter or ""
        rows = [acl.to_json() for subject, acl in self.acls.items() if part in subject]
        return Answer(body=b"[" + b",".join(rows) + b"]")
