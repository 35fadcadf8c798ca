"""The disk: the port that the store sees, and the real thing behind it."""
