"""`perseid admin users` and `perseid admin acl`, on two brokers of which each has users of its own."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from tests.cli.users_fake import FakeBrokerOfUsers
from tests.client.fake import in_a_thread
from typer.testing import CliRunner

from perseid.cli import access
from perseid.cli.main import app
from perseid.wire.users import PolicyEntryInfo, UserInfo

SECRET = "hidden-5f3a"
Brokers = tuple[FakeBrokerOfUsers, FakeBrokerOfUsers]


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    with in_a_thread(FakeBrokerOfUsers()) as first, in_a_thread(FakeBrokerOfUsers()) as second:
        assert isinstance(first, FakeBrokerOfUsers) and isinstance(second, FakeBrokerOfUsers)
        yield first, second


def call(brokers: Brokers, *words: str, given: str | None = None) -> Result:
    """On both; whatever is asked, no secret is in what is printed."""
    options = [text for broker in brokers for text in ("-b", broker.address)]
    result = CliRunner().invoke(app, ["admin", *words, *options], input=given)
    assert SECRET not in result.output
    return result


def read(brokers: Brokers, *words: str) -> Any:
    result = call(brokers, *words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def flat(output: str) -> str:
    """Without the box that errors of the command line stand in."""
    return " ".join(output.replace("│", " ").split())


def create(brokers: Brokers, name: str, *more: str) -> None:
    done = call(brokers, "users", "create", name, "--password-file", "-", *more, given=f"{SECRET}\n")
    assert done.exit_code == 0, done.output


def test_users_come_and_go_at_all_brokers(brokers: Brokers) -> None:
    create(brokers, "alice")
    create(brokers, "root", "--super")
    for broker in brokers:
        assert broker.users == {
            "alice": UserInfo("alice", SECRET, "Normal", "enable"),
            "root": UserInfo("root", SECRET, "Super", "enable"),
        }
    both = [broker.address for broker in brokers]
    alice = {"user": "alice", "type": "Normal", "status": "enable", "passwordTold": True, "brokers": both}
    assert read(brokers, "users", "list") == [
        alice, {**alice, "user": "root", "type": "Super"},
    ]  # fmt: skip
    assert read(brokers, "users", "list", "--filter", "ali") == read(brokers, "users", "get", "alice") == [alice]
    assert call(brokers, "users", "update", "alice", "--disable", "--super").exit_code == 0
    assert {broker.users["alice"].user_status for broker in brokers} == {"disable"}
    assert {broker.users["alice"].user_type for broker in brokers} == {"Super"}
    assert {broker.users["alice"].password for broker in brokers} == {SECRET}
    assert call(brokers, "users", "delete", "alice", "--yes").exit_code == 0
    assert [*brokers[0].users] == [*brokers[1].users] == ["root"]


def test_a_password_is_asked_for_or_in_a_file(
    brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = call(brokers, "users", "create", "alice", given=f"{SECRET}\n")
    assert nobody.exit_code == 2 and "--password-file" in nobody.output
    monkeypatch.setattr("perseid.cli.users.at_terminal", lambda: True)
    asked = call(brokers, "users", "create", "alice", given=f"{SECRET}\n{SECRET}\n")
    assert asked.exit_code == 0, asked.output
    assert brokers[1].users["alice"].password == SECRET
    file = tmp_path / "p"
    file.write_text("another\n")
    assert call(brokers, "users", "update", "alice", "--password-file", str(file)).exit_code == 0
    assert brokers[0].users["alice"].password == "another"
    for text in ("", "\n", "x" * 1025):
        file.write_text(text)
        refused = call(brokers, "users", "update", "alice", "--password-file", str(file))
        assert refused.exit_code == 2 and "one line of 1 to 1024" in flat(refused.output)
    gone = call(brokers, "users", "create", "bob", "--password-file", str(tmp_path / "gone"))
    assert gone.exit_code == 2 and "No such file or directory" in flat(gone.output)
    nothing = call(brokers, "users", "update", "alice")
    assert nothing.exit_code == 2 and "say what changes" in nothing.output


def test_a_table_tells_where_users_differ_and_never_a_password(brokers: Brokers) -> None:
    create(brokers, "alice")
    create(brokers, "bob")
    brokers[1].users["bob"] = UserInfo("bob", SECRET + "x", "Normal", "enable")
    shown = call(brokers, "users", "list")
    (alice,) = (line for line in shown.stdout.splitlines() if "alice" in line)
    assert "told" in alice and "all" in alice
    assert sum("bob" in line for line in shown.stdout.splitlines()) == 2
    assert "bob is not the same everywhere" in shown.stderr and "alice is not" not in shown.stderr


def test_what_one_broker_refuses_is_told_and_done_at_the_other(brokers: Brokers) -> None:
    brokers[0].users["alice"] = UserInfo("alice", SECRET, "Normal", "enable")
    done = call(brokers, "users", "create", "alice", "--password-file", "-", given=SECRET)
    assert done.exit_code == 1
    assert done.stdout == f"user alice (Normal) is created at {brokers[1].address}\n"
    assert done.stderr == (
        f"perseid: {brokers[0].address} answered NO_PERMISSION (16): The user is existed\n"
        "  it is there already: perseid admin users update NAME\n"
    )
    again = call(brokers, "users", "create", "alice", "--password-file", "-", "--json", given=SECRET)
    assert again.exit_code == 1
    told = json.loads(again.stdout)
    assert told["done"] == [] and sorted(told["failed"]) == sorted(broker.address for broker in brokers)


@pytest.mark.parametrize(
    ("remark", "step"),
    [
        ("username cannot be null.", "perseid --credentials FILE"),
        ("User:me is not found.", "perseid --credentials FILE"),
        ("check signature failed.", "the key is not that user's"),
        ("User:me has no permission to access Cluster:c from 1.1.1.1, no matched policies.", "a Super user"),
    ],
)
def test_a_refusal_says_what_to_do(brokers: Brokers, remark: str, step: str) -> None:
    for broker in brokers:
        broker.remark = remark
    refused = call(brokers, "users", "list")
    assert refused.exit_code == 1 and refused.stdout == ""
    assert refused.stderr.count(remark) == 2 and step in refused.stderr


def test_who_is_not_there(brokers: Brokers) -> None:
    for words in (["users", "get", "nobody"], ["users", "delete", "nobody", "--yes"]):
        done = call(brokers, *words)
        assert done.exit_code == 1 and "there is no user called nobody" in done.stderr
    assert "perseid admin users create" in call(brokers, "users", "list").stderr
    assert read(brokers, "users", "list") == []


def test_who_deletes_is_asked(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    create(brokers, "alice")
    for words in (["users", "delete", "alice"], ["acl", "delete", "alice"]):
        silent = call(brokers, *words)
        assert silent.exit_code == 2 and "--yes" in silent.stderr
        with monkeypatch.context() as patch:
            patch.setattr(access, "at_terminal", lambda: True)
            assert call(brokers, *words, given="n\n").exit_code == 1
    assert "alice" in brokers[0].users


def test_policies_come_and_go(brokers: Brokers) -> None:
    create(brokers, "alice")
    words = ["-r", "Topic:orders,Group:pay*", "-r", "*", "-a", "pub,SUB", "-i", "10.0.0.0/8", "--deny", "--default"]
    done = call(brokers, "acl", "create", "alice", *words)
    assert done.exit_code == 0 and "alice: not pub, SUB on Topic:orders, Group:pay*, * from 10.0.0.0/8" in done.stdout
    (policy,) = brokers[0].acls["User:alice"].policies or ()
    assert policy.policy_type == "Default"
    assert policy.entries == [
        PolicyEntryInfo(resource, ["Pub", "Sub"], ["10.0.0.0/8"], "Deny")
        for resource in ("Topic:orders", "Group:pay*", "*")
    ]
    (row,) = read(brokers, "acl", "get", "alice")
    assert row == read(brokers, "acl", "list", "--user", "ali")[0]
    assert row["user"] == "alice" and row["brokers"] == [broker.address for broker in brokers]
    assert row["policies"][1] == {
        "policy": "Default",
        "resource": "Group:pay*",
        "actions": ["Pub", "Sub"],
        "decision": "Deny",
        "sourceIps": ["10.0.0.0/8"],
    }
    shown = call(brokers, "acl", "list").stdout
    assert "Group:pay*" in shown and "10.0.0.0/8" in shown and "all" in shown
    assert call(brokers, "acl", "update", "alice", "-r", "Topic:orders", "-a", "All").exit_code == 0
    assert call(brokers, "acl", "delete", "alice", "-r", "Topic:orders", "--default", "--yes").exit_code == 0
    asked = brokers[0].seen[-1].ext
    assert (asked["subject"], asked["resource"], asked["policyType"]) == ("User:alice", "Topic:orders", "Default")
    assert call(brokers, "acl", "delete", "alice", "--yes").exit_code == 0
    assert "resource" not in brokers[0].seen[-1].ext
    assert brokers[0].acls == brokers[1].acls == {}
    assert "alice has no policies" in call(brokers, "acl", "get", "alice").stderr
    again = call(brokers, "acl", "delete", "alice", "--yes")
    assert again.exit_code == 1 and "it has no policies: perseid admin acl list" in again.stderr
    nobody = call(brokers, "acl", "create", "nobody", "-r", "*", "-a", "All")
    assert nobody.exit_code == 1 and "perseid admin users create" in nobody.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["-r", "orders", "-a", "Pub"], "write Topic:NAME"),
        (["-r", "Topic", "-a", "Pub"], "write Topic:NAME"),
        (["-r", "Topik:x", "-a", "Pub"], "write Topic:NAME"),
        (["-r", "Topic:a*b", "-a", "Pub"], "a * stands at the end alone"),
        (["-r", "Topic:a", "-a", "Pub,Subb"], "'Subb'"),
        (["-r", "Topic:a", "-a", "Any"], "'Any'"),
    ],
)
def test_what_a_broker_would_misread_is_not_sent(brokers: Brokers, words: list[str], why: str) -> None:
    refused = call(brokers, "acl", "create", "alice", *words)
    assert refused.exit_code == 2 and why in flat(refused.output)
    assert brokers[0].seen == []


def test_all_brokers_of_a_cluster_are_asked_unless_one_is_named(brokers: Brokers) -> None:
    broker = brokers[0]
    for words in ([], ["-c", "fake"]):
        found = CliRunner().invoke(app, ["admin", "users", "list", "--json", "-n", broker.address, *words])
        assert (found.exit_code, found.stdout) == (0, "[]\n"), found.output
    wrong = CliRunner().invoke(app, ["admin", "users", "list", "-n", broker.address, "-c", "other"])
    assert wrong.exit_code == 1 and "no cluster called other; known are: fake" in wrong.output


PLAIN = """
accounts:
- accessKey: carol
  secretKey: hidden-5f3a
  defaultTopicPerm: SUB
  topicPerms: [orders=PUB]
