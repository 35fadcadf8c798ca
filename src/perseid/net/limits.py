"""Every bound of the driver, by name. Times are milliseconds, sizes bytes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What peers may cost. The first two numbers are the original's; the others bound what it leaves open."""

    idle_ms: int = 120_000
    """A connection that neither read nor wrote for so long is closed (serverChannelMaxIdleTimeSeconds)."""

    backlog: int = 1024
    """Connections that the kernel may hold until they are accepted."""

    partial_frame_ms: int = 60_000
    """A frame that has begun must be whole after so long; a peer that drips its bytes is closed."""

    partial_bytes: int = 512 * 1024 * 1024
    """Of unfinished frames, on all connections together; the read that goes beyond closes its connection."""

    gather_us: int = 1_000
    """So long, in microseconds, a node that gathers (`Driver`) may hear nothing after a turn."""

    handshake_ms: int = 10_000
    """A TLS handshake that has begun must be over after so long."""

    handshakes: int = 2_048
    """TLS handshakes under way on all listeners, at some 50 KB each; the connection that begins the next is closed."""

    handshakes_us: int = 2_000
    """After so long, in microseconds, one turn of the event loop begins no more of them (each takes half a millisecond,
    with a large RSA key several): when many come at once, they wait rather than those who are connected."""

    turn_bytes: int = 1024 * 1024
    """Of what was read in one turn of the event loop; more is handed to the node before the turn ends."""

    pause_reading_above: int = 1024 * 1024
    """A peer that doesn't take its answers in is not read from while more than this waits for it."""

    write_buffer: int = 128 * 1024 * 1024
    """More waiting for one peer than this closes its connection."""

    connections: int = 16_384
    """At a time; the next waits until one has closed."""

    reserved_files: int = 256
    """Of the process' file descriptors (RLIMIT_NOFILE) so many are left to files: no connection is accepted then."""

    reserved_share: int = 4
    """Where few descriptors are allowed, the reserve is one in so many of them."""

    dial_ms: int = 3_000
    """A connection that is dialled must be open after so long."""

    linger_ms: int = 5_000
    """What was written to a connection before its close may take so long to leave."""

    shutdown_ms: int = 30_000
    """A node that was told to shut down answers Stop within this."""

    sweep_ms: int = 1_000
    """How often idle, dripping and lingering connections are looked for."""


GATHER_BYTES = 64 * 1024
"""Parts of one write up to this size together are joined; above it, joining costs more than writing parts."""
