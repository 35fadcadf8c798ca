"""Halves, and what becomes of them."""
