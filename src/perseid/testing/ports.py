"""Ports for servers that a test starts as processes of their own."""

from perseid.net.ports import free_port

__all__ = ["free_port"]
