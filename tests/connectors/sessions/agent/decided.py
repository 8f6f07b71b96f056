"""Decisions of the loop that an agent follows, as the sessions policy makes them."""

from typing import Any

from policies.sessions.decisions import OwnershipDecision, SessionDecision
from tests.decisions import NOON as NOON
from tests.decisions import decided

CLUSTER = "c1"
MEMBER = "b1:8080"
SESSION = "0xb"

_USUAL = {"policy": "sessions", "cluster": CLUSTER, "member": MEMBER, "session": SESSION}


def ownership_decision(path: str, verdict: str, reason: str, **fields: Any) -> OwnershipDecision:
    """A decision about the bundle of that path, whose node does not exist by default."""
    bundle = path.removeprefix("/namespace/")
    usual = {
        **_USUAL, "subject": f"{CLUSTER}/{MEMBER}/{bundle}", "verdict": verdict, "reason": reason, "bundle": bundle,
        "path": path, "rules": "current", "preload": verdict == "re-own", "close_first": verdict == "unload",
    }  # fmt: skip
    return decided(OwnershipDecision, **(usual | fields))


def session_decision(verdict: str, reason: str, **fields: Any) -> SessionDecision:
    usual = {
        **_USUAL, "subject": f"{CLUSTER}/{MEMBER}", "verdict": verdict, "reason": reason, "role": "broker",
        "status": "established", "timeout_ms": 30_000,
    }  # fmt: skip
    return decided(SessionDecision, **(usual | fields))
