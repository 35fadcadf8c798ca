"""One function per request: `(broker, request) -> Reply`, or None when the answer comes later or never."""
