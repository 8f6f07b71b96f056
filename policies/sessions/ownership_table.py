"""The ownership rules: what a member must do with a bundle that it owned, as a function of plain values.

Rules: docs/design/sessions.md.
"""

from collections.abc import Mapping

from msgspec import Struct

from policies.sessions.decisions import OwnershipReason, OwnershipVerdict
from policies.sessions.settings import OwnershipRules

FIRST_RETRY_MS = 100
LONGEST_RETRY_MS = 60_000


class NodeNow(Struct, frozen=True, gc=False):
    """A bundle's node, as read after the session was lost."""

    exists: bool
    ephemeral: bool = True
    owner: str | None = None
    """The member its value names; None if that cannot be read."""
    session: str | None = None
    """The session it belongs to; None if that is not known."""
    version: int | None = None
    unreadable_times: int = 0
    """How many readings in a row could not read its value."""


class BundleRuling(Struct, frozen=True, gc=False):
    """What a member must do with a bundle, and why."""

    verdict: OwnershipVerdict
    reason: OwnershipReason
    expected_version: int | None = None
    delete_first: bool = False
    retry_ms: int | None = None
    left_ms: int | None = None
    """The time until a wait for a deletion ends."""


class Claimant(Struct, frozen=True, gc=False):
    """A member that owned a bundle, or believes that it does."""

    member: str
    session: str | None
    """Its present session; None if that is not known."""
    waited_ms: int = 0
    """The time since its session was established again."""
    wait_ms: int = 30_000
    """How long it waits for the node of its old session to be deleted."""


def rule(
    claimant: Claimant, node: NodeNow | None, rules: OwnershipRules, rivals: Mapping[str, str | None] | None = None
) -> BundleRuling:
    """Return what a member with a session must do with one bundle.

    Args:
        node: the bundle's node; None if it has not been read since the session was lost.
        rivals: the other members that believe they own the bundle, each with its present session.

    Returns:
        The ruling. It is `keep` only for an ephemeral node of the claimant's own session.
    """
    ruling = _rule(claimant, node, rules, rivals or {})
    assert ruling.verdict is not OwnershipVerdict.KEEP or (  # noqa: S101 - the one promise nothing may break
        node is not None and node.exists and node.ephemeral and node.session is not None
        and node.session == claimant.session
    )  # fmt: skip
    return ruling


def _rule(
    claimant: Claimant, node: NodeNow | None, rules: OwnershipRules, rivals: Mapping[str, str | None]
) -> BundleRuling:
    if node is None:
        return BundleRuling(OwnershipVerdict.WAIT, OwnershipReason.UNREAD, retry_ms=FIRST_RETRY_MS)
    if not node.exists:
        return BundleRuling(OwnershipVerdict.RE_OWN, OwnershipReason.ABSENT)
    if not node.ephemeral:
        return BundleRuling(OwnershipVerdict.UNLOAD, OwnershipReason.NOT_EPHEMERAL)
    taken = OwnershipReason.DOUBLE_OWNERSHIP if rivals else OwnershipReason.OTHER_OWNER
    if node.owner is None or node.session is None or claimant.session is None:
        if node.owner is not None and node.owner != claimant.member:
            return BundleRuling(OwnershipVerdict.UNLOAD, taken)
        return _wait_for_value(node)
    if node.session == claimant.session:
        # Of two claims, the one with the node's session wins, whatever the node's value is.
        if node.owner == claimant.member or node.owner in rivals:
            return BundleRuling(OwnershipVerdict.KEEP, OwnershipReason.OWN_SESSION)
        return BundleRuling(OwnershipVerdict.UNLOAD, OwnershipReason.OTHER_OWNER)
    if node.owner != claimant.member or node.session in rivals.values():
        return BundleRuling(OwnershipVerdict.UNLOAD, taken)
    return _rule_old_session(claimant, node, rules)


def _wait_for_value(node: NodeNow) -> BundleRuling:
    return BundleRuling(OwnershipVerdict.WAIT, OwnershipReason.UNREADABLE, retry_ms=retry_ms(node.unreadable_times))


def _rule_old_session(claimant: Claimant, node: NodeNow, rules: OwnershipRules) -> BundleRuling:
    if rules is OwnershipRules.CURRENT:
        if node.version is None:  # an unconditional deletion could hit a node that another member created since
            return _wait_for_value(node)
        return BundleRuling(
            OwnershipVerdict.RE_OWN, OwnershipReason.OLD_SESSION, expected_version=node.version, delete_first=True
        )
    left_ms = claimant.wait_ms - claimant.waited_ms
    if left_ms <= 0:
        return BundleRuling(OwnershipVerdict.UNLOAD, OwnershipReason.OLD_SESSION_PERSISTS)
    return BundleRuling(OwnershipVerdict.WAIT, OwnershipReason.OLD_SESSION, left_ms=left_ms)


def retry_ms(failures: int) -> int:
    """The back-off after this many readings in a row without a value: 100 ms, doubling up to 60 s."""
    return min(FIRST_RETRY_MS << min(max(failures - 1, 0), 20), LONGEST_RETRY_MS)
