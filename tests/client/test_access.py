"""Users and policies: what `Admin` asks a broker, and what it makes of the answers."""

import json
from collections.abc import Callable

import pytest

from perseid.client import Admin, ClientError, Credentials, ServerRefused
from perseid.client.access import policy
from perseid.client.blocking import BlockingAdmin
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.users import UserInfo

from .fake import Answer, FakeServer, in_a_thread, refuse, run

OK = Answer()


def answer(text: str) -> Callable[[Command], Answer]:
    return lambda command: Answer(body=text.encode())


def told(command: Command) -> tuple[dict[str, str], object]:
    return dict(command.ext), json.loads(bytes(command.body)) if command.body else None


def test_users_are_asked_for_as_mqadmin_does() -> None:
    async def test() -> None:
        async with FakeServer() as server, Admin(server.address) as admin:
            at = server.address
            for code in range(3001, 3004):
                server.script[code].append(lambda command: OK)
            await admin.create_user("alice", "secret", at)
            await admin.update_user("alice", at, user_status="disable")
            await admin.delete_user("alice", at)
            create, update, delete = map(told, server.seen)
            assert create == ({"username": "alice"}, {"username": "alice", "password": "secret", "userType": "Normal"})
            assert update == ({"username": "alice"}, {"username": "alice", "userStatus": "disable"})
            assert delete == ({"username": "alice"}, None)

    run(test())


def test_policies_are_asked_for_as_mqadmin_does() -> None:
    async def test() -> None:
        async with FakeServer() as server, Admin(server.address) as admin:
            for code in range(3006, 3009):
                server.script[code].append(lambda command: OK)
            one = policy(["Topic:orders", "Group:g*"], ["Pub", "Sub"], source_ips=["10.0.0.0/8"])
            await admin.create_acl("alice", [one], server.address)
            await admin.update_acl("User:alice", [policy(["*"], ["All"], decision="Deny")], server.address)
            await admin.delete_acl("alice", server.address, resource="Topic:orders", policy_type="Default")
            create, update, delete = map(told, server.seen)
            entry = {"actions": ["Pub", "Sub"], "sourceIps": ["10.0.0.0/8"], "decision": "Allow"}
            entries = [{**entry, "resource": "Topic:orders"}, {**entry, "resource": "Group:g*"}]
            policies = [{"policyType": "Custom", "entries": entries}]
            assert create == ({"subject": "User:alice"}, {"subject": "User:alice", "policies": policies})
            assert update[0] == {"subject": "User:alice"}
            assert update[1] == {
                "subject": "User:alice",
                "policies": [
                    {
                        "policyType": "Custom",
                        "entries": [{"resource": "*", "actions": ["All"], "decision": "Deny"}],
                    }
                ],
            }
            assert delete[0] == {"subject": "User:alice", "policyType": "Default", "resource": "Topic:orders"}

    run(test())


def test_what_is_not_there_is_none() -> None:
    async def test() -> None:
        async with FakeServer() as server, Admin(server.address) as admin:
            for code in (3004, 3005, 3009, 3010):
                server.script[code].append(lambda command: OK)
            assert await admin.user("nobody", server.address) is None
            assert await admin.users(server.address) == []
            assert await admin.acl("nobody", server.address) is None
            assert await admin.acls(server.address) == []
            server.script[3009].append(refuse(ResponseCode.NO_PERMISSION, "The subject is not exist."))
            with pytest.raises(ServerRefused, match="subject is not exist"):
                await admin.acl("nobody", server.address)

    run(test())


def test_lists_are_sorted_and_passwords_are_not_in_their_text() -> None:
    rows = '[{"username":"b","password":"hidden-1","userType":"Super","userStatus":"enable"},{"username":"a"}]'

    async def test() -> None:
        async with FakeServer() as server, Admin(server.address) as admin:
            server.script[3005].append(answer(rows))
            found = await admin.users(server.address, name_part="x")
            assert [user.username for user in found] == ["a", "b"]
            assert found[1].password == "hidden-1" and "hidden" not in repr(found)
            assert server.seen[-1].ext == {"filter": "x"}
            server.script[3010].append(answer('[{"subject":"User:b"},{"subject":"User:a","policies":[]}]'))
            acls = await admin.acls(server.address, subject_part="U", resource_part="T")
            assert [acl.subject for acl in acls] == ["User:a", "User:b"]
            assert server.seen[-1].ext == {"subjectFilter": "U", "resourceFilter": "T"}

    run(test())


@pytest.mark.parametrize("text", ["{", '{"username":"a"}', '["a"]'])
def test_an_answer_that_is_no_list_is_an_error_with_the_address(text: str) -> None:
    async def test() -> None:
        async with FakeServer() as server, Admin(server.address) as admin:
            server.script[3005].append(answer(text))
            with pytest.raises(ClientError, match=f"{server.address}: what it answered can't be read"):
                await admin.users(server.address)

    run(test())


def test_without_asyncio_and_signed() -> None:
    with in_a_thread(FakeServer()) as server:
        acl = '{"subject":"User:a","policies":[{"policyType":"Custom","entries":[]}]}'
        for code, text in {3004: '{"username":"a"}', 3005: "[]", 3009: acl, 3010: f"[{acl}]"}.items():
            server.script[code].append(answer(text))
        for code in (3001, 3002, 3003, 3006, 3007, 3008):
            server.script[code].append(lambda command: OK)
        with BlockingAdmin(server.address, credentials=Credentials("root", "root-secret")) as admin:
            (at,) = admin.masters().values()
            admin.create_user("a", "p", at, user_type="Super")
            admin.update_user("a", at, password="q")
            assert admin.user("a", at) == UserInfo(username="a")
            assert admin.users(at, name_part="a") == []
            admin.create_acl("a", [policy(["*"], ["All"])], at)
            admin.update_acl("a", [policy(["*"], ["Get"])], at)
            found = admin.acl("a", at)
            assert found is not None and admin.acls(at) == [found]
            admin.delete_acl("a", at)
            admin.delete_user("a", at)
        assert [command.code for command in server.seen] == [
            RequestCode.GET_BROKER_CLUSTER_INFO, 3001, 3002, 3004, 3005, 3006, 3007, 3009, 3010, 3008, 3003,
        ]  # fmt: skip
        assert all(command.ext["AccessKey"] == "root" and command.ext["Signature"] for command in server.seen)
