"""Topics whose logical queues are spread over brokers."""
