"""Alert conditions of the sessions policy.

Missing data neither raises nor resolves an alert: while the readings of a condition are stale, its last state stands.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from policies.alerts import AlertBook, Condition
from policies.decisions import EVIDENCE_LIMIT, Severity
from policies.sessions.decisions import SessionReason, SessionVerdict
from policies.sessions.facts import Facts, MemberFacts, unique_ids
from policies.sessions.fleet import has_failed
from policies.sessions.readings import bundle_of
from policies.sessions.state import NodeRecord
from policies.units import agreeing, counted, human_seconds

LOST = "session-lost"
NOT_REGISTERED = "not-registered"
ZOMBIE = "zombie-member"
FLEET_WIDE = "session-fleet-wide"
EXHAUSTED = "reconnect-exhausted"
DOUBLE = "double-ownership"
ORPHAN = "orphan-bundle"
UNREAD = "zookeeper-unread"
FLAPPING = "session-flapping"
NOT_EPHEMERAL = "bundle-not-ephemeral"
LOAD_DATA = "load-data-missing"

_ENDS = frozenset({SessionVerdict.SHUTDOWN, SessionVerdict.RESTART, SessionVerdict.GONE})
"""After one of these verdicts, no alert reports that the member cannot reconnect."""
_ABOUT_SESSIONS = frozenset({LOST, FLEET_WIDE, EXHAUSTED, FLAPPING, LOAD_DATA})
_ABOUT_BUNDLES = frozenset({ORPHAN, NOT_EPHEMERAL})


@dataclass(frozen=True, slots=True)
class AlertContext:
    """The inputs of all conditions."""

    cluster: str
    facts: Facts
    """The facts that remain after the step."""
    book: AlertBook


def conditions(context: AlertContext) -> Iterator[Condition]:
    """All conditions that hold now, and those published before that are unknown now."""
    held = {c.key: c for c in _check_all(context)}
    yield from held.values()
    unknown = _find_unknown(context)
    for entry in context.book.entries:
        key = (entry.alert, entry.subject)
        if entry.said_ms is not None and key not in held and key in unknown:
            yield entry.as_unknown()


def _check_all(context: AlertContext) -> Iterator[Condition]:
    facts, cluster, unread = context.facts, context.cluster, context.facts.unread
    if unread is not None:
        yield Condition(
            alert=UNREAD,
            subject=cluster,
            severity=Severity.WARNING,
            reason=unread.reason,
            summary=f"ZooKeeper of {cluster} cannot be read ({unread.reason}): that is no loss of sessions, and "
            "nobody is told to shut down for it",
            labels={"cluster": cluster},
            evidence=unread.evidence[:EVIDENCE_LIMIT],
        )
    yield from _check_losses(context)
    for member in facts.members.values():
        yield from _check_registration(context, member)
        yield from _check_session(context, member)
    yield from _check_claims(context)
    for node in facts.bundles():
        if facts.now_ms - node.read_ms <= facts.validity_ms:
            yield from _check_bundle(context, node)


def _check_losses(context: AlertContext) -> Iterator[Condition]:
    """One condition for each role that lost its sessions together, else one for each member."""
    facts = context.facts
    fleet_wide = sorted(role for role, members in facts.roles.items() if members.is_known_lost_together)
    for role in fleet_wide:
        yield _report_fleet(context, role)
    for member in facts.members.values():
        track = member.track
        if track is None or not track.is_lost or not member.is_fresh or member.liveness.is_dead:
            continue
        if member.member.role not in fleet_wide:
            lost_for = human_seconds((facts.now_ms - (track.lost_ms or 0)) / 1000)
            what = f"has had no ZooKeeper session for {lost_for}"
            yield _report_member(context, LOST, Severity.WARNING, "session_lost", member, what)


def _report_fleet(context: AlertContext, role: str) -> Condition:
    members = context.facts.roles[role]
    lost = sorted(members.lost, key=lambda m: m.member)
    names = ", ".join(m.member for m in lost[:5]) + (f" and {len(lost) - 5} more" if len(lost) > 5 else "")
    cut = len(members.cut_off)
    cut_off = f", and {cut} {agreeing(cut, 'is', 'are')} cut off" if cut else ""
    count = f"{len(lost)} of {len(members.members) + members.unread}"
    return Condition(
        alert=FLEET_WIDE,
        subject=f"{context.cluster}/{role}",
        severity=Severity.CRITICAL,
        reason="fleet_wide",
        summary=f"{count} members of the role {role} of {context.cluster} {agreeing(len(lost), 'is', 'are')} without a "
        f"session: {names}{cut_off}",
        labels={"cluster": context.cluster, "role": role},
        evidence=unique_ids(*(m.read_id for m in lost))[:EVIDENCE_LIMIT],
    )


def _check_session(context: AlertContext, member: MemberFacts) -> Iterator[Condition]:
    facts, track, last = context.facts, member.track, member.member.last_published
    if track is None or not member.is_fresh:
        return
    is_ordered = last is not None and (last.verdict in _ENDS or last.reason is SessionReason.STALE_READING)
    is_fleet_wide = facts.roles[member.member.role].is_known_lost_together
    if track.is_lost and member.is_exhausted and not is_ordered and not is_fleet_wide:
        what = f"cannot reconnect ({counted(member.member.attempts, 'failed attempt')}), and was not told to shut down"
        yield _report_member(context, EXHAUSTED, Severity.CRITICAL, "reconnect_exhausted", member, what)
    if track.unsettled:
        settle = human_seconds(facts.settings.settle.total_seconds())
        what = f"lost its session {counted(len(track.losses), 'time')} within {settle}"
        yield _report_member(context, FLAPPING, Severity.WARNING, "unsettled", member, what)
    due_ms = facts.load_data_missed_ms(member)
    if due_ms is not None and due_ms <= facts.now_ms:
        what = "has its bundles again, but has published no load data though it was told to"
        yield _report_member(context, LOAD_DATA, Severity.WARNING, "load_data_missing", member, what)


def _check_registration(context: AlertContext, member: MemberFacts) -> Iterator[Condition]:
    """Warn at once; critical after the longest time in which a member was seen to come back by itself."""
    absence, facts = member.liveness.unregistered, context.facts
    if absence is None:
        return
    away = human_seconds((facts.now_ms - absence.gone_ms) / 1000)
    left = human_seconds(max(0, absence.due_ms - facts.now_ms) / 1000)
    what = f"says it is healthy, but has not been registered for {away}"
    yield _report_member(
        context, NOT_REGISTERED, Severity.WARNING, "not_registered", member,
        f"{what}; most come back by themselves, it has {left} left",
    )  # fmt: skip
    open_alerts = context.book.keys()
    if absence.due_ms <= facts.now_ms or (ZOMBIE, f"{context.cluster}/{member.name}") in open_alerts:
        yield _report_member(context, ZOMBIE, Severity.CRITICAL, "zombie", member, f"{what}, and owns nothing")


def _check_claims(context: AlertContext) -> Iterator[Condition]:
    """One condition for each bundle that several members claim."""
    facts = context.facts
    claimants: dict[str, list[str]] = {}
    for member in facts.members.values():
        for claim in member.claims:
            claimants.setdefault(claim.claim.path, []).append(member.name)
    for path, names in claimants.items():
        if len(names) < 2:
            continue
        names.sort()
        node = facts.nodes.get(path)
        winner = node.session if node is not None and node.exists else None
        yield _report_bundle(
            context, DOUBLE, Severity.CRITICAL, "double_ownership", path,
            f"is claimed by {' and '.join(names)}; its node belongs to the session {winner or 'of nobody'}",
            unique_ids(node.read_id if node else "", *(facts.members[name].member.read_id for name in names)),
        )  # fmt: skip


def _check_bundle(context: AlertContext, node: NodeRecord) -> Iterator[Condition]:
    evidence = unique_ids(node.read_id)
    if node.exists and not node.ephemeral:
        what = f"has a node that is not ephemeral, so it would never be free again (it names {node.owner or 'nobody'})"
        yield _report_bundle(context, NOT_EPHEMERAL, Severity.WARNING, "not_ephemeral", node.path, what, evidence)
    due_ms = context.facts.orphan_ms(node)
    if due_ms is not None and due_ms <= context.facts.now_ms:
        away = human_seconds((context.facts.now_ms - node.changed_ms) / 1000)
        what = f"has had no owner for {away}; the last was {node.prior}"
        yield _report_bundle(context, ORPHAN, Severity.WARNING, "absent", node.path, what, evidence)


def _find_unknown(context: AlertContext) -> set[tuple[str, str]]:
    """The alerts (name, subject) whose readings are stale."""
    facts, cluster = context.facts, context.cluster
    oldest_ms = facts.now_ms - facts.validity_ms
    found: set[tuple[str, str]] = set()
    for name, member in facts.members.items():
        if member.track is not None and not member.is_fresh:
            found |= {(alert, f"{cluster}/{name}") for alert in _ABOUT_SESSIONS}
            found.add((FLEET_WIDE, f"{cluster}/{member.member.role}"))
        if not member.liveness.is_no_zombie:
            found |= {(alert, f"{cluster}/{name}") for alert in (NOT_REGISTERED, ZOMBIE)}
    if any(has_failed(source, facts.sources.values()) for source in facts.sources.values()):
        found.add((UNREAD, cluster))
    for node in facts.bundles():
        if node.read_ms < oldest_ms:
            found |= {(alert, f"{cluster}/{bundle_of(node.path)}") for alert in _ABOUT_BUNDLES}
    return found


def _report_member(
    context: AlertContext, alert: str, severity: Severity, reason: str, member: MemberFacts, what: str
) -> Condition:
    record, cluster = member.member, context.cluster
    labels = {"cluster": cluster, "member": member.name, "role": record.role}
    evidence = unique_ids(record.read_id, record.health.id if record.health else "")
    summary = f"{record.role} {member.name} of {cluster} {what}"
    return Condition(alert, f"{cluster}/{member.name}", severity, reason, summary, labels, evidence)


def _report_bundle(
    context: AlertContext, alert: str, severity: Severity, reason: str, path: str, what: str, evidence: tuple[str, ...]
) -> Condition:
    bundle = bundle_of(path)
    labels = {"cluster": context.cluster, "bundle": bundle}
    summary = f"bundle {bundle} of {context.cluster} {what}"
    subject = f"{context.cluster}/{bundle}"
    return Condition(alert, subject, severity, reason, summary, labels, evidence[:EVIDENCE_LIMIT])
