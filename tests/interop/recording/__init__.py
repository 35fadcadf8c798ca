"""Records what stock clients send, as data for tests and bench (tests/traffic)."""
