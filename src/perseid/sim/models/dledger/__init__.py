"""Brokers whose log is a Raft group's."""
