"""Which seeds of which model have TLS, users, or both: those that leave one of these remainders. No seed that a test
names left one of them when its model got it, so all those are what they were without."""

from __future__ import annotations

OF_SEEDS = 48
BOTH = (9, 26)
TLS: dict[str, tuple[int, ...]] = {
    "broker": (11, 35, *BOTH),
    "raft": (19, 26, 35, 45),
    "dledger": (11, 35, *BOTH),
    "ha": (15, 35, *BOTH),
}
USERS: dict[str, tuple[int, ...]] = {
    "broker": (23, 45, *BOTH),
    "dledger": (23, 45, *BOTH),
    "ha": (33, 45, *BOTH),
}
"""`broker` stands for `acting`, too; a Raft group alone has no users."""


def has_tls(model: str, seed: int) -> bool:
    """May a seed's connections use TLS?"""
    return seed % OF_SEEDS in TLS[model]


def has_users(model: str, seed: int) -> bool:
    """Do a seed's brokers ask for signatures?"""
    return seed % OF_SEEDS in USERS.get(model, ())
