"""Topics and consumer groups."""
