"""Messages on their way into the store."""
