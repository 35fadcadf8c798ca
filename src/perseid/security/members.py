"""Who is a member of the cluster: what is said to peers that have not shown it."""

from __future__ import annotations

UNCERTIFIED = (
    "only members of the cluster with a certificate are taken here; on the peer set tls.client.certPath, "
    "tls.client.keyPath, and haTls=true (replication) or useTLS=true (members of a group)"
)
