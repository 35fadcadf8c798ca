"""What the compiled core takes in a turn, and what plain Python does in its place."""
