"""The explanation of a decision about one bundle, from the values that decided."""

from policies.sessions.decisions import OwnershipReason, OwnershipVerdict
from policies.sessions.judge.claims import RuledClaim
from policies.units import human_seconds

_WHAT = {
    OwnershipVerdict.KEEP: "keep it",
    OwnershipVerdict.RE_OWN: "own it again",
    OwnershipVerdict.WAIT: "wait",
    OwnershipVerdict.UNLOAD: "unload it",
}


def ruling_message(bundle: str, ruled: RuledClaim, session: str | None) -> str:
    """Why a member is to do what about a bundle."""
    ruling, node, member = ruled.ruling, ruled.claim.node, ruled.claim.claim.member
    found = (node.session if node is not None else None) or "unknown"
    owner = (node.owner if node is not None else None) or "nobody known"
    left = "" if ruling.left_ms is None else f", {human_seconds(ruling.left_ms / 1000)} left"
    replaced = f" and is replaced at version {ruling.expected_version}" if ruling.delete_first else ""
    rivals = ", ".join(sorted(ruled.claim.rivals))
    reasons = {
        OwnershipReason.ABSENT: "has no node",
        OwnershipReason.OWN_SESSION: f"has a node of its session {session}",
        OwnershipReason.OLD_SESSION: f"has a node of its old session {found} (it has {session} now){replaced}{left}",
        OwnershipReason.OLD_SESSION_PERSISTS: f"still has a node of its old session {found}, which nobody deleted",
        OwnershipReason.OTHER_OWNER: f"is owned by {owner}, session {found}",
        OwnershipReason.DOUBLE_OWNERSHIP: f"is claimed by {rivals} as well; its node names {owner}, session {found}",
        OwnershipReason.NOT_EPHEMERAL: "has a node that is not ephemeral",
        OwnershipReason.UNREADABLE: f"has a node that cannot be told apart: value of {owner}, session {found}",
        OwnershipReason.UNREAD: "has not been read since the present session began",
    }
    retry = "" if ruling.retry_ms is None else f" and read it again after {ruling.retry_ms} ms"
    return f"{member} is to {_WHAT[ruling.verdict]}{retry}: bundle {bundle} {reasons[ruling.reason]}."
