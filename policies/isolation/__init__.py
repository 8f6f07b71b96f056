"""The isolation policy: the bookies that each namespace may use, and the quarantine of unassigned bookies."""

from policies.isolation.decisions import BookieQuarantine, Placement, PlacementSummary
from policies.isolation.readings import NamespacePromise
from policies.isolation.settings import IsolationSettings
from policies.isolation.state import IsolationState

NAME = "isolation"

__all__ = [
    "NAME",
    "BookieQuarantine",
    "IsolationSettings",
    "IsolationState",
    "NamespacePromise",
    "Placement",
    "PlacementSummary",
]
