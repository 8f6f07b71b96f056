"""Decisions about bundles, as the policy makes them."""

from typing import Any

from policies.sessions.decisions import OwnershipDecision
from tests.decisions import decided

CLUSTER = "messaging"
MEMBER, OTHER, THIRD = "b1:8080", "b2:8080", "b3:8080"
BUNDLE = "t/ns/0x00000000_0xffffffff"

_REASONS = {"unload": "old_session_persists", "re-own": "absent", "keep": "own_session", "wait": "old_session"}


def decision(bundle: str = BUNDLE, **fields: Any) -> OwnershipDecision:
    """Unload a bundle whose node names the member itself."""
    verdict, member = fields.get("verdict", "unload"), fields.get("member", MEMBER)
    usual = {
        "policy": "sessions", "cluster": CLUSTER, "subject": f"{CLUSTER}/{member}/{bundle}", "verdict": verdict,
        "reason": _REASONS[verdict], "member": member, "bundle": bundle, "path": f"/namespace/{bundle}",
        "rules": "pip57", "owner": member if verdict == "unload" else None, "node_session": "0x1", "session": "0x2",
        "preload": verdict == "re-own", "close_first": verdict == "unload",
    }  # fmt: skip
    return decided(OwnershipDecision, **(usual | fields))
