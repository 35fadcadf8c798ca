"""Messages on their way out of the store, and how far groups are."""
