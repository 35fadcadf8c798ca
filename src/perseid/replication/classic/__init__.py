"""The original's classic replication: one master, any number of slaves, no election."""
