"""`make demo`: real flights through a broker that is killed half-way, into a Spark table that is checked."""
