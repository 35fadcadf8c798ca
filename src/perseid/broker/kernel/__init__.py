"""What every capability of a broker stands on: the turn, the settings, the role, the requests and their rows."""
