"""A message broker in Python, compatible with Apache RocketMQ on the wire and on disk."""

__version__ = "0.2.0.dev0"
