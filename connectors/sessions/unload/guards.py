"""What must hold at the moment a bundle is unloaded, or looked up to be owned again."""

from connectors.actuation.reports import ActionResult, CommonOutcome
from connectors.sessions.unload.brokers import Survey
from policies.sessions.decisions import OwnershipDecision, OwnershipReason, OwnershipVerdict
from policies.sessions.unload_events import UnloadOutcome

ServedBy = tuple[str, ...]
"""The brokers that serve a bundle by their own word."""

UnloadResult = ActionResult[ServedBy]

_FAILED = CommonOutcome.FAILED


def asked_of(decision: OwnershipDecision) -> set[str]:
    """Who must be asked, registered or not: the member, and who ZooKeeper says is the owner."""
    return {decision.member} | ({decision.owner} if decision.owner is not None else set())


def is_anothers(decision: OwnershipDecision) -> bool:
    """Whether a bundle is to be let go because ZooKeeper names another owner."""
    by_zookeeper = decision.reason in (OwnershipReason.OTHER_OWNER, OwnershipReason.DOUBLE_OWNERSHIP)
    return by_zookeeper and decision.owner not in (None, decision.member)


def _can_let_go(decision: OwnershipDecision, survey: Survey) -> bool:
    """Whether the member has ZooKeeper: one without hangs, and leaves the bundle unusable there for good."""
    return decision.session is not None and decision.member in survey.listed


def judge(decision: OwnershipDecision, survey: Survey, *, unsure: bool) -> UnloadResult | None:
    """Why nothing is to be done to what the brokers say they serve; None when it is to be done.

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
        return ActionResult(CommonOutcome.DONE if unsure else UnloadOutcome.ALREADY_OWNED, observed=active)
    return None  # who does not answer does not matter: any client's lookup does the same


def _of_unload(
    decision: OwnershipDecision, survey: Survey, serving: set[str], active: ServedBy, unsure: bool
) -> UnloadResult | None:
    member = decision.member
    if member in survey.unanswered:
        return ActionResult(_FAILED, survey.unanswered[member], active)
    if member not in serving:
        return ActionResult(CommonOutcome.DONE if unsure else UnloadOutcome.ALREADY_MOVED, observed=active)
    if member not in active:
        return ActionResult(_FAILED, "it is letting go of it, and not done yet", active)
    # Who a decision names as ZooKeeper's owner is its rightful one: then the member is to let go (PIP-57), if it can.
    # Else ZooKeeper's owner counts even when it does not serve the bundle yet: the unload may delete its node.
    rightful = {decision.owner} if is_anothers(decision) and _can_let_go(decision, survey) else set()
    rivals = (serving | asked_of(decision)) - {member} - rightful
    if rivals:
        return ActionResult(UnloadOutcome.CONTESTED, f"{', '.join(sorted(rivals))} may own it rightfully", active)
    silent = [m for m in sorted(survey.unanswered) if m in survey.listed and m not in rightful]
    if silent:
        return ActionResult(
            CommonOutcome.FAILED, f"who else serves it is not known: {survey.unanswered[silent[0]]}", active
        )
    return None
