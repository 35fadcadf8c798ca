"""Each kind of history that no single log could have given is found, and what one could have given is accepted."""

import pytest

from perseid.sim.promises.linear_log import Done, explain


def append(called: int, answered: int, index: int, body: bytes) -> Done:
    return Done(called, answered, index, body)


def read(called: int, answered: int, index: int, body: bytes) -> Done:
    return Done(called, answered, index, body, is_read=True)


def test_nothing_is_right() -> None:
    assert explain([]) == ""
    assert explain([], [b"perhaps"]) == ""


def test_appends_one_after_the_other_are_right() -> None:
    history = [append(10 * n, 10 * n + 5, n, b"%d" % n) for n in range(20)]
    history += [read(1_000 + n, 1_001 + n, n, b"%d" % n) for n in range(20)]
    assert explain(history) == ""
    assert explain(list(reversed(history))) == "", "in whatever order they are told"


def test_appends_at_the_same_time_may_get_any_order() -> None:
    assert explain([append(1, 9, 1, b"a"), append(2, 8, 0, b"b"), append(3, 7, 2, b"c")]) == ""
    assert explain([append(1, 5, 1, b"a"), append(5, 9, 0, b"b")]) == "", "one ended in the moment the other began"


def test_indexes_may_be_left_out() -> None:
    """They belong to appends whose outcome nobody knows."""
    assert explain([append(1, 2, 3, b"a"), append(3, 4, 17, b"b")]) == ""


def test_an_append_without_an_answer_may_be_read_or_not() -> None:
    history = [append(1, 2, 0, b"a"), read(5, 6, 1, b"perhaps")]
    assert explain(history, [b"perhaps", b"never"]) == ""


def test_a_read_at_the_time_of_its_append_is_right() -> None:
    assert explain([append(1, 9, 0, b"a"), read(2, 3, 0, b"a")]) == ""


def test_two_appends_at_one_index_are_found() -> None:
    why = explain([append(1, 9, 4, b"a"), append(2, 8, 4, b"b")])
    assert why == "index 4 holds b'a' and b'b'"


def test_a_read_that_saw_something_else_is_found() -> None:
    why = explain([append(1, 2, 4, b"a"), append(1, 2, 5, b"b"), read(3, 4, 4, b"b")])
    assert "index 4 holds b'a' and b'b'" in why


def test_two_reads_that_differ_are_found() -> None:
    assert "index 0" in explain([read(1, 2, 0, b"a"), read(3, 4, 0, b"b")], [b"a", b"b"])


@pytest.mark.parametrize("second", [append(3, 4, 1, b"a"), read(3, 4, 1, b"a")], ids=["appended", "read"])
def test_a_body_at_two_indexes_is_found(second: Done) -> None:
    assert explain([append(1, 2, 0, b"a"), second]) == "b'a' stands at 0 and 1"


def test_a_read_of_what_nobody_appended_is_found() -> None:
    why = explain([append(1, 2, 0, b"a"), read(3, 4, 1, b"b")], [b"c"])
    assert why == "b'b' was read at 1 and never appended"


def test_a_later_append_at_a_lower_index_is_found() -> None:
    why = explain([append(1, 2, 5, b"a"), append(3, 4, 4, b"b")])
    assert why == "b'b' at 4 began after b'a' at 5 had ended"


def test_a_lower_index_is_found_across_appends_between() -> None:
    """The one that ended first had the highest index of all."""
    history = [append(1, 2, 7, b"a"), append(1, 50, 1, b"b"), append(3, 60, 8, b"c"), append(4, 5, 2, b"d")]
    assert "b'd' at 2 began after b'a' at 7" in explain(history)


def test_an_append_below_what_was_read_before_is_found() -> None:
    """Entry 5 was seen, so the log had its entry 3 already when this one began."""
    history = [read(1, 2, 5, b"perhaps"), append(3, 4, 3, b"a")]
    assert "b'a' at 3" in explain(history, [b"perhaps"])


def test_a_read_of_what_is_appended_later_is_found() -> None:
    assert "b'a'" in explain([read(1, 2, 0, b"a"), append(3, 4, 0, b"a")])
