"""MemberDecisions of the loop, as the sessions policy makes them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from policies.decisions import deterministic_id
from policies.sessions.decisions import OwnershipDecision, SessionDecision

CLUSTER = "c1"
MEMBER = "b1:8080"
SESSION = "0xb"
NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def _common(subject: str, verdict: str, reason: str) -> dict[str, Any]:
    return {
        "policy": "sessions",
        "cluster": CLUSTER,
        "subject": subject,
        "sequence": 1,
        "verdict": verdict,
        "reason": reason,
        "explanation": "as the test wants it",
        "decided_at": NOON,
        "mode": "active",
        "settings_hash": "x",
        "member": MEMBER,
        "session": SESSION,
        "valid_until": NOON + timedelta(minutes=5),
    }


def ownership_decision(path: str, verdict: str, reason: str, **fields: Any) -> OwnershipDecision:
    """A decision about the bundle of that path, whose node does not exist by default."""
    bundle = path.removeprefix("/namespace/")
    given: dict[str, Any] = {
        **_common(f"{CLUSTER}/{MEMBER}/{bundle}", verdict, reason),
        "bundle": bundle,
        "path": path,
        "rules": "current",
        "owner": None,
        "node_session": None,
        "expected_version": None,
        "delete_first": False,
        "preload": verdict == "re-own",
        "close_first": verdict == "unload",
        "retry_ms": None,
        "seconds_left": None,
        **fields,
    }
    return OwnershipDecision(decision_id=deterministic_id(*given.values()), **given)


def session_decision(verdict: str, reason: str, **fields: Any) -> SessionDecision:
    given: dict[str, Any] = {
        **_common(f"{CLUSTER}/{MEMBER}", verdict, reason),
        "role": "broker",
        "status": "established",
        "events": (),
        "timeout_ms": 30_000,
        "seconds_left": None,
        "plan": (),
        "bundles": (),
        "bundle_count": 0,
        "losses": 0,
        "attempts": 0,
        "recovery_seconds": None,
        **fields,
    }
    return SessionDecision(decision_id=deterministic_id(*given.values()), **given)
