"""One list of the system's names (issue 20, number 9), and who asks it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import perseid
from perseid.wire import names

SOURCE = Path(perseid.__file__).parent


@pytest.mark.parametrize(
    ("topic", "reserved", "system", "of_group"),
    [
        ("TBW102", True, True, False),
        ("SCHEDULE_TOPIC_XXXX", True, True, False),
        ("BenchmarkTest", True, True, False),
        ("SELF_TEST_TOPIC", True, True, False),
        ("OFFSET_MOVED_EVENT", True, True, False),
        ("RMQ_SYS_TRACE_TOPIC", True, True, False),
        ("RMQ_SYS_TRANS_HALF_TOPIC", True, True, False),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", True, True, False),
        ("TRANS_CHECK_MAX_TIME_TOPIC", True, True, False),
        ("CHECKPOINT_TOPIC", True, True, False),
        ("rmq_sys_wheel_timer", True, True, False),
        ("rmq_sys_REVIVE_LOG_DefaultCluster", True, True, False),
        ("RMQ_SYS_TRACE_OF_MINE", False, True, False),
        ("%RETRY%g", False, False, True),
        ("%DLQ%g", False, False, True),
        ("orders", False, False, False),
        ("TBW102_made", False, False, False),
        ("SCHEDULE_TOPIC_XXXX2", False, False, False),
        ("my_rmq_sys_", False, False, False),
        ("rmq_SYS_x", False, False, False),
        ("BenchmarkTest2", False, False, False),
        ("RETRY%g", False, False, False),
    ],
)
def test_what_is_the_systems(topic: str, reserved: bool, system: bool, of_group: bool) -> None:
    assert (names.is_reserved(topic), names.is_system(topic), names.is_of_group(topic)) == (reserved, system, of_group)


def test_groups_clusters_and_brokers() -> None:
    assert all(map(names.is_system_group, [*names.DEFAULT_GROUPS, names.REVIVE_GROUP, "CID_RMQ_SYS_x"]))
    assert not any(map(names.is_system_group, ["g", "TOOLS_CONSUMER2", "CID_ONSAPI_mine", "CID_x"]))
    assert names.own_topics(["C", "D"], ["b"]) == {"C", "D", "b", "C_REPLY_TOPIC", "D_REPLY_TOPIC"}


def test_item_9_no_other_file_spells_a_name_of_the_system() -> None:
    words = {*names.RESERVED_TOPICS, *names.DEFAULT_GROUPS, names.TIMER_TOPIC, names.REVIVE_GROUP}
    words |= {names.SYSTEM_PREFIX, names.SYSTEM_UPPER_PREFIX, names.RETRY_PREFIX, names.DLQ_PREFIX}
    words |= {names.SYSTEM_GROUP_PREFIX, names.SYNC_MEMBER_PREFIX}
    prefixes = (names.SYSTEM_PREFIX, names.SYSTEM_UPPER_PREFIX, names.SYSTEM_GROUP_PREFIX)
    spelled: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and " " not in text and (text in words or text.startswith(prefixes)):
                spelled.setdefault(str(path.relative_to(SOURCE)), set()).add(text)
    assert spelled.keys() == {"wire/names.py"}, spelled
    assert len(spelled["wire/names.py"]) > 20, "the search finds what is there"
