"""The message store: commit log, consume queues, index, checkpoint, recovery, retention."""
