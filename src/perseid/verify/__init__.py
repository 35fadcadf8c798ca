"""Checks that a cluster keeps what it acknowledged: a sender that never gives up, a ledger of acknowledged messages,
their comparison with what the cluster holds, and the phases of each outage. `perseid verify` and the demo use it."""

from perseid.verify.ledger import Entry, Findings, Ledger, compare, read_back
from perseid.verify.monitor import OutageMonitor
from perseid.verify.outage import Outage, Phase
from perseid.verify.steady import SteadySender

__all__ = ["Entry", "Findings", "Ledger", "Outage", "OutageMonitor", "Phase", "SteadySender", "compare", "read_back"]
