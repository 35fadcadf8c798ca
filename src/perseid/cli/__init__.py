"""The `perseid` command."""
