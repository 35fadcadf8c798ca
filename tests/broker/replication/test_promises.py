"""What was promised to messages that wait, while the number of nodes changes."""

from __future__ import annotations

from random import Random

import pytest

from perseid.broker.replication.promises import MAX_OLDER, Promises

NOBODY = 1 << 62


@pytest.mark.parametrize("most", [1, 2, MAX_OLDER])
def test_each_message_waits_for_what_was_promised_when_it_was_stored(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a plain list of messages, over many histories: nothing is let go with fewer nodes than were promised."""
    monkeypatch.setattr("perseid.broker.replication.promises.MAX_OLDER", most)
    for seed in range(300):
        random = Random(seed)
        has = [0, 0, 0]  # where the logs of three slaves end
        messages: list[tuple[int, int]] = []  # where each ends, and its promise
        end = 0

        def on(nodes: int | None, has: list[int] = has) -> int:
            assert nodes is not None
            return NOBODY if nodes == 1 else sorted(has, reverse=True)[nodes - 2]

        promises = Promises(2, on)
        for _ in range(60):
            match random.randrange(5):
                case 0 | 1:
                    end += random.randint(1, 5)
                    messages.append((end, promises.nodes or 0))
                case 2 | 3:
                    slave = random.randrange(3)
                    has[slave] = random.randint(has[slave], end)
                case _:
                    awaited = messages[0][0] if messages else NOBODY
                    promises.change(random.randint(1, 4), end, awaited)
            promises.validate(end)
            kept = promises.kept()
            for message_end, nodes in messages:
                if message_end <= kept:
                    assert on(nodes) >= message_end, f"seed {seed}: {message_end} is not on {nodes} nodes"
            messages = [one for one in messages if one[0] > kept]
            if random.random() < 0.1 and messages:
                messages.pop(0)  # its time is over
            promises.forget(messages[0][0] if messages else NOBODY)


def test_nobody_waits_so_nothing_is_remembered() -> None:
    promises = Promises(3, lambda nodes: 0)
    for number in range(100):
        promises.change(2 + number % 2, number, NOBODY)
    promises.validate(100)
    assert promises.kept() == 0 and not promises._older


def test_a_promise_that_changes_all_the_time_is_bounded_and_kept() -> None:
    """Beyond the bound the messages of two wait for both."""
    on = {4: 10, 3: 1_000, 2: 2_000}
    promises = Promises(4, lambda nodes: on[nodes or 0])
    for number in range(3 * MAX_OLDER):
        promises.change(2 + number % 2, 100 + number, 1)
    assert len(promises._older) == MAX_OLDER and promises.kept() == 10
    promises.forget(101)
    assert promises.kept() >= 1_000
