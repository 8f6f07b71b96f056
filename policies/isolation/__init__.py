"""The isolation policy: the bookies that each namespace may use, and the quarantine of unassigned bookies."""

from policies.isolation.decisions import BookieQuarantine, Placement, PlacementSummary
from policies.isolation.policy import NAME, IsolationPolicy
from policies.isolation.readings import NamespacePromise
from policies.isolation.settings import IsolationSettings
from policies.isolation.state import IsolationState

__all__ = [
    "NAME",
    "BookieQuarantine",
    "IsolationPolicy",
    "IsolationSettings",
    "IsolationState",
    "NamespacePromise",
    "Placement",
    "PlacementSummary",
]
