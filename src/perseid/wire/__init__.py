"""Bytes and types of the wire and of the disk record: pure functions, no state, no clock, no socket."""
