"""A model of a landing: the archive's real run on real folders, a topic in memory, and random histories of both."""
