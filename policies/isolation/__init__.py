"""The isolation policy: which bookies may hold whose data, and what about those that nobody assigned."""

from policies.isolation.decisions import BookieQuarantine, Placement
from policies.isolation.policy import NAME, IsolationPolicy
from policies.isolation.readings import BookieAffinity, BookieRacks, Bookies
from policies.isolation.settings import IsolationSettings
from policies.isolation.state import IsolationState
from policies.policy import PolicyKind

__all__ = [
    "KIND",
    "NAME",
    "BookieAffinity",
    "BookieQuarantine",
    "BookieRacks",
    "Bookies",
    "IsolationPolicy",
    "IsolationSettings",
    "IsolationState",
    "Placement",
]

KIND = PolicyKind(
    name=NAME,
    observed={"observed.bookies": (Bookies, BookieRacks, BookieAffinity)},
    decisions=(Placement, BookieQuarantine),
    settings=IsolationSettings,
    state=IsolationState,
    state_version=1,
    build=IsolationPolicy,
)
