"""The broker's entries at its name servers."""
