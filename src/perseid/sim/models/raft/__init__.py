"""A Raft group by itself."""
