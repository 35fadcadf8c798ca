"""Raft as DLedger 0.3.2 speaks it: election, log, push, commit. Safe by default, on the wire with Java."""
