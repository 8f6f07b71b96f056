"""What must hold at the moment a bundle is unloaded, or looked up to be owned again."""

from dataclasses import dataclass
from datetime import datetime

from connectors.unload.brokers import Survey
from policies.decisions import Mode
from policies.sessions.decision import OwnershipDecision, OwnershipVerdict
from policies.sessions.unload_events import UnloadOutcome

NOT_FINAL = frozenset({UnloadOutcome.FAILED, UnloadOutcome.CONTESTED})
"""Tried again until the decision expires."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of an attempt."""

    outcome: UnloadOutcome
    detail: str | None = None
    served_by: tuple[str, ...] = ()


def refusal_before_look(decision: OwnershipDecision, now: datetime) -> Finding | None:
    """Why a decision is not begun; null when it is."""
    if decision.mode is Mode.SHADOW:
        return Finding(UnloadOutcome.SHADOW)
    if now >= decision.valid_until:
        return Finding(UnloadOutcome.EXPIRED)
    return None


def asked_of(decision: OwnershipDecision) -> set[str]:
    """Who must be asked, registered or not: the member, and who ZooKeeper says is the owner."""
    return {decision.member} | ({decision.owner} if decision.owner is not None else set())


def judge(decision: OwnershipDecision, survey: Survey, *, unsure: bool) -> Finding | None:
    """Why nothing is to be done to what the brokers say they serve; null when it is to be done.

    Args:
        decision: to unload, or to re-own.
        survey: what the brokers say.
        unsure: an earlier attempt got no answer, so what is as it should be is its work.
    """
    serving = {member for member, owned in survey.owned.items() if decision.bundle in owned}
    active = tuple(sorted(member for member in serving if survey.owned[member][decision.bundle]))
    if decision.verdict is OwnershipVerdict.UNLOAD:
        return _of_unload(decision, survey, serving, active, unsure)
    if active:
        return Finding(UnloadOutcome.DONE if unsure else UnloadOutcome.ALREADY_OWNED, served_by=active)
    return None  # who does not answer does not matter: any client's lookup does the same


def _of_unload(
    decision: OwnershipDecision, survey: Survey, serving: set[str], active: tuple[str, ...], unsure: bool
) -> Finding | None:
    member = decision.member
    if member in survey.unanswered:
        return Finding(UnloadOutcome.FAILED, survey.unanswered[member], active)
    if member not in serving:
        return Finding(UnloadOutcome.DONE if unsure else UnloadOutcome.ALREADY_MOVED, served_by=active)
    if member not in active:
        return Finding(UnloadOutcome.FAILED, "it is letting go of it, and not done yet", active)
    # ZooKeeper's owner counts even when it does not serve the bundle yet: the unload may delete its node.
    rivals = (serving | asked_of(decision)) - {member}
    if rivals:
        return Finding(UnloadOutcome.CONTESTED, f"{', '.join(sorted(rivals))} may own it rightfully", active)
    silent = [member for member in sorted(survey.unanswered) if member in survey.listed]
    if silent:
        return Finding(UnloadOutcome.FAILED, f"who else serves it is not known: {survey.unanswered[silent[0]]}", active)
    return None
