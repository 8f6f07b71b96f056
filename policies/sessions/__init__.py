"""The sessions policy: what a member does when its ZooKeeper session is lost, and what becomes of its bundles."""

from policies.sessions.decisions import OwnershipDecision, SessionDecision
from policies.sessions.emit import NAME
from policies.sessions.policy import SessionsPolicy
from policies.sessions.readings import MemberHealth, Ownership, Ownerships, Recovery, ZkSession
from policies.sessions.settings import SessionsSettings
from policies.sessions.state import SessionsState

__all__ = [
    "NAME",
    "MemberHealth",
    "Ownership",
    "OwnershipDecision",
    "Ownerships",
    "Recovery",
    "SessionDecision",
    "SessionsPolicy",
    "SessionsSettings",
    "SessionsState",
    "ZkSession",
]
