"""Lite topics: many small topics of a parent, each a light queue, read by clients that say which (`service`)."""
