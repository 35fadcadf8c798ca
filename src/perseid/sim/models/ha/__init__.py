"""Controllers with broker sets."""
