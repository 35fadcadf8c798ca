"""What operators look at and change."""
