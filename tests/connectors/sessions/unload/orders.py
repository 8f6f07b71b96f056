"""Decisions about bundles, as the policy makes them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from policies.decisions import deterministic_id
from policies.sessions.decisions import OwnershipDecision

CLUSTER = "messaging"
MEMBER, OTHER, THIRD = "b1:8080", "b2:8080", "b3:8080"
BUNDLE = "t/ns/0x00000000_0xffffffff"
NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)

_REASONS = {"unload": "old_session_persists", "re-own": "absent", "keep": "own_session", "wait": "old_session"}


def decision(bundle: str = BUNDLE, **fields: Any) -> OwnershipDecision:
    """Unload a bundle whose node names the member itself, decided at noon and valid for five minutes."""
    verdict, member = fields.get("verdict", "unload"), fields.get("member", MEMBER)
    given: dict[str, Any] = {
        "policy": "sessions",
        "cluster": CLUSTER,
        "subject": f"{CLUSTER}/{member}/{bundle}",
        "sequence": 1,
        "verdict": verdict,
        "reason": _REASONS[verdict],
        "explanation": "as the test wants it",
        "decided_at": NOON,
        "mode": "active",
        "settings_hash": "x",
        "member": member,
        "bundle": bundle,
        "path": f"/namespace/{bundle}",
        "rules": "pip57",
        "owner": member if verdict == "unload" else None,
        "node_session": "0x1",
        "session": "0x2",
        "expected_version": None,
        "delete_first": False,
        "preload": verdict == "re-own",
        "close_first": verdict == "unload",
        "retry_ms": None,
        "seconds_left": None,
        "valid_until": NOON + timedelta(minutes=5),
        **fields,
    }
    return OwnershipDecision(decision_id=deterministic_id(*given.values()), **given)
