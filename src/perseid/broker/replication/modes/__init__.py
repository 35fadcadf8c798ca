"""The four ways in which a broker's log gets to other nodes."""
