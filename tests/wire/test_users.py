"""Bodies of requests about users and permissions, as the original's classes print and read them."""

from perseid.wire.users import ACLS, USERS, AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo

ACL = (
    b'{"policies":[{"entries":[{"actions":["Pub","Sub"],"decision":"Allow","resource":"Topic:orders",'
    b'"sourceIps":["10.0.0.0/8"]}],"policyType":"Custom"}],"subject":"User:alice"}'
)


def test_an_acl_reads_and_writes_as_the_original_does() -> None:
    entry = PolicyEntryInfo("Topic:orders", ["Pub", "Sub"], ["10.0.0.0/8"], "Allow")
    acl = AclInfo("User:alice", [PolicyInfo("Custom", [entry])])
    assert acl.to_json() == ACL
    assert AclInfo.from_json(ACL) == acl
    assert ACLS.decode(b"[" + ACL + b"]") == [acl]


def test_what_is_missing_is_none_and_is_not_written() -> None:
    user = UserInfo.from_json(b'{"username":"alice"}')
    assert (user.password, user.user_type, user.user_status) == (None, None, None)
    assert user.to_json() == b'{"username":"alice"}'
    assert USERS.decode(b'[{"username":"a","userType":"Super"}]')[0].user_type == "Super"


def test_a_password_is_in_no_repr() -> None:
    assert "open sesame" not in repr(UserInfo("alice", "open sesame", "Super", "enable"))
