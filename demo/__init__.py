"""`make demo`: real flights through a cluster whose master is killed half-way, into a Spark table that is checked."""
