"""Alert conditions of the isolation policy.

Conditions rest on confirmed facts only: a bookie that is missing from a single reading still counts as present. Missing
data neither raises nor resolves an alert: while the readings of a condition are stale, its last state stands.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import merge, nsmallest
from itertools import islice

from policies.alerts import AlertEntry, Condition
from policies.confirmation import Doubt
from policies.decisions import Mode, Severity
from policies.isolation.alert_kinds import (
    HEADROOM,
    IDLE,
    INFEASIBLE,
    LEAK,
    MISSING,
    NO_GROUPS,
    OVERDUE,
    STARVES,
    UNASSIGNED,
    UNCONFIRMED,
    UNREAD,
)
from policies.isolation.decisions import QUARANTINE_GROUP, PlacementVerdict
from policies.isolation.judge import (
    NAMED_LIMIT,
    IsolationFacts,
    PlacementJudgement,
    explain_placement,
    explain_portless,
    name_groups,
)
from policies.isolation.state import NEVER, NODE, BookieState, Presence, QuarantineOrder, is_cookie
from policies.observations import name_failure
from policies.units import counted, counted_with, format_duration, format_second, from_millis, millis_of, name_some

OVERDUE_MS = 60_000
"""A quarantine order that is not carried out by then is overdue."""
_IN_QUARANTINE = "in quarantine until an operator puts it into a group"
_ABOUT_BOOKIES = frozenset({UNASSIGNED, IDLE, MISSING, OVERDUE, NO_GROUPS})
_ABOUT_NAMESPACES = frozenset({LEAK, INFEASIBLE, HEADROOM, STARVES})
_READINGS: Mapping[str, tuple[str, str]] = {
    "bookies": ("the registered bookies", "registered bookie"),
    "racks": ("the bookie groups", "grouped bookie"),
    "affinity": ("the affinities of namespaces", "namespace"),
}
"""How alerts word a kind of reading, and one of its members."""


@dataclass(frozen=True, slots=True)
class IsolationAlerts:
    """Everything that a person should know of a cluster now."""

    facts: IsolationFacts
    placements: Sequence[PlacementJudgement]
    """The verdicts on namespaces with an affinity."""
    orders: Sequence[QuarantineOrder]
    """The orders in force after this step."""
    started_ms: int

    def find(self) -> Iterator[Condition]:
        """Find all conditions that hold now; those about bookies rest on fresh readings of registrations and groups."""
        facts = self.facts
        yield from self._check_readings()
        yield from self._check_doubts()
        if facts.has_fresh_registrations:
            if facts.membership.has_groups:
                yield from self._check_unassigned()
                yield from self._check_idle()
            elif facts.known.bookies:
                yield self._report_no_groups()
            yield from self._check_missing()
            yield from self._check_overdue()
        if facts.is_fresh:
            yield from self._check_namespaces()
            yield from self._check_starved()

    def keep_unknown(self, entry: AlertEntry) -> Condition | None:
        """Return the condition of an open alert as it was last published, while the readings of it are stale."""
        is_unknown = entry.alert in _ABOUT_BOOKIES and not self.facts.has_fresh_registrations
        is_unknown = is_unknown or (entry.alert in _ABOUT_NAMESPACES and not self.facts.is_fresh)
        return entry.as_condition() if is_unknown else None

    def due_ms(self) -> Iterator[int]:
        """When (milliseconds since the epoch) a condition may begin or end without a reading; some may be past."""
        facts, settings = self.facts, self.facts.settings
        validity_ms, missing_after_ms = millis_of(settings.validity), millis_of(settings.member_missing_after)
        yield self.started_ms + validity_ms
        for status in facts.known.statuses.values():
            if status.read_ms != NEVER:
                yield status.read_ms + validity_ms
            yield from {doubt.since_ms + self._lasting_ms() for doubt in status.doubts if doubt.is_contradicted}
        for bookie in facts.notable:
            if bookie.assigned is False:
                yield bookie.since_ms + millis_of(settings.grace)
            elif bookie.assigned and (missing_ms := self._missing_since(bookie)) is not None:
                yield missing_ms + missing_after_ms
        yield from (since_ms + OVERDUE_MS for _, since_ms in self._find_pending())

    # About readings: one condition for the cluster.

    def _check_readings(self) -> Iterator[Condition]:
        facts, validity = self.facts, self.facts.settings.validity
        oldest_ms = facts.now_ms - millis_of(validity)
        unread = {kind: each for kind, each in facts.stale.items() if max(each.read_ms, self.started_ms) <= oldest_ms}
        if not unread:
            return
        why = {kind: name_failure(status.outcome) for kind, status in unread.items()}
        which = " and ".join(f"{_READINGS[kind][0]} ({why[kind]})" for kind in unread)
        summary = (
            f"{which} of {facts.cluster} have not been read for {format_duration(validity)} or longer: "
            "Headgate decides nothing new that rests on them"
        )
        evidence = tuple(status.tried_id for status in unread.values() if status.tried_id)
        labels, reason = {"readings": ",".join(unread)}, next(iter(why.values()))
        yield self._condition(UNREAD, Severity.WARNING, reason, summary, labels=labels, evidence=evidence)

    def _check_doubts(self) -> Iterator[Condition]:
        """One condition while most of a reading is doubted, or readings keep contradicting each other."""
        facts, statuses = self.facts, self.facts.known.statuses
        found = {kind: doubts for kind in statuses if (doubts := self._list_odd(kind))}
        if not found:
            return
        since = format_second(from_millis(min(doubt.since_ms for doubts in found.values() for doubt in doubts)))
        summary = (
            f"since {since} readings of {facts.cluster} contradict what was confirmed about "
            f"{' and '.join(_describe_doubts(kind, doubts) for kind, doubts in found.items())}: that counts until two "
            f"readings in a row, {format_duration(facts.settings.confirm_after)} apart, agree"
        )
        labels, evidence = {"readings": ",".join(found)}, tuple(statuses[kind].tried_id for kind in found)
        yield self._condition(UNCONFIRMED, Severity.WARNING, "unconfirmed", summary, labels=labels, evidence=evidence)

    def _list_odd(self, kind: str) -> list[Doubt]:
        """List the doubts about bookies and namespaces, if they concern most of them, or contradictions that last.

        Changes and new members that no reading contradicts are left out.
        """
        known, doubts = self.facts.known, self.facts.known.statuses[kind].doubts
        if not doubts:
            return []
        believed = {name for name in known.believed(kind) if not is_cookie(name)}
        odd = [
            doubt
            for doubt in doubts
            if (doubt.name == NODE or not is_cookie(doubt.name))
            and (doubt.name or kind == "affinity")
            and (doubt.is_contradicted or doubt.shown is None or doubt.name not in believed)
        ]
        oldest_ms = self.facts.now_ms - self._lasting_ms()
        is_lasting = any(doubt.is_contradicted and doubt.since_ms <= oldest_ms for doubt in odd)
        names = {doubt.name for doubt in odd if not doubt.is_new or doubt.name not in believed}
        # The quarantine group may be emptied.
        groups = [members for group, members in known.groups or () if kind == "racks" and group != QUARANTINE_GROUP]
        are_most = any(2 * len(names.intersection(members)) > len(members) for members in groups)
        if not groups:
            are_most = NODE in names or 2 * len(names) > len(believed) > 0
        return odd if is_lasting or are_most else []

    def _lasting_ms(self) -> int:
        """How long readings must contradict each other for an alert: two ordinary doubts in a row end before that."""
        settings = self.facts.settings
        return millis_of(max(settings.member_missing_after, 3 * settings.confirm_after))

    # About bookies: in no group, gone, joined, or not quarantined as decided.

    def _report_no_groups(self) -> Condition:
        """Report that the cluster puts no bookie into a group; critical while namespaces ask for groups."""
        cluster, writable = self.facts.cluster, len(self.facts.membership.writable)
        names = [name for judged in self.placements if judged.affinity.is_isolating for name in judged.namespaces]
        free = f"brokers exclude no bookie, and {counted_with(writable, 'bookie', 'is', 'are')} writable"
        if not names:
            summary = f"{cluster} puts no bookie into a group: {free}"
            return self._condition(NO_GROUPS, Severity.INFO, "no_groups", summary)
        first = nsmallest(NAMED_LIMIT, names)
        summary = (
            f"{cluster} puts no bookie into a group, but {counted_with(len(names), 'namespace', 'asks', 'ask')} for "
            f"groups ({name_some(first, NAMED_LIMIT, len(names))}): {free}"
        )
        labels = {"namespaces": ",".join(first), "namespace_count": str(len(names))}
        return self._condition(NO_GROUPS, Severity.CRITICAL, "promised_groups", summary, labels=labels)

    def _check_unassigned(self) -> Iterator[Condition]:
        facts, grace_ms = self.facts, millis_of(self.facts.settings.grace)
        unassigned = [b for b in facts.notable if b.takes_data and b.assigned is False]
        severity, exposed, of_many, labels = self._find_exposed() if unassigned else (Severity.WARNING, "", "", {})
        for bookie in unassigned:
            # While readings lack a bookie, its time without a group does not grow.
            if bookie.since_ms + grace_ms > facts.missing.get(bookie.bookie, facts.now_ms):
                continue
            if bookie.bookie in facts.quarantined:
                yield self._report(UNASSIGNED, Severity.WARNING, "quarantined", bookie.bookie, f"is {_IN_QUARANTINE}")
            else:
                portless = f"; {explain_portless(bookie.bookie)}" if bookie.bookie in facts.portless else ""
                what = f"takes data and is in no group{portless}{exposed}"
                found = self._report(UNASSIGNED, severity, "unassigned", bookie.bookie, what, labels)
                yield replace(found, of_many=of_many)

    def _find_exposed(self) -> tuple[Severity, str, str, dict[str, str]]:
        """Find the isolated namespaces that can place data on bookies in no group.

        Returns a severity, a clause about one bookie, one about many, and labels.

        The rules do not distinguish bookies in no group, so the answer is the same for each of them.
        """
        isolating = (j for j in self.placements if j.affinity.is_isolating)
        exposed = [j for j in isolating if j.placed.takes_unassigned and j.placed.feasible]
        count = sum(len(j.namespaces) for j in exposed)
        if not count:
            return Severity.WARNING, "", "", {}
        first = list(islice(merge(*(j.namespaces for j in exposed)), NAMED_LIMIT))
        named = name_some(first, NAMED_LIMIT, count)
        which, joined = counted(count, "isolated namespace"), ",".join(first)
        clauses = (f"; {which} can place data on it now: {named}", f"; {which} can use them ({joined})")
        return Severity.CRITICAL, *clauses, {"namespaces": joined, "namespace_count": str(count)}

    def _check_idle(self) -> Iterator[Condition]:
        """Unassigned bookies that take no data now; they will as soon as they are back."""
        facts = self.facts
        oldest_ms = facts.now_ms - millis_of(facts.settings.grace)
        for presence, how in ((Presence.READ_ONLY, "read-only"), (Presence.OFFLINE, "not registered")):
            for bookie in facts.notable:
                if bookie.presence is presence and bookie.assigned is False and bookie.since_ms <= oldest_ms:
                    where = _IN_QUARANTINE if bookie.bookie in facts.quarantined else "in no group"
                    yield self._report(IDLE, Severity.INFO, presence.value, bookie.bookie, f"is {how} and {where}")

    def _check_missing(self) -> Iterator[Condition]:
        facts, after = self.facts, self.facts.settings.member_missing_after
        oldest_ms = facts.now_ms - millis_of(after)
        for bookie in facts.notable:
            since_ms = self._missing_since(bookie)
            if not bookie.assigned or since_ms is None or since_ms > oldest_ms:
                continue
            reason, why = "not_registered", "but is not registered"
            if after:
                why = f"but has not been registered for {format_duration(after)} or longer"
            if bookie.never_joined:
                reason, why = "never_registered", "put there in advance: it has never registered"
                if meant := [name for name, entry in facts.portless.items() if entry == bookie.bookie]:
                    reason, named = "rack_entry", name_some(meant, NAMED_LIMIT)
                    why = f"and only {named} is registered: the rack entry lacks the port, so it fits no bookie"
            groups = [group for group, members in facts.membership.groups.items() if bookie.bookie in members]
            labels, what = {"groups": ",".join(groups[:NAMED_LIMIT])}, f"is in {name_groups(groups)}, {why}"
            yield self._report(MISSING, Severity.WARNING, reason, bookie.bookie, what, labels)

    def _missing_since(self, bookie: BookieState) -> int | None:
        """When (milliseconds since the epoch) its registration was first missing; None if it is registered."""
        return bookie.since_ms if bookie.presence is Presence.OFFLINE else self.facts.missing.get(bookie.bookie)

    def _check_starved(self) -> Iterator[Condition]:
        """Quarantined bookies with which a namespace could place its data: as many as the namespace lacks."""
        membership = self.facts.membership
        quarantined = sorted(membership.quarantined() & membership.writable - membership.assigned())
        starved: dict[str, str] = {}
        for judged in self.placements:
            missing = judged.ensemble_size - judged.placed.count
            if judged.placed.takes_unassigned and 0 < missing <= len(quarantined):
                starved = dict.fromkeys(quarantined[:missing], judged.namespaces[0]) | starved
        for bookie, namespace in starved.items():
            what = (
                f"is in quarantine, and without it {namespace} cannot place its data: run `pulsar-admin bookies "
                f"delete-bookie-rack --bookie {bookie}` to give it back"
            )
            yield self._report(STARVES, Severity.CRITICAL, "starved", bookie, what, {"namespaces": namespace})

    def _check_overdue(self) -> Iterator[Condition]:
        for order, since_ms in self._find_pending():
            if self.facts.now_ms >= since_ms + OVERDUE_MS and order.mode is self.facts.settings.mode is Mode.ACTIVE:
                what = f"was ordered into quarantine {OVERDUE_MS // 60_000}m or longer ago, and is not there"
                yield self._report(OVERDUE, Severity.WARNING, "not_carried_out", order.bookie, what)

    def _find_pending(self) -> Iterator[tuple[QuarantineOrder, int]]:
        """Yield the orders that are not carried out, and since when an actuator can: while the bookie is writable."""
        orders = [order for order in self.orders if order.is_pending(self.facts.quarantined)]
        bookies = self.facts.known.bookies if orders else ()
        writable = {b.bookie: b.since_ms for b in bookies if b.takes_data}
        for order in orders:
            if order.bookie in writable:
                yield order, max(order.since_ms, writable[order.bookie])

    # About namespaces.

    def _check_namespaces(self) -> Iterator[Condition]:
        for judged in self.placements:
            for alert in _find_alerts(judged):
                severity, what = Severity.CRITICAL, explain_placement(judged)
                if alert == HEADROOM:
                    then = "must reach further, or cannot place its data, when one more of its bookies is lost"
                    severity, what = Severity.WARNING, f"{then}; now it {what}"
                for name in judged.namespaces:
                    summary = f"{name} of {self.facts.cluster} {what}"
                    yield self._condition(alert, severity, judged.reason.value, summary, name, {"namespace": name})

    def _report(
        self,
        alert: str,
        severity: Severity,
        reason: str,
        bookie: str,
        what: str,
        labels: Mapping[str, str] | None = None,
    ) -> Condition:
        """Report a bookie; `what` is the rest of a sentence that begins with it."""
        summary = f"bookie {bookie} of {self.facts.cluster} {what}"
        return self._condition(alert, severity, reason, summary, bookie, {"bookie": bookie, **(labels or {})})

    def _condition(
        self, alert: str, severity: Severity, reason: str, summary: str, name: str = "",
        labels: Mapping[str, str] | None = None, evidence: tuple[str, ...] | None = None,
    ) -> Condition:  # fmt: skip
        """Build a condition of the cluster, or of the bookie or namespace called `name`."""
        cluster = self.facts.cluster
        return Condition(
            alert=alert,
            subject=f"{cluster}/{name}" if name else cluster,
            severity=severity,
            reason=reason,
            summary=summary,
            labels={"cluster": cluster, **(labels or {})},
            evidence=self.facts.evidence if evidence is None else evidence,
        )


def _describe_doubts(kind: str, doubts: Sequence[Doubt]) -> str:
    names, (things, noun) = [doubt.name or "namespaces without affinity" for doubt in doubts], _READINGS[kind]
    if NODE in names:
        return f"{things}, which have no node"
    return f"{counted(len(doubts), noun)} ({name_some(names, NAMED_LIMIT)})"


def _find_alerts(judged: PlacementJudgement) -> Iterator[str]:
    headroom = judged.placed.headroom
    if not headroom:
        yield INFEASIBLE
    if judged.verdict is PlacementVerdict.LEAKS:
        yield LEAK
    if headroom == 1 and judged.verdict is not PlacementVerdict.UNCONSTRAINED:
        yield HEADROOM
