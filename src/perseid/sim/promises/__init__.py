"""What clients are promised, whatever is played: a family of promises a file.

| file | promised |
|---|---|
| `delivery` | what is read was sent, to where it is read, with these bytes, and not more often than it was sent |
| `ordering` | a place of a queue keeps its message, pulls have no gaps, queues only grow |
| `offsets` | a group's offset is one that it committed, and none older than what was acknowledged |
| `transactions` | only what its producer has committed is read |
| `timers` | no message comes before its time |
| `linear_log`, `linear_queues` | one order of all that happened explains what clients saw |

What one model alone promises stands in its folder: `models/broker` (`durability`, `retention`, `pop`, `acting`),
`models/raft` (`leadership`, `logs`, `commitment`), `models/ha` (`oracle`, `chain`, `history`, `queues`),
`models/dledger` (`history`).
"""


class Violation(AssertionError):
    """A promise was broken. `invariant` names it."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant
