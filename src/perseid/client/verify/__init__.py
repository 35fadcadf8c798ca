"""Holding a cluster to its acknowledgements: a sender that never gives up, a ledger of what was acknowledged, what
became of it, and where the time of an outage went. What `perseid verify` and the demo are made of."""

from perseid.client.verify.ledger import Entry, Findings, Ledger, compare, read_back
from perseid.client.verify.outage import Outage, Part
from perseid.client.verify.steady import SteadySender
from perseid.client.verify.watch import Watch

__all__ = ["Entry", "Findings", "Ledger", "Outage", "Part", "SteadySender", "Watch", "compare", "read_back"]
