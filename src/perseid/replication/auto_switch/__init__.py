"""AutoSwitch replication: a controller elects the master, epochs tell whose bytes are whose."""
