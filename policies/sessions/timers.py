"""Finds when a verdict may change by time alone, without an observation."""

from collections.abc import Iterator

from policies.sessions.decisions import OwnershipVerdict, SessionVerdict
from policies.sessions.emit import RENEWED
from policies.sessions.facts import Facts, MemberFacts
from policies.sessions.judge import FINAL, shutdown_delay_ms
from policies.sessions.rulings import unread_from_ms
from policies.sessions.state import SessionTrack
from policies.units import millis_of


def due_ms(facts: Facts) -> Iterator[int]:
    """When (milliseconds since the epoch) the next step may decide something; some may be past.

    Args:
        facts: the facts that remain after the step.
    """
    for source in facts.sources.values():
        yield from (ms + facts.validity_ms + 1 for ms in (source.tried_ms, source.read_ms) if ms >= 0)
    free_ms = facts.budget.free_ms(facts.now_ms)
    if free_ms is not None:
        yield free_ms
    for member in facts.members.values():
        yield from _member_due_ms(member, facts)
        if (track := member.track) is None:
            continue
        for claim in member.claims:
            last = claim.claim.last_published
            if last is not None:
                yield facts.schedule.due_ms(last.published_ms)
            elif member.member.recovering:
                yield unread_from_ms(claim, track)
            if last is not None and last.verdict is OwnershipVerdict.WAIT and track.reestablished_ms is not None:
                yield track.reestablished_ms + facts.settings.wait_for_deletion_ms(track.timeout_ms)
    orphans = map(facts.orphan_ms, facts.odd_bundles)
    yield from (orphan_ms for orphan_ms in orphans if orphan_ms is not None)


def _member_due_ms(member: MemberFacts, facts: Facts) -> Iterator[int]:
    record, last = member.member, member.member.last_published
    yield record.tried_ms + facts.validity_ms + 1
    for absence in (member.liveness.unregistered, member.liveness.unlisted):
        if absence is not None:
            yield absence.due_ms
    if last is not None and last.verdict in RENEWED:
        yield facts.schedule.due_ms(last.published_ms)
    if record.awaited_ms is not None:
        yield record.awaited_ms + millis_of(facts.settings.load_data_after)
    missed_ms = facts.load_data_missed_ms(member)
    if missed_ms is not None:
        yield missed_ms
    if member.track is not None:
        yield from _session_due_ms(member.track, member, facts)


def _session_due_ms(track: SessionTrack, member: MemberFacts, facts: Facts) -> Iterator[int]:
    settings, lost_ms, last = facts.settings, track.lost_ms, member.member.last_published
    if track.lapse_ms is not None:
        yield track.lapse_ms
    if track.unsettled:
        yield track.since_ms + millis_of(settings.settle)
    yield track.read_ms + facts.validity_ms + 1
    if lost_ms is None:
        return
    yield lost_ms + millis_of(settings.fleet_window)
    if track.is_lost:
        yield member.begun_ms + shutdown_delay_ms(member, track, settings)
        yield member.deadline_ms
    has_begun = last is not None and last.verdict is SessionVerdict.RECOVER and last.published_ms == facts.now_ms
    if has_begun and all(c.claim.verdict in FINAL for c in member.claims):
        yield facts.now_ms + 1  # the plan published in this step is complete already
