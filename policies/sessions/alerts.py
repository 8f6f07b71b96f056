"""Alert conditions of the sessions policy.

Missing data neither raises nor resolves an alert: while the readings of a condition are too old, its last state stands.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from policies.alerts import AlertBook, Condition
from policies.decisions import EVIDENCE_LIMIT, Severity
from policies.sessions.decisions import SessionReason, SessionVerdict
from policies.sessions.facts import Facts, MemberFacts, ids
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

_TOLD = frozenset({SessionVerdict.SHUTDOWN, SessionVerdict.RESTART, SessionVerdict.GONE})
"""Who has one of these need not be told any more that it cannot reconnect."""
_OF_SESSIONS = frozenset({LOST, FLEET_WIDE, EXHAUSTED, FLAPPING, LOAD_DATA})
_OF_BUNDLES = frozenset({ORPHAN, NOT_EPHEMERAL})


@dataclass(frozen=True, slots=True)
class AlertContext:
    """What the conditions are read from."""

    cluster: str
    facts: Facts
    """Those that remain after the step."""
    book: AlertBook


def conditions(context: AlertContext) -> Iterator[Condition]:
    """Everything that is the case now, and what was said of what is not known now."""
    held = {c.key: c for c in _conditions(context)}
    yield from held.values()
    unknown = _unknown_subjects(context)
    for entry in context.book.entries:
        key = (entry.alert, entry.subject)
        if entry.said_ms is not None and key not in held and key in unknown:
            yield entry.as_unknown()


def _conditions(context: AlertContext) -> Iterator[Condition]:
    facts = context.facts
    yield from _unread(context)
    yield from _lost(context)
    for member in facts.members.values():
        yield from _of_member(context, member)
    yield from _double(context)
    for node in facts.bundles():
        if facts.now_ms - node.read_ms <= facts.validity_ms:
            yield from _of_bundle(context, node)


def _unread(context: AlertContext) -> Iterator[Condition]:
    unread = context.facts.unread
    if unread is None:
        return
    yield Condition(
        alert=UNREAD,
        subject=context.cluster,
        severity=Severity.WARNING,
        reason=unread.reason,
        summary=f"ZooKeeper of {context.cluster} cannot be read ({unread.reason}): that is no loss of sessions, and "
        "nobody is told to shut down for it",
        labels={"cluster": context.cluster},
        evidence=unread.evidence[:EVIDENCE_LIMIT],
    )


def _lost(context: AlertContext) -> Iterator[Condition]:
    """One for a fleet that lost its sessions together, else one for each member."""
    facts = context.facts
    hit = sorted(role for role, members in facts.fleet.roles.items() if members.is_known_lost_together)
    for role in hit:
        yield _fleet_wide(context, role)
    for member in facts.members.values():
        track = member.track
        if track is None or not track.is_lost or not member.is_fresh or member.liveness.is_dead:
            continue
        if member.member.role not in hit:
            lost_for = human_seconds((facts.now_ms - (track.lost_ms or 0)) / 1000)
            what = f"has had no ZooKeeper session for {lost_for}"
            yield _member(context, LOST, Severity.WARNING, "session_lost", member, what)


def _fleet_wide(context: AlertContext, role: str) -> Condition:
    of_role = context.facts.fleet.roles[role]
    lost = sorted(of_role.lost, key=lambda m: m.member)
    names = ", ".join(m.member for m in lost[:5]) + (f" and {len(lost) - 5} more" if len(lost) > 5 else "")
    cut = len(of_role.cut_off)
    cut_off = f", and {cut} {agreeing(cut, 'is', 'are')} cut off" if cut else ""
    count = f"{len(lost)} of {len(of_role.members) + of_role.unread}"
    return Condition(
        alert=FLEET_WIDE,
        subject=f"{context.cluster}/{role}",
        severity=Severity.CRITICAL,
        reason="fleet_wide",
        summary=f"{count} members of the role {role} of {context.cluster} {agreeing(len(lost), 'is', 'are')} without a "
        f"session: {names}{cut_off}",
        labels={"cluster": context.cluster, "role": role},
        evidence=ids(*(m.read_id for m in lost))[:EVIDENCE_LIMIT],
    )


def _of_member(context: AlertContext, member: MemberFacts) -> Iterator[Condition]:
    facts, track, last = context.facts, member.track, member.member.last_published
    yield from _unregistered(context, member)
    if track is None or not member.is_fresh:
        return
    told = last is not None and (last.verdict in _TOLD or last.reason is SessionReason.STALE_READING)
    of_all = facts.fleet.roles[member.member.role].is_known_lost_together
    if track.is_lost and member.is_exhausted and not told and not of_all:
        what = f"cannot reconnect ({counted(member.member.attempts, 'failed attempt')}), and was not told to shut down"
        yield _member(context, EXHAUSTED, Severity.CRITICAL, "reconnect_exhausted", member, what)
    if track.unsettled:
        settle = human_seconds(facts.settings.settle.total_seconds())
        what = f"lost its session {counted(len(track.losses), 'time')} within {settle}"
        yield _member(context, FLAPPING, Severity.WARNING, "unsettled", member, what)
    due_ms = facts.load_data_missed_ms(member)
    if due_ms is not None and due_ms <= facts.now_ms:
        what = "has its bundles again, but has published no load data though it was told to"
        yield _member(context, LOAD_DATA, Severity.WARNING, "load_data_missing", member, what)


def _unregistered(context: AlertContext, member: MemberFacts) -> Iterator[Condition]:
    """A warning at once; critical once it has had as long as any takes that comes back by itself."""
    absence, facts = member.liveness.unregistered, context.facts
    if absence is None:
        return
    away = human_seconds((facts.now_ms - absence.gone_ms) / 1000)
    left = human_seconds(max(0, absence.due_ms - facts.now_ms) / 1000)
    what = f"says it is healthy, but has not been registered for {away}"
    yield _member(
        context, NOT_REGISTERED, Severity.WARNING, "not_registered", member,
        f"{what}; most come back by themselves, it has {left} left",
    )  # fmt: skip
    said = context.book.keys()
    if absence.due_ms <= facts.now_ms or (ZOMBIE, f"{context.cluster}/{member.name}") in said:
        yield _member(context, ZOMBIE, Severity.CRITICAL, "zombie", member, f"{what}, and owns nothing")


def _double(context: AlertContext) -> Iterator[Condition]:
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
        yield _bundle(
            context, DOUBLE, Severity.CRITICAL, "double_ownership", path,
            f"is claimed by {' and '.join(names)}; its node belongs to the session {winner or 'of nobody'}",
            ids(node.read_id if node else "", *(facts.members[name].member.read_id for name in names)),
        )  # fmt: skip


def _of_bundle(context: AlertContext, node: NodeRecord) -> Iterator[Condition]:
    if node.exists and not node.ephemeral:
        what = f"has a node that is not ephemeral, so it would never be free again (it names {node.owner or 'nobody'})"
        yield _bundle(context, NOT_EPHEMERAL, Severity.WARNING, "not_ephemeral", node.path, what, ids(node.read_id))
    due_ms = context.facts.orphan_ms(node)
    if due_ms is not None and due_ms <= context.facts.now_ms:
        away = human_seconds((context.facts.now_ms - node.changed_ms) / 1000)
        what = f"has had no owner for {away}; the last was {node.prior}"
        yield _bundle(context, ORPHAN, Severity.WARNING, "absent", node.path, what, ids(node.read_id))


def _unknown_subjects(context: AlertContext) -> set[tuple[str, str]]:
    """The alerts (name, subject) about which nothing is known now."""
    facts, cluster = context.facts, context.cluster
    oldest_ms = facts.now_ms - facts.validity_ms
    found: set[tuple[str, str]] = set()
    for name, member in facts.members.items():
        if member.track is not None and not member.is_fresh:
            found |= {(alert, f"{cluster}/{name}") for alert in _OF_SESSIONS}
            found.add((FLEET_WIDE, f"{cluster}/{member.member.role}"))
        if not member.liveness.is_no_zombie:
            found |= {(alert, f"{cluster}/{name}") for alert in (NOT_REGISTERED, ZOMBIE)}
    if any(has_failed(source, facts.sources.values()) for source in facts.sources.values()):
        found.add((UNREAD, cluster))
    for node in facts.bundles():
        if node.read_ms < oldest_ms:
            found |= {(alert, f"{cluster}/{bundle_of(node.path)}") for alert in _OF_BUNDLES}
    return found


def _member(
    context: AlertContext, alert: str, severity: Severity, reason: str, member: MemberFacts, what: str
) -> Condition:
    record, cluster = member.member, context.cluster
    labels = {"cluster": cluster, "member": member.name, "role": record.role}
    evidence = ids(record.read_id, record.health.id if record.health else "")
    summary = f"{record.role} {member.name} of {cluster} {what}"
    return Condition(alert, f"{cluster}/{member.name}", severity, reason, summary, labels, evidence)


def _bundle(
    context: AlertContext, alert: str, severity: Severity, reason: str, path: str, what: str, evidence: tuple[str, ...]
) -> Condition:
    bundle = bundle_of(path)
    labels = {"cluster": context.cluster, "bundle": bundle}
    summary = f"bundle {bundle} of {context.cluster} {what}"
    subject = f"{context.cluster}/{bundle}"
    return Condition(alert, subject, severity, reason, summary, labels, evidence[:EVIDENCE_LIMIT])
