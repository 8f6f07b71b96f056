"""Alert conditions of the sessions policy.

Missing data neither raises nor resolves an alert: while the readings of a condition are stale, its last state stands.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from policies.alerts import MOST_SINGLY, AlertEntry, Condition, Gathered
from policies.decisions import EVIDENCE_LIMIT, Severity, unique_ids
from policies.sessions.alert_kinds import (
    DOUBLE,
    EXHAUSTED,
    FLAPPING,
    FLEET_WIDE,
    HIDDEN,
    LOAD_DATA,
    LOST,
    NOT_EPHEMERAL,
    NOT_REGISTERED,
    ORPHAN,
    REGISTRATION,
    TAKEN,
    UNREAD,
    ZOMBIE,
)
from policies.sessions.decisions import SessionReason, SessionVerdict
from policies.sessions.facts import Facts, MemberFacts
from policies.sessions.fleet import Certainty, ReadingPair, has_failed, is_hidden, is_relapsing
from policies.sessions.judge import describe_attempts, describe_flapping
from policies.sessions.readings import BROKERS, NAMESPACES, bundle_of
from policies.sessions.state import NEVER, HeldAlert, NodeRecord
from policies.units import agreeing, counted, from_millis, human_seconds, name_some

_MANY = {
    LOST: "members of {} have no ZooKeeper session",
    NOT_REGISTERED: "members of {} reported themselves healthy, but are not registered",
    ZOMBIE: "members of {} reported themselves healthy, but have not been registered for `zombie_after`",
    EXHAUSTED: "members of {} cannot reconnect, and no shutdown was ordered",
    FLAPPING: "members of {} lose their sessions or connections again and again",
    LOAD_DATA: "members of {} have recovered, but have published no load data",
    DOUBLE: "bundles of {} are claimed by more than one member",
    ORPHAN: "bundles of {} have had no owner for a while",
    NOT_EPHEMERAL: "bundles of {} have a node that outlives every session",
    REGISTRATION: "members of {} are registered by nodes that are not ephemeral, so no session protects them",
    TAKEN: "heartbeat bundles of {} are owned by other members than those that they name",
}
"""What one alert says of many things; a number stands before it."""

_ENDS = frozenset({SessionVerdict.SHUTDOWN, SessionVerdict.RESTART, SessionVerdict.GONE})
"""After one of these verdicts, no alert reports that the member cannot reconnect."""
_KEPT = frozenset({UNREAD, FLEET_WIDE, EXHAUSTED, ZOMBIE, DOUBLE, ORPHAN})
"""Alerts that less is needed to keep than to begin."""
_ABOUT_LOSSES = frozenset({LOST, EXHAUSTED, LOAD_DATA})
_ABOUT_SESSIONS = _ABOUT_LOSSES | {FLAPPING}
_ABOUT_BUNDLES = frozenset({ORPHAN, NOT_EPHEMERAL, TAKEN})


@dataclass(frozen=True)
class AlertContext:
    """The inputs of all conditions."""

    cluster: str
    facts: Facts
    """The facts that remain after the step."""
    before: Mapping[tuple[str, str], int]
    """The alerts (name, subject) whose condition held at the last step, each with the time since when."""

    @cached_property
    def unknown(self) -> Collection[tuple[str, str]]:
        """The alerts (name, subject) whose readings are stale."""
        return _find_unknown(self)

    @cached_property
    def contested(self) -> Mapping[str, Sequence[str]]:
        """The members that claim a bundle, sorted; only bundles that several claim, by path."""
        found: dict[str, list[str]] = {}
        for name in sorted(self.facts.members):
            for claim in self.facts.members[name].claims:
                if claim.rivals:
                    found.setdefault(claim.claim.path, []).append(name)
        return {path: names for path, names in found.items() if len(names) > 1}


def gather_conditions(context: AlertContext, found: Iterable[Condition]) -> Iterator[Condition | Gathered[Condition]]:
    """Gather the conditions by kind."""
    by_kind: dict[str, list[Condition]] = {}
    for condition in found:
        by_kind.setdefault(condition.alert, []).append(condition)
    for alert, each in by_kind.items():
        if alert in _MANY:
            subjects = ((condition.subject, condition) for condition in each)
            yield Gathered(alert, context.cluster, subjects, lambda condition: condition, partial(_summarize, context))
        else:
            yield from each


def list_held(context: AlertContext, found: Iterable[Condition]) -> tuple[HeldAlert, ...]:
    """List the alerts whose condition holds, or is unknown and held before, where less is needed to keep it."""
    held = {condition.key for condition in found if condition.alert in _KEPT}
    held |= {key for key in context.before if key not in held and key in context.unknown}
    return tuple((*key, context.before.get(key, context.facts.now_ms)) for key in sorted(held))


def keep_unknown(context: AlertContext, entry: AlertEntry) -> Condition | None:
    """Return the condition of an open alert, as unknown, while its readings are stale."""
    return entry.as_unknown() if (entry.alert, entry.subject) in context.unknown else None


def _summarize(context: AlertContext, many: Sequence[Condition]) -> Condition:
    """Make one condition of many of one kind, with their number and the first names."""
    cluster, alert = context.cluster, many[0].alert
    names = sorted(condition.subject.removeprefix(f"{cluster}/") for condition in many)
    claimants = Counter(name for c in many if "members" in c.labels for name in c.labels["members"].split(","))
    most = "".join(f"; {member} claims {count} of them" for member, count in claimants.most_common(1))
    summary = f"{len(many)} {_MANY[alert].format(cluster)}{most}: {name_some(names, MOST_SINGLY)}"
    return Condition(
        alert=alert,
        subject=cluster,
        severity=many[0].severity,
        reason=many[0].reason,
        summary=many[0].summary if len(many) == 1 else summary,
        labels={"cluster": cluster, "count": str(len(many)), "first": ",".join(names[:MOST_SINGLY])},
        evidence=unique_ids(*(id_ for c in many[:EVIDENCE_LIMIT] for id_ in c.evidence))[:EVIDENCE_LIMIT],
        count=len(many),
    )


def _has_held(context: AlertContext, alert: str, subject: str) -> bool:
    """Whether the condition of an alert held at the last step; then less is needed to keep it."""
    return (alert, f"{context.cluster}/{subject}") in context.before


def find_conditions(context: AlertContext) -> Iterator[Condition]:
    """Find all conditions that hold now."""
    facts = context.facts
    yield from _check_unread(context)
    yield from _check_losses(context)
    for member in facts.members.values():
        yield from _check_registration(context, member)
        yield from _check_session(context, member)
    yield from _check_claims(context)
    yield from _check_bundles(context)
    yield from _check_ownership(context)


def _check_unread(context: AlertContext) -> Iterator[Condition]:
    """One condition while ZooKeeper cannot be read. If attempts fail and succeed in turn, it lasts for `settle`."""
    facts, cluster, unread = context.facts, context.cluster, context.facts.unread
    oldest_ms = facts.now_ms - facts.validity_ms
    is_unstable = any(is_relapsing(s) and s.read_ms >= oldest_ms for s in facts.sources.values())
    if unread is None and not (is_unstable and (UNREAD, cluster) in context.before):
        return
    no_loss = "this is no loss of sessions, and no member is shut down for it"
    summary = f"ZooKeeper of {cluster} cannot be read ({unread.reason if unread else ''}): {no_loss}"
    if is_unstable:
        summary = f"attempts to read ZooKeeper of {cluster} fail and succeed in turn: {no_loss}"
    evidence = unread.evidence[:EVIDENCE_LIMIT] if unread else ()
    reason = "unstable" if unread is None else unread.reason
    yield Condition(UNREAD, cluster, Severity.WARNING, reason, summary, {"cluster": cluster}, evidence)


def _check_losses(context: AlertContext) -> Iterator[Condition]:
    """One condition for each role that lost its sessions together, else one for each member."""
    facts = context.facts
    fleet_wide = sorted(role for role, members in facts.roles.items() if members.is_known_lost_together)
    for role in fleet_wide:
        if _count_lost(context, role) >= facts.roles[role].fewest_fleet_wide:
            yield _report_fleet(context, role)
    for member in facts.members.values():
        track = member.track
        # While a member flaps, one alert reports that; this one would come and go with each reading.
        if track is None or not track.is_lost or track.unsettled or not member.is_fresh or member.liveness.is_dead:
            continue
        if member.member.role not in fleet_wide:
            what = f"has had no ZooKeeper session since {_describe_instant(track.lost_ms or 0)}"
            what += _describe_order(member)
            yield _report_member(context, LOST, Severity.WARNING, "session_lost", member, what)


def _count_lost(context: AlertContext, role: str) -> int:
    """Count the members without a session or cut off by fresh readings, or by valid ones once the alert is open."""
    members, facts, is_open = context.facts.roles[role], context.facts.members, _has_held(context, FLEET_WIDE, role)
    affected = (facts[m.member] for m in (*members.lost, *members.cut_off))
    return sum(m.is_fresh if is_open else m.certainty is not Certainty.STALE for m in affected)


def _report_fleet(context: AlertContext, role: str) -> Condition:
    members = context.facts.roles[role]
    lost = sorted(members.lost, key=lambda m: m.member)
    names = name_some([m.member for m in lost], 5)
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
    is_exhausted = member.is_exhausted and member.certainty is Certainty.SURE
    is_exhausted = is_exhausted or (member.has_failed and _has_held(context, EXHAUSTED, member.name))
    if track.is_lost and is_exhausted and not is_ordered and not is_fleet_wide:
        begun = _describe_instant(member.begun_ms)
        what = f"has not reconnected since {begun}{describe_attempts(member)}, and no shutdown was ordered"
        yield _report_member(context, EXHAUSTED, Severity.CRITICAL, "reconnect_exhausted", member, what)
    node, health, oldest_ms = member.registration, member.member.health, facts.now_ms - facts.validity_ms
    is_restless = member.liveness.is_restless and health is not None and health.at_ms >= oldest_ms
    is_unstable = member.liveness.is_unstable and node is not None and node.read_ms >= oldest_ms
    if track.unsettled or is_unstable or is_restless:
        settle = human_seconds(facts.settings.settle.total_seconds())
        what = f"was registered and unregistered in turn within {settle}, or collectors disagree about it"
        if is_restless:
            what = f"refused connections and answered in turn within {settle}, or collectors disagree about it"
        if track.unsettled:
            what = describe_flapping(track, settle)
        yield _report_member(context, FLAPPING, Severity.WARNING, "unsettled", member, what)
    due_ms = facts.load_data_missed_ms(member)
    if due_ms is not None and due_ms <= facts.now_ms:
        what = "has recovered, but has not published its load data, though Headgate asked for it"
        yield _report_member(context, LOAD_DATA, Severity.WARNING, "load_data_missing", member, what)


def _check_registration(context: AlertContext, member: MemberFacts) -> Iterator[Condition]:
    """Warn at once; critical after the longest time in which a member was seen to come back by itself."""
    absence, facts = member.liveness.unregistered, context.facts
    if absence is None:
        return
    gone = _describe_instant(absence.gone_ms)
    what = f"is healthy by the last answer of its health endpoint, but has not been registered since {gone}"
    due = f"most members come back by themselves; from {_describe_instant(absence.due_ms)} on it counts as a zombie"
    yield _report_member(context, NOT_REGISTERED, Severity.WARNING, "not_registered", member, f"{what}; {due}")
    held_ms = context.before.get((ZOMBIE, f"{context.cluster}/{member.name}"), NEVER)
    is_confirmed = absence.certainty is Certainty.SURE or held_ms != NEVER
    was_zombie = member.member.health is not None and member.member.health.started_ms < held_ms
    if was_zombie or (absence.due_ms <= facts.now_ms and is_confirmed):
        owned = facts.owned_counts.get(member.name, 0)
        owns = f", and owns {counted(owned, 'bundle') if owned else 'no bundle'}" if facts.has_ownership else ""
        what += owns + _describe_order(member)
        yield _report_member(context, ZOMBIE, Severity.CRITICAL, "zombie", member, what)


def _describe_order(member: MemberFacts) -> str:
    """Name an order that stands, so that people see one that has no effect."""
    last = member.member.last_published
    if last is None or last.is_shadow or last.verdict not in (SessionVerdict.SHUTDOWN, SessionVerdict.RESTART):
        return ""
    return f"; its {last.verdict.value} is ordered"


def _check_claims(context: AlertContext) -> Iterator[Condition]:
    """One condition for each bundle that several members claim."""
    facts = context.facts
    for path, names in context.contested.items():
        node = facts.nodes.get(path)
        timeout_ms = min(facts.members[name].member.timeout_ms for name in names)
        is_known = _is_valid(node, facts) and _has_held(context, DOUBLE, bundle_of(path))
        if not (is_known or _is_fresh(node, timeout_ms, facts)):
            continue
        holder = "it has no node"
        if node is not None and node.exists:
            holder = f"its node belongs to {f'the session {node.session}' if node.session else 'an unknown session'}"
        yield _report_bundle(
            context, DOUBLE, Severity.CRITICAL, "double_ownership", path,
            f"is claimed by {' and '.join(names)}; {holder}",
            unique_ids(node.read_id if node else "", *(facts.members[name].member.read_id for name in names)),
            {"members": ",".join(names)},
        )  # fmt: skip


def _is_valid(node: NodeRecord | None, facts: Facts) -> bool:
    return node is not None and facts.now_ms - node.read_ms <= facts.validity_ms


def _is_fresh(node: NodeRecord | None, timeout_ms: int, facts: Facts) -> bool:
    """Whether a node was read so recently that a critical alert may begin on it."""
    if node is None:
        return False
    pair = ReadingPair(node.read_ms, node.before_ms, NEVER, timeout_ms)
    return pair.judge_certainty(facts.now_ms) is not Certainty.STALE


def _check_bundles(context: AlertContext) -> Iterator[Condition]:
    facts = context.facts
    oldest_ms = facts.now_ms - facts.validity_ms
    for node in facts.odd_bundles:
        if node.read_ms < oldest_ms:
            continue
        if node.exists:
            names = node.owner or "no member"
            what = f"has a node that is not ephemeral, so the end of a session does not free it (it names {names})"
            yield _report_bundle(
                context, NOT_EPHEMERAL, Severity.WARNING, "not_ephemeral", node.path, what, (node.read_id,)
            )
            continue
        due_ms = facts.orphan_ms(node, is_open=_has_held(context, ORPHAN, bundle_of(node.path)))
        if due_ms is not None and due_ms <= facts.now_ms:
            what = f"has had no owner since {_describe_instant(node.changed_ms)}; the last was {node.prior}"
            yield _report_bundle(context, ORPHAN, Severity.WARNING, "absent", node.path, what, (node.read_id,))


def _check_ownership(context: AlertContext) -> Iterator[Condition]:
    """Nodes at which their owners are not as they should be, and owners that are not known."""
    facts, cluster, oldest_ms = context.facts, context.cluster, context.facts.now_ms - context.facts.validity_ms
    for node, named in facts.taken:
        if node.read_ms >= oldest_ms:
            what = f"belongs to {named} alone, but {node.owner} owns it: {named} may fail at each start until it is "
            what += f"unloaded at {node.owner}"
            yield _report_bundle(context, TAKEN, Severity.WARNING, "other_owner", node.path, what, (node.read_id,))
    for node in facts.not_ephemeral:
        if node.read_ms >= oldest_ms:
            yield _report_registration(context, node)
    hidden = sorted(s.name for s in facts.sources.values() if is_hidden(s, facts.sources.values()))
    if hidden:
        what = (
            f"it is not known which members of {cluster} own the bundles below {name_some(hidden, 3)}: ZooKeeper does "
        )
        what += (
            "not show it, and no broker answers for it, or a record cannot hold them; these bundles get no decisions"
        )
        yield Condition(HIDDEN, cluster, Severity.WARNING, "unsupported", what, {"cluster": cluster})


def _report_registration(context: AlertContext, node: NodeRecord) -> Condition:
    name = node.path.removeprefix(f"{BROKERS}/")
    member = context.facts.members.get(name)
    role, health = (member.member.role, member.member.health) if member else ("broker", None)
    what = (
        "it is not asked for its health, so nothing shows whether it lives" if health is None else "its health decides"
    )
    if member is not None and member.liveness.is_dead:
        what = "its process is gone, and clients are sent to it until the node is deleted"
    summary = (
        f"{role} {name} of {context.cluster} is registered by a node that is not ephemeral, so no session protects "
    )
    summary += f"it, and the node stays when its process ends: {what}"
    labels = {"cluster": context.cluster, "member": name, "role": role}
    evidence = unique_ids(node.read_id, health.id if health else "")
    subject = f"{context.cluster}/{name}"
    return Condition(REGISTRATION, subject, Severity.WARNING, "not_ephemeral", summary, labels, evidence)


def _describe_instant(at_ms: int) -> str:
    """Word an instant. A summary with the time since then would be another one at each step."""
    return f"{from_millis(at_ms).isoformat(' ')[:19]} UTC"


def _find_unknown(context: AlertContext) -> set[tuple[str, str]]:
    """The alerts (name, subject) whose readings are stale."""
    facts, cluster, sources = context.facts, context.cluster, context.facts.sources.values()
    found = {(FLEET_WIDE, f"{cluster}/{role}") for role, each in facts.roles.items() if each.may_be_lost_together}
    if any(has_failed(source, sources) or is_relapsing(source) for source in sources):
        found.add((UNREAD, cluster))
    return found | _find_unknown_members(context) | _find_unknown_bundles(context)


def _find_unknown_members(context: AlertContext) -> set[tuple[str, str]]:
    cluster, found = context.cluster, set[tuple[str, str]]()
    for name, member in context.facts.members.items():
        if member.track is not None and not member.is_fresh:
            found |= {(alert, f"{cluster}/{name}") for alert in _ABOUT_SESSIONS}
            if member.track.is_lost or member.track.unsettled:
                found |= {(alert, cluster) for alert in _ABOUT_SESSIONS}
        if member.liveness.unregistered is None and not member.liveness.is_no_zombie:
            found |= {(alert, f"{cluster}/{name}") for alert in (NOT_REGISTERED, ZOMBIE)}
            if member.registration is not None:
                found |= {(alert, cluster) for alert in (NOT_REGISTERED, ZOMBIE)}
        if member.liveness.is_unstable or member.liveness.is_restless:
            found |= {(FLAPPING, f"{cluster}/{name}"), (FLAPPING, cluster)}
    return found


def _find_unknown_bundles(context: AlertContext) -> set[tuple[str, str]]:
    facts, cluster = context.facts, context.cluster
    found = {(DOUBLE, f"{cluster}/{bundle_of(path)}") for path in context.contested}
    if found:
        found.add((DOUBLE, cluster))
    for node in facts.bundles:
        if not _is_valid(node, facts):
            found |= {(alert, f"{cluster}/{bundle_of(node.path)}") for alert in _ABOUT_BUNDLES}
            if not node.exists or not node.ephemeral:
                found |= {(alert, cluster) for alert in _ABOUT_BUNDLES}
    found |= {(TAKEN, cluster) for node, _ in facts.taken if not _is_valid(node, facts)}
    for node in facts.not_ephemeral:
        if not _is_valid(node, facts):
            found |= {(REGISTRATION, f"{cluster}/{node.path.removeprefix(f'{BROKERS}/')}"), (REGISTRATION, cluster)}
    if not any(name.startswith(NAMESPACES) for name in facts.sources):
        found.add((HIDDEN, cluster))
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
    context: AlertContext, alert: str, severity: Severity, reason: str, path: str, what: str, evidence: tuple[str, ...],
    more: Mapping[str, str] | None = None,
) -> Condition:  # fmt: skip
    bundle = bundle_of(path)
    labels = {"cluster": context.cluster, "bundle": bundle, **(more or {})}
    summary = f"bundle {bundle} of {context.cluster} {what}"
    subject = f"{context.cluster}/{bundle}"
    return Condition(alert, subject, severity, reason, summary, labels, evidence[:EVIDENCE_LIMIT])
