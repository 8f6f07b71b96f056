"""The conditions that must hold at the moment a bundle is unloaded, or looked up to be owned again."""

from connectors.actuation.reports import ActionResult, CommonOutcome
from connectors.sessions.unload.brokers import Survey
from policies.sessions.decisions import OwnershipDecision, OwnershipReason, OwnershipVerdict
from policies.sessions.unload_events import UnloadOutcome

ServedBy = tuple[str, ...]
"""The brokers that report that they serve a bundle."""

UnloadResult = ActionResult[ServedBy]


def list_concerned(decision: OwnershipDecision) -> set[str]:
    """Return the brokers whose answer is needed: the member, and the owner that ZooKeeper names."""
    return {decision.member} | ({decision.owner} if decision.owner is not None else set())


def has_other_owner(decision: OwnershipDecision) -> bool:
    """Whether the member must give up the bundle because ZooKeeper names another owner."""
    by_zookeeper = decision.reason in (OwnershipReason.OTHER_OWNER, OwnershipReason.DOUBLE_OWNERSHIP)
    return by_zookeeper and decision.owner not in (None, decision.member)


def find_conclusion(decision: OwnershipDecision, survey: Survey, *, unsure: bool) -> UnloadResult | None:
    """Return the result if the decision needs no action or must not be carried out now; None to carry it out.

    Args:
        unsure: an earlier attempt got no answer, so the wanted state counts as its effect.
    """
    serving = {member for member, owned in survey.owned.items() if decision.bundle in owned}
    active = tuple(sorted(member for member in serving if survey.owned[member][decision.bundle]))
    if decision.verdict is OwnershipVerdict.UNLOAD:
        return _judge_unload(decision, survey, serving, active, unsure)
    if active:
        return ActionResult(CommonOutcome.DONE if unsure else UnloadOutcome.ALREADY_OWNED, observed=active)
    # Brokers that do not answer do not matter here: any client's lookup does the same as ours.
    return None


def _judge_unload(
    decision: OwnershipDecision, survey: Survey, serving: set[str], active: ServedBy, unsure: bool
) -> UnloadResult | None:
    member = decision.member
    if member in survey.unanswered:
        return ActionResult(CommonOutcome.FAILED, survey.unanswered[member], active)
    if member not in serving:
        return ActionResult(CommonOutcome.DONE if unsure else UnloadOutcome.ALREADY_MOVED, observed=active)
    if member not in active:
        return ActionResult(CommonOutcome.FAILED, "it is letting go of it, and not done yet", active)
    # If the decision names another owner by ZooKeeper, that broker is the rightful one and the member must give up the
    # bundle (PIP-57). The member needs a ZooKeeper session for it: an unload without one hangs, and leaves the bundle
    # unusable there for good. In all other cases ZooKeeper's owner is a rival even if it does not serve the bundle yet,
    # because the unload may delete its node.
    can_unload = decision.session is not None and member in survey.listed
    rightful = {decision.owner} if has_other_owner(decision) and can_unload else set()
    rivals = (serving | list_concerned(decision)) - {member} - rightful
    if rivals:
        return ActionResult(UnloadOutcome.CONTESTED, f"{', '.join(sorted(rivals))} may own it rightfully", active)
    silent = [m for m in sorted(survey.unanswered) if m in survey.listed and m not in rightful]
    if silent:
        return ActionResult(
            CommonOutcome.FAILED, f"who else serves it is not known: {survey.unanswered[silent[0]]}", active
        )
    return None
