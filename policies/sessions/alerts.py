"""Alert conditions of the sessions policy.

Missing data neither raises nor resolves an alert: while the readings of a condition are stale, its last state stands.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from policies.alerts import AlertEntry, Condition
from policies.decisions import EVIDENCE_LIMIT, unique_ids
from policies.sessions import alert_kinds as kinds
from policies.sessions.decisions import SessionReason, SessionVerdict
from policies.sessions.facts import Facts, MemberFacts
from policies.sessions.fleet import Certainty, ReadingPair, RoleFacts, has_failed, is_hidden, is_relapsing
from policies.sessions.judge import describe_attempts, describe_flapping
from policies.sessions.readings import BROKERS, NAMESPACES, bundle_of, is_bundle
from policies.sessions.state import NEVER, HeldAlert
from policies.units import agreeing, counted, from_millis, human_seconds, name_some

_ENDS = frozenset({SessionVerdict.SHUTDOWN, SessionVerdict.RESTART, SessionVerdict.GONE})
"""After one of these verdicts, no alert reports that the member cannot reconnect."""
_KEPT = frozenset({kinds.UNREAD, kinds.FLEET_WIDE, kinds.EXHAUSTED, kinds.ZOMBIE, kinds.DOUBLE, kinds.ORPHAN})
"""Alerts that less is needed to keep than to begin."""
_ABOUT_SESSIONS = frozenset({kinds.LOST, kinds.EXHAUSTED, kinds.LOAD_DATA, kinds.FLAPPING})
_ABOUT_BUNDLES = frozenset({kinds.ORPHAN, kinds.NOT_EPHEMERAL, kinds.TAKEN})


_SEVERITIES = {kind.name: kind.severities[0] for kind in kinds.ALERTS}


@dataclass(frozen=True)
class Alerts:
    """Finds the conditions that hold after a step."""

    cluster: str
    facts: Facts
    """The facts that remain after the step."""
    before: Mapping[tuple[str, str], int]
    """The alerts (name, subject) whose condition held at the last step, each with the time since when."""
    _unknown: set[tuple[str, str]] = field(default_factory=set)
    """The alerts (name, subject) whose readings are stale; `find` adds them."""

    def list_held(self, found: Iterable[Condition]) -> tuple[HeldAlert, ...]:
        """List the alerts whose condition holds, or is unknown and held before, where less is needed to keep it."""
        held = {condition.key for condition in found if condition.alert in _KEPT}
        held |= {key for key in self.before if key in self._unknown}
        return tuple((*key, self.before.get(key, self.facts.now_ms)) for key in sorted(held))

    def keep_unknown(self, entry: AlertEntry) -> Condition | None:
        """Return the condition of an open alert, as unknown, while its readings are stale."""
        return entry.as_unknown() if (entry.alert, entry.subject) in self._unknown else None

    def find(self) -> Iterator[Condition]:
        """Find all conditions that hold now."""
        yield from self._check_unread()
        yield from self._check_losses()
        for member in self.facts.members.values():
            yield from self._check_registration(member)
            yield from self._check_session(member)
        yield from self._check_claims()
        yield from self._check_bundles()
        yield from self._check_registrations()
        yield from self._check_sources()

    def _report(
        self, alert: str, reason: str, name: str | None, summary: str, evidence: Sequence[str], **labels: str
    ) -> Condition:
        """Make the condition about one thing of the cluster, or about the cluster itself."""
        subject = self.cluster if name is None else f"{self.cluster}/{name}"
        labels, evidence = {"cluster": self.cluster, **labels}, unique_ids(*evidence)[:EVIDENCE_LIMIT]
        return Condition(alert, subject, _SEVERITIES[alert], reason, summary, labels, evidence)

    def _report_member(self, alert: str, reason: str, member: MemberFacts, what: str) -> Condition:
        record, name = member.member, member.name
        evidence = (record.read_id, record.health.id if record.health else "")
        summary = f"{record.role} {name} of {self.cluster} {what}"
        return self._report(alert, reason, name, summary, evidence, member=name, role=record.role)

    def _report_bundle(
        self, alert: str, reason: str, path: str, what: str, evidence: Sequence[str], **labels: str
    ) -> Condition:
        bundle = bundle_of(path)
        summary = f"bundle {bundle} of {self.cluster} {what}"
        return self._report(alert, reason, bundle, summary, evidence, bundle=bundle, **labels)

    def _has_held(self, alert: str, name: str) -> bool:
        """Whether the condition of an alert held at the last step; then less is needed to keep it."""
        return (alert, f"{self.cluster}/{name}") in self.before

    def _keep(self, alerts: Iterable[str], name: str, *, is_gathered: bool) -> None:
        """Note alerts with stale readings, and whether the one alert of many is stale, too."""
        for alert in alerts:
            self._unknown.add((alert, f"{self.cluster}/{name}"))
            if is_gathered:
                self._unknown.add((alert, self.cluster))

    def _check_unread(self) -> Iterator[Condition]:
        """One condition while ZooKeeper cannot be read. If attempts fail and succeed in turn, it lasts for `settle`."""
        facts, unread, sources = self.facts, self.facts.unread, self.facts.sources.values()
        if any(has_failed(source, sources) or is_relapsing(source) for source in sources):
            self._keep((kinds.UNREAD,), "", is_gathered=True)
        is_unstable = any(is_relapsing(s) and facts.is_valid(s.read_ms) for s in sources)
        if unread is None and not (is_unstable and (kinds.UNREAD, self.cluster) in self.before):
            return
        reason, evidence = ("unstable", ()) if unread is None else (unread.reason, unread.evidence)
        summary = f"ZooKeeper of {self.cluster} cannot be read ({reason})"
        if is_unstable:
            summary = f"attempts to read ZooKeeper of {self.cluster} fail and succeed in turn"
        summary += ": this is no loss of sessions, and no member is shut down for it"
        yield self._report(kinds.UNREAD, reason, None, summary, evidence)

    def _check_losses(self) -> Iterator[Condition]:
        """One condition for each role that lost its sessions together, else one for each member."""
        facts = self.facts
        for role, each in sorted(facts.roles.items()):
            if each.may_be_lost_together:
                self._keep((kinds.FLEET_WIDE,), role, is_gathered=False)
            if each.is_known_lost_together:
                affected, is_open = (*each.lost, *each.cut_off), self._has_held(kinds.FLEET_WIDE, role)
                found = [facts.members[m.member] for m in affected]
                # It begins on fresh readings only, and stays on valid ones.
                known = sum(m.is_fresh if is_open else m.certainty is not Certainty.STALE for m in found)
                if known >= each.fewest_fleet_wide:
                    yield self._report_fleet(role, each)
        for member in facts.members.values():
            track = member.track
            # While a member flaps, one alert reports that; this one would come and go with each reading.
            if track is None or not track.is_lost or track.unsettled or not member.is_fresh or member.liveness.is_dead:
                continue
            if not facts.roles[member.member.role].is_known_lost_together:
                what = f"has had no ZooKeeper session since {_describe_instant(track.lost_ms or 0)}"
                yield self._report_member(kinds.LOST, "session_lost", member, what + _describe_order(member))

    def _report_fleet(self, role: str, members: RoleFacts) -> Condition:
        lost, cut = sorted(members.lost, key=lambda m: m.member), len(members.cut_off)
        count = f"{len(lost)} of {len(members.members) + members.unread}"
        names = name_some([m.member for m in lost], 5)
        summary = f"{count} members of the role {role} of {self.cluster} {agreeing(len(lost), 'is', 'are')} without a "
        summary += f"session: {names}" + (f", and {cut} {agreeing(cut, 'is', 'are')} cut off" if cut else "")
        return self._report(kinds.FLEET_WIDE, "fleet_wide", role, summary, [m.read_id for m in lost], role=role)

    def _check_session(self, member: MemberFacts) -> Iterator[Condition]:
        facts, track, last, liveness = self.facts, member.track, member.member.last_published, member.liveness
        if liveness.is_unstable or liveness.is_restless:
            self._keep((kinds.FLAPPING,), member.name, is_gathered=True)
        if track is None:
            return
        if not member.is_fresh:
            self._keep(_ABOUT_SESSIONS, member.name, is_gathered=track.is_lost or track.unsettled)
            return
        is_ordered = last is not None and (last.verdict in _ENDS or last.reason is SessionReason.STALE_READING)
        is_fleet_wide = facts.roles[member.member.role].is_known_lost_together
        is_exhausted = member.is_exhausted and member.certainty is Certainty.SURE
        is_exhausted = is_exhausted or (member.has_failed and self._has_held(kinds.EXHAUSTED, member.name))
        if track.is_lost and is_exhausted and not is_ordered and not is_fleet_wide:
            begun = _describe_instant(member.member.begun_ms)
            what = f"has not reconnected since {begun}{describe_attempts(member)}, and no shutdown was ordered"
            yield self._report_member(kinds.EXHAUSTED, "reconnect_exhausted", member, what)
        node, health = member.registration, member.member.health
        is_restless = liveness.is_restless and health is not None and facts.is_valid(health.at_ms)
        is_unstable = liveness.is_unstable and node is not None and facts.is_valid(node.read_ms)
        if track.unsettled or is_unstable or is_restless:
            settle = human_seconds(facts.settings.settle.total_seconds())
            turns = "refused connections and answered" if is_restless else "was registered and unregistered"
            what = f"{turns} in turn within {settle}, or collectors disagree about it"
            what = describe_flapping(track, settle) if track.unsettled else what
            yield self._report_member(kinds.FLAPPING, "unsettled", member, what)
        due_ms = facts.load_data_missed_ms(member)
        if due_ms is not None and due_ms <= facts.now_ms:
            what = "has recovered, but has not published its load data, though Headgate asked for it"
            yield self._report_member(kinds.LOAD_DATA, "load_data_missing", member, what)

    def _check_registration(self, member: MemberFacts) -> Iterator[Condition]:
        """Warn at once; critical after the longest time in which a member was seen to come back by itself."""
        absence, facts = member.liveness.unregistered, self.facts
        if absence is None:
            if not member.liveness.is_no_zombie:
                self._keep(
                    (kinds.NOT_REGISTERED, kinds.ZOMBIE), member.name, is_gathered=member.registration is not None
                )
            return
        gone = _describe_instant(absence.gone_ms)
        what = f"is healthy by the last answer of its health endpoint, but has not been registered since {gone}"
        due = f"most members come back by themselves; from {_describe_instant(absence.due_ms)} on it counts as a zombie"
        yield self._report_member(kinds.NOT_REGISTERED, "not_registered", member, f"{what}; {due}")
        held_ms = self.before.get((kinds.ZOMBIE, f"{self.cluster}/{member.name}"), NEVER)
        is_confirmed = absence.certainty is Certainty.SURE or held_ms != NEVER
        was_zombie = member.member.health is not None and member.member.health.started_ms < held_ms
        if was_zombie or (absence.due_ms <= facts.now_ms and is_confirmed):
            owned = facts.owned_counts.get(member.name, 0)
            owns = f", and owns {counted(owned, 'bundle') if owned else 'no bundle'}" if facts.has_ownership else ""
            yield self._report_member(kinds.ZOMBIE, "zombie", member, what + owns + _describe_order(member))

    def _check_claims(self) -> Iterator[Condition]:
        """One condition for each bundle that several members claim."""
        facts = self.facts
        claimants: dict[str, list[str]] = {}
        for name in sorted(facts.members):
            for claim in facts.members[name].claims:
                if claim.rivals:
                    claimants.setdefault(claim.claim.path, []).append(name)
        rivals = {path: names for path, names in claimants.items() if len(names) > 1}
        most = Counter(chain.from_iterable(rivals.values())).most_common(1)
        of_many = "".join(f"; {member} claims {count} of them" for member, count in most)
        for path, names in rivals.items():
            self._keep((kinds.DOUBLE,), bundle_of(path), is_gathered=True)
            node, timeout_ms = facts.nodes.get(path), min(facts.members[name].member.timeout_ms for name in names)
            if node is None:
                continue
            # A critical alert begins on a fresh reading only.
            pair = ReadingPair(node.read_ms, node.before_ms, NEVER, timeout_ms)
            is_known = facts.is_valid(node.read_ms) and self._has_held(kinds.DOUBLE, bundle_of(path))
            if not is_known and pair.judge_certainty(facts.now_ms) is Certainty.STALE:
                continue
            session = f"the session {node.session}" if node.session else "an unknown session"
            holder = f"its node belongs to {session}" if node.exists else "it has no node"
            what = f"is claimed by {' and '.join(names)}; {holder}"
            evidence = (node.read_id, *(facts.members[name].member.read_id for name in names))
            found = self._report_bundle(kinds.DOUBLE, "double_ownership", path, what, evidence, members=",".join(names))
            yield replace(found, of_many=of_many)

    def _check_bundles(self) -> Iterator[Condition]:
        """Bundles without an owner, with a node that outlives every session, or with the wrong owner."""
        facts = self.facts
        for node in facts.bundles:
            if not facts.is_valid(node.read_ms):
                is_odd = not (node.exists and node.ephemeral)
                self._keep(_ABOUT_BUNDLES, bundle_of(node.path), is_gathered=is_odd)
            elif not node.exists:
                due_ms = facts.orphan_ms(node, is_open=self._has_held(kinds.ORPHAN, bundle_of(node.path)))
                if due_ms is not None and due_ms <= facts.now_ms:
                    what = f"has had no owner since {_describe_instant(node.changed_ms)}; the last was {node.prior}"
                    yield self._report_bundle(kinds.ORPHAN, "absent", node.path, what, (node.read_id,))
            elif not node.ephemeral:
                what = "has a node that is not ephemeral, so the end of a session does not free it "
                what += f"(it names {node.owner or 'no member'})"
                yield self._report_bundle(kinds.NOT_EPHEMERAL, "not_ephemeral", node.path, what, (node.read_id,))
        for node, named in facts.taken:
            if facts.is_valid(node.read_ms):
                what = f"belongs to {named} alone, but {node.owner} owns it: {named} may fail at each start until it "
                what += f"is unloaded at {node.owner}"
                yield self._report_bundle(kinds.TAKEN, "other_owner", node.path, what, (node.read_id,))
            else:
                self._keep((kinds.TAKEN,), bundle_of(node.path), is_gathered=True)

    def _check_registrations(self) -> Iterator[Condition]:
        """Registrations that outlive every session."""
        for node in self.facts.nodes.values():
            if not node.exists or node.ephemeral or is_bundle(node.path):
                continue
            name = node.path.removeprefix(f"{BROKERS}/")
            if not self.facts.is_valid(node.read_ms):
                self._keep((kinds.REGISTRATION,), name, is_gathered=True)
                continue
            member = self.facts.members.get(name)
            role, health = (member.member.role, member.member.health) if member else ("broker", None)
            what = (
                "its health decides" if health else "it is not asked for its health, so nothing shows whether it lives"
            )
            if member is not None and member.liveness.is_dead:
                what = "its process is gone, and clients are sent to it until the node is deleted"
            summary = f"{role} {name} of {self.cluster} is registered by a node that is not ephemeral, so no session "
            summary += f"protects it, and the node stays when its process ends: {what}"
            evidence = (node.read_id, health.id if health else "")
            yield self._report(kinds.REGISTRATION, "not_ephemeral", name, summary, evidence, member=name, role=role)

    def _check_sources(self) -> Iterator[Condition]:
        """Whether ownership is hidden."""
        sources = self.facts.sources
        if not any(name.startswith(NAMESPACES) for name in sources):
            self._keep((kinds.HIDDEN,), "", is_gathered=True)
        if hidden := sorted(name for name, source in sources.items() if is_hidden(source, sources.values())):
            what = f"it is not known which members of {self.cluster} own the bundles below {name_some(hidden, 3)}: "
            what += "ZooKeeper does not show it, and no broker answers for it, or a record cannot hold them; these "
            yield self._report(kinds.HIDDEN, "unsupported", None, f"{what}bundles get no decisions", ())


def _describe_order(member: MemberFacts) -> str:
    """Name an order that stands, so that people see one that has no effect."""
    last = member.member.last_published
    if last is None or last.is_shadow or last.verdict not in (SessionVerdict.SHUTDOWN, SessionVerdict.RESTART):
        return ""
    return f"; its {last.verdict.value} is ordered"


def _describe_instant(at_ms: int) -> str:
    """Word an instant. A summary with the time since then would be another one at each step."""
    return f"{from_millis(at_ms).isoformat(' ')[:19]} UTC"
