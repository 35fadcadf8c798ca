"""The name server: which brokers there are, and where each topic's queues are."""
