"""Compacted topics: of each key the last message stays, whatever becomes of the log (`service`)."""
