"""The broker: one node made of small machines (`node.py`), one table of requests (`routes.py`)."""
