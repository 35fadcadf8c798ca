"""Producers and consumers that are connected, their locks, and requests that are handed to them."""