- accessKey: dave
  secretKey: hidden-5f3a
  admin: true
  whiteRemoteAddress: 10.1.*.*
"""


def test_accounts_of_acl_1_are_shown_and_with_apply_created(brokers: Brokers, tmp_path: Path) -> None:
    (tmp_path / "acl").mkdir()
    (tmp_path / "acl" / "plain_acl.yml").write_text(PLAIN)
    shown = call(brokers, "acl", "import", str(tmp_path))
    assert shown.exit_code == 0 and "Topic:orders" in shown.stdout and "say --apply" in shown.stderr
    assert "dave: from 10.1.*.* its key was not asked for" in shown.stderr
    assert [user["user"] for user in read(brokers, "acl", "import", str(tmp_path))["users"]] == ["carol", "dave"]
    assert not brokers[0].users
    brokers[1].users["dave"] = UserInfo("dave", "other", "Normal", "enable")
    done = call(brokers, "acl", "import", str(tmp_path), "--apply")
    assert done.exit_code == 0, done.output
    assert f"{brokers[0].address}: carol created, dave created" in done.stdout
    assert f"{brokers[1].address}: carol created, dave was there" in done.stdout
    assert brokers[0].users["dave"] == UserInfo("dave", SECRET, "Super", "enable")
    assert brokers[1].users["dave"].password == "other"
    kinds = [one.policy_type for one in brokers[0].acls["User:carol"].policies or ()]
    assert kinds == ["Custom", "Default"]


def test_files_that_are_none_of_acl_1(brokers: Brokers, tmp_path: Path) -> None:
    file = tmp_path / "f.yml"
    for text, why in (("a: [", "it is no YAML, line"), ("a: 1", "no account is in these files")):
        file.write_text(text)
        done = call(brokers, "acl", "import", str(file))
        assert done.exit_code == 1 and why in done.stderr
    assert "No such file" in call(brokers, "acl", "import", str(tmp_path / "gone.yml")).stderr


def test_why_something_is_permitted(brokers: Brokers) -> None:
    create(brokers, "alice")
    create(brokers, "root", "--super")

    def why(user: str, *words: str) -> tuple[int, str]:
        done = call(brokers, "acl", "explain", user, *words)
        return done.exit_code, done.stdout.splitlines()[0].partition(": ")[2]

    orders = ["-r", "Topic:orders", "-a", "Pub"]
    assert why("nobody", *orders) == (1, "nobody may not Pub Topic:orders: there is no such user")
    assert why("root", *orders) == (0, "root may Pub Topic:orders: a Super user may do everything")
    assert why("alice", *orders) == (1, "alice may not Pub Topic:orders: no policy matches")
    assert call(brokers, "acl", "create", "alice", "-r", "Topic:ord*", "-a", "Pub", "-i", "10.0.0.0/8").exit_code == 0
    assert why("alice", *orders, "-i", "10.1.1.1") == (
        0, "alice may Pub Topic:orders: Allow Pub on Topic:ord* from 10.0.0.0/8",
    )  # fmt: skip
    assert why("alice", *orders, "-i", "11.1.1.1")[0] == 1
    assert call(brokers, "acl", "explain", "alice", "-r", "Topic:*", "-a", "Pub").exit_code == 2
