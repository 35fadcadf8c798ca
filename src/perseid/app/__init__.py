"""Composition roots: whole processes out of nodes, a disk, sockets and configuration."""
