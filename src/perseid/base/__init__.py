"""What every layer stands on: the machine contract, errors, configuration."""
