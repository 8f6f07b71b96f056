"""A cluster that is none: by its readings the loop measures itself, from a collector's topic to whoever consumes.

Who consumes decisions leaves it out: it is in no list, no metric of clusters, and no alert.
"""

CANARY = "headgate-canary"
"""Its name; no watched cluster may have it."""
