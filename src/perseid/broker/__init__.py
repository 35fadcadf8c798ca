"""The broker: one node (`node.py`) and its capabilities (`capabilities.py`), a folder each."""
