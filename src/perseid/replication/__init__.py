"""How a log comes to be on more than one machine."""
