"""The report of a precheck and its wire format."""

import hashlib

import msgspec
from msgspec import Struct, structs

from policies.observations import Outcome
from policies.switching.ledgers import HitClass, StayingLedgers
from policies.switching.precheck.findings import FindingReason, PrecheckFinding, find_remedy, findings, least
from policies.switching.precheck.snapshot import (
    PrecheckRules,
    PrecheckSnapshot,
    greatest_referenced,
    hits_by_class,
    ids_to_import,
    read_times_ms,
)
from policies.switching.readings import FindingReading, HitCount, StayingReading, SwitchPrecheck

BYPASSABLE = frozenset({FindingReason.IDGEN_BEHIND})
"""The findings that a lab may bypass: ids could collide. A collision, or an unknown value, cannot be bypassed."""


class HitSamples(Struct, array_like=True, frozen=True):
    """The ledgers of one class that exist in the target."""

    count: int = 0
    samples: tuple[int, ...] = ()


class PrecheckReport(Struct, array_like=True, frozen=True, kw_only=True):
    """The result of a precheck; its digest depends on the findings and the rules, and not on the time."""

    source: str
    target: str
    ready: bool
    source_next_id: int | None
    target_next_id: int | None
    ids_to_import: tuple[int, ...]
    """The ledgers to copy under their own id, sorted."""
    hits: dict[HitClass, HitSamples]
    greatest_id: int
    """The greatest id named outside the target; -1: none is."""
    findings: tuple[PrecheckFinding, ...]
    """The findings, sorted; empty if ready, except for those that were bypassed."""
    digest: str
    checked_ms: int
    expires_ms: int
    staying: tuple[StayingLedgers, ...] = ()
    """Ledgers that stay in their cluster. They are no part of the digest, because topics' ledgers come and go."""
    left_out: tuple[str, ...] = ()
    """Znodes that the settings exclude from reading."""
    bypassed: bool = False
    """Whether it is ready only because a lab's settings bypass its findings."""

    @property
    def reasons(self) -> tuple[FindingReason, ...]:
        """The reasons of the findings, each once."""
        return tuple(dict.fromkeys(f.reason for f in self.findings))


def precheck(seen: PrecheckSnapshot, rules: PrecheckRules, now_ms: int) -> PrecheckReport:
    """Judge a snapshot.

    Args:
        seen: the readings; a missing value counts against the switch.
    """
    wanted = ids_to_import(seen, rules)
    hits = hits_by_class(seen, rules, wanted)
    found = tuple(sorted(findings(seen, rules, wanted, hits, now_ms), key=lambda f: (f.reason.value, f.detail)))
    bypassed = tuple(f for f in found if rules.skip_idgen and f.reason in BYPASSABLE)
    in_the_way = [f for f in found if f not in bypassed]
    source_next, target_next = (c.generator.next_id if c.generator else None for c in (seen.source, seen.target))
    counted = {hit: HitSamples(len(ids), least(ids)) for hit, ids in hits.items()}
    # Both options were added later. They enter the digest only if set, so that other digests stay as they were.
    options = [*([list(seen.left_out)] if seen.left_out else []), *(["skip_idgen"] if rules.skip_idgen else [])]
    content = (
        (seen.source.name, seen.source.instance_id, seen.source.root, seen.source.layout, source_next),
        (seen.target.name, seen.target.instance_id, seen.target.root, seen.target.layout, target_next),
        (rules.policy, sorted(rules.remapped), *options),
        sorted(wanted),
        {hit.value: sorted(ids) for hit, ids in hits.items()},
        greatest_referenced(seen),
        found,
    )
    return PrecheckReport(
        source=seen.source.name,
        target=seen.target.name,
        ready=not in_the_way,
        source_next_id=source_next,
        target_next_id=target_next,
        ids_to_import=tuple(sorted(wanted)),
        hits=counted,
        greatest_id=greatest_referenced(seen),
        findings=found,
        digest=hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest(),
        checked_ms=now_ms,
        expires_ms=min(now_ms, *read_times_ms(seen)) + rules.validity_ms,
        staying=seen.staying,
        left_out=seen.left_out,
        bypassed=bool(bypassed),
    )


def to_reading(report: PrecheckReport, cluster: str) -> SwitchPrecheck:
    """Convert a report for publication, for a broker cluster."""
    return SwitchPrecheck(
        cluster=cluster,
        outcome=Outcome.OK,
        source=report.source,
        target=report.target,
        ready=report.ready,
        digest=report.digest,
        source_next_id=report.source_next_id,
        target_next_id=report.target_next_id,
        to_import=len(report.ids_to_import),
        greatest_id=report.greatest_id,
        hits={hit: HitCount(count=hits.count, samples=hits.samples) for hit, hits in report.hits.items()},
        findings=tuple(
            FindingReading(
                reason=f.reason, detail=f.detail, count=f.count, samples=f.samples, hob=f.hob, remedy=find_remedy(f)
            )
            for f in report.findings
        ),
        valid_ms=max(0, report.expires_ms - report.checked_ms),
        staying=tuple(StayingReading(**structs.asdict(each)) for each in report.staying),
        left_out=report.left_out,
        bypassed=report.bypassed,
    )
