"""The sessions policy: what a member does when its ZooKeeper session is lost, and what becomes of its bundles."""

from policies.sessions.decisions import OwnershipDecision, SessionDecision
from policies.sessions.readings import MemberHealth, Ownership, Ownerships, Recovery, ZkSession
from policies.sessions.settings import SessionsSettings
from policies.sessions.state import SessionsState

NAME = "sessions"

__all__ = [
    "NAME",
    "MemberHealth",
    "Ownership",
    "OwnershipDecision",
    "Ownerships",
    "Recovery",
    "SessionDecision",
    "SessionsSettings",
    "SessionsState",
    "ZkSession",
]
