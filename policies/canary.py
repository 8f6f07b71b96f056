"""A pseudo-cluster with which the loop measures its own latency, from a collector's topic to the consumers.

Consumers of decisions leave it out: it appears in no list, no metric of clusters, and no alert.
"""

CANARY = "headgate-canary"
"""Its name; no watched cluster may have it."""
