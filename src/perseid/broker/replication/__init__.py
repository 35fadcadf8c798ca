"""Slaves, groups and broker sets: who has the log, and who may write it."""
