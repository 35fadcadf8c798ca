"""A seeded loop of mutations, for where atheris is not: slower to find things, but the same on every machine."""

import random
from collections.abc import Callable, Sequence

INTERESTING = [b"\0", b"\xff", b"\x7f", b"\x80", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\0"]
WORDS = [b'"', b"{", b"}", b"[", b"]", b":", b",", b"\\", b"\\ud800", b"null", b"true", b"1e9", b"-", b"9" * 20]
MAX_BYTES = 4096


def mutated(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """One input made from a good one: some bytes changed, cut, doubled, or taken from another."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randint(0, len(out))
        choice = rng.randrange(7)
        if choice == 0 and out:
            out[at % len(out)] ^= 1 << rng.randrange(8)
        elif choice == 1 and out:
            out[at % len(out)] = rng.randrange(256)
        elif choice == 2:
            piece = rng.choice(INTERESTING)
            out[at : at + len(piece)] = piece
        elif choice == 3:
            out[at:at] = rng.choice(WORDS)
        elif choice == 4:
            del out[at : at + rng.randint(1, 16)]
        elif choice == 5:
            out[at:at] = out[at : at + rng.randint(1, 64)]
        else:
            other = rng.choice(seeds)
            out[at:] = other[rng.randint(0, len(other)) :]
    return bytes(out[:MAX_BYTES])


def inputs(seeds: Sequence[bytes], rng: random.Random) -> Callable[[], bytes]:
    """A source of inputs: mutations of the seeds, and now and then of earlier mutations."""
    pool = list(seeds)

    def draw() -> bytes:
        again = rng.random() < 0.2
        data = mutated(rng.choice(pool if again else seeds), seeds, rng)
        if rng.random() < 0.1:
            if len(pool) < 1000:
                pool.append(data)
            else:
                pool[rng.randrange(len(seeds), len(pool))] = data
        return data

    return draw
