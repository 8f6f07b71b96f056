"""The precheck: ready only when all is known and nothing is in the way."""

import re
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from policies.switching.decisions import RejectCode
from policies.switching.ledgers import (
    MAX_HOB,
    FindingReason,
    HitClass,
    IdGenerator,
    IdStrategy,
    Ledger,
    LedgerKind,
    LedgerState,
    Reference,
)
from policies.switching.precheck import TargetLedgers, find_remedy, precheck
from policies.switching.readings import HitCount, SwitchCommand, SwitchPrecheck
from policies.switching.settings import SwitchingSettings
from policies.switching.state import SwitchStage
from tests.calls import count_calls
from tests.cases import for_each
from tests.policies.switching.snapshots import (
    DEDICATED,
    GOOD,
    NEW,
    NOW_MS,
    OLD,
    SHARED,
    VALIDITY_MS,
    copied,
    cursor,
    found,
    ledger,
    schema,
    snapshot,
)
from tests.policies.switching.wire import CLUSTER
from tests.policies.switching.world import World, few


def check(rules: SwitchingSettings = DEDICATED, now_ms: int = NOW_MS, **changes: Any) -> SwitchPrecheck:
    return precheck(CLUSTER, snapshot(**changes), rules, now_ms)


def test_a_dedicated_target_beyond_the_source_is_ready() -> None:
    report = check()
    assert report.ready
    assert report.findings == ()
    assert report.to_import == 3
    assert (report.source_next_id, report.target_next_id) == (100, 2**32)
    assert report.valid_ms == VALIDITY_MS - 1000
    assert report.hits == {hit: HitCount(count=0) for hit in HitClass}


changed = msgspec.structs.replace


@for_each(
    ("changes", "reasons"),
    [
        ({"source": changed(OLD, instance_id=None)}, {FindingReason.SNAPSHOT_INCOMPLETE}),
        ({"target": changed(NEW, instance_id=None)}, {FindingReason.SNAPSHOT_INCOMPLETE}),
        ({"target": changed(NEW, root=None)}, {FindingReason.SNAPSHOT_INCOMPLETE}),
        ({"source": changed(OLD, generator=None)}, {FindingReason.SNAPSHOT_INCOMPLETE}),
        ({"target": changed(NEW, generator=None)}, {FindingReason.SNAPSHOT_INCOMPLETE}),
        ({"source": changed(OLD, layout=None)}, {FindingReason.LAYOUT}),
        ({"target": changed(NEW, layout=None)}, {FindingReason.LAYOUT}),
        ({"references": (cursor(-2),)}, {FindingReason.LAYOUT}),
        ({"references": (cursor(2**63),)}, {FindingReason.LAYOUT, FindingReason.IDGEN_BEHIND}),
        ({"references_complete": False}, {FindingReason.SNAPSHOT_INCOMPLETE}),
        ({"bootstrap": None}, {FindingReason.SNAPSHOT_INCOMPLETE}),
        ({"bootstrap": None, "references": (cursor(5, "old"), cursor(-1))}, set()),
        ({"existing": None}, {FindingReason.SNAPSHOT_INCOMPLETE}),
        ({"existing": found(listed=False, looked_up=(5, 7, 9))}, {FindingReason.SNAPSHOT_INCOMPLETE}),
        ({"target": changed(NEW, name="b", instance_id="id-of-old")}, {FindingReason.ALIAS}),
        ({"target": changed(NEW, instance_id="id-of-old", root="/ledgers/")}, {FindingReason.ALIAS}),
        ({"target": changed(NEW, instance_id="id-of-old", root="/other/ledgers")}, set()),
        ({"target": changed(NEW, name="old")}, {FindingReason.ALIAS}),
        ({"target": changed(NEW, generator=IdGenerator(None, 10_000, 0))}, {FindingReason.IDGEN_BEHIND}),
        ({"source": changed(OLD, generator=IdGenerator(1, 0, 0))}, {FindingReason.IDGEN_BEHIND}),
        ({"references": (cursor(2**32, "elsewhere"),), "clusters": {"elsewhere"}}, {FindingReason.IDGEN_BEHIND}),
        ({"references": (cursor(2**32 - 1, "elsewhere"),), "clusters": {"elsewhere"}}, set()),
        ({"deleted": frozenset({7})}, {FindingReason.DELETED_ID}),
        ({"deleted": frozenset({8})}, set()),
        ({"existing": found(ledger(7))}, {FindingReason.FOREIGN_ID}),
        ({"existing": found(ledger(3))}, {FindingReason.FOREIGN_ID}),
    ],
)  # fmt: skip
def test_what_is_unknown_or_in_the_way_makes_it_not_ready(changes: dict[str, Any], reasons: set[FindingReason]) -> None:
    report = check(**changes)
    assert set(report.reasons) == reasons
    assert report.ready is (not reasons)
    for finding in report.findings:
        assert finding.remedy


@for_each(
    ("source", "target", "hob"),
    [
        (IdGenerator(4, 20, 0), IdGenerator(1, 0, 0), 5),
        # The source goes on giving ids until every broker has moved: it could catch up, however far behind it is.
        (IdGenerator(None, 200, 0), IdGenerator(None, 2_000_000, 0), 1),
        (IdGenerator(MAX_HOB, 200, 0), IdGenerator(1, 0, 0), None),
    ],
)
def test_a_generator_that_is_behind_is_told_how_far_to_advance(
    source: IdGenerator, target: IdGenerator, hob: int | None
) -> None:
    one = changed(OLD, generator=source)
    [finding] = check(source=one, target=changed(NEW, generator=target)).findings
    assert (finding.reason, finding.hob) == (FindingReason.IDGEN_BEHIND, hob)
    assert (f"HOB-000000000{hob}" if hob else "Take another target") in finding.remedy
    assert hob is None or check(source=one, target=changed(NEW, generator=IdGenerator(hob, 0, 0))).ready


@for_each(
    ("age_ms", "reasons"),
    [
        (-60_000, (FindingReason.FROM_THE_FUTURE,)), (-1, (FindingReason.FROM_THE_FUTURE,)), (0, ()),
        (VALIDITY_MS - 1, ()), (VALIDITY_MS, (FindingReason.STALE,)), (VALIDITY_MS + 1, (FindingReason.STALE,)),
    ],
)  # fmt: skip
@for_each("part", ["source", "target", "references", "existing"])
def test_one_reading_that_is_old_or_of_the_future_makes_it_not_ready(
    part: str, age_ms: int, reasons: tuple[FindingReason, ...]
) -> None:
    changes: dict[str, Any] = {
        "source": {"source": changed(OLD, read_ms=NOW_MS - age_ms)},
        "target": {"target": changed(NEW, read_ms=NOW_MS - age_ms)},
        "references": {"references_ms": NOW_MS - age_ms},
        "existing": {"existing": replace(found(), read_ms=NOW_MS - age_ms)},
    }
    report = check(**changes[part])
    assert report.reasons == reasons
    assert report.valid_ms == max(0, VALIDITY_MS - max(age_ms, 1000))


@for_each(
    ("target", "hit"),
    [
        (ledger(7), HitClass.FOREIGN),
        (ledger(7, provenance=""), HitClass.FOREIGN),
        (ledger(7, provenance="id-of-another"), HitClass.FOREIGN),
        (copied(7), HitClass.OURS_COMPLETE),
        (copied(7, state=LedgerState.OPEN), HitClass.OURS_PARTIAL),
        (copied(7, last_entry_id=-1), HitClass.OURS_PARTIAL),
        (copied(7, length_bytes=41), HitClass.OURS_PARTIAL),
        (copied(7, custom_metadata={}), HitClass.OURS_PARTIAL),
        (copied(7, entries_digest="others"), HitClass.OURS_PARTIAL),
        (copied(7, entries_digest=None), HitClass.OURS_PARTIAL),
    ],
    ids=[
        "as the source's, not looked up", "not in the journal", "from another source", "ours", "open", "shorter",
        "fewer bytes", "other metadata", "other entries", "unread entries",
    ],
)  # fmt: skip
@for_each("rules", [DEDICATED, SHARED], ids=["dedicated", "shared"])
def test_a_ledger_is_ours_only_by_the_journal(target: Ledger, hit: HitClass, rules: SwitchingSettings) -> None:
    report = check(rules, existing=found(target), source_facts={7: ledger(7)})
    assert {h for h, hits in report.hits.items() if hits.count} == {hit}
    assert report.hits[hit].samples == (7,)
    assert report.ready is (hit is not HitClass.FOREIGN)


def test_a_shared_target_may_hold_what_is_not_in_the_way() -> None:
    assert check(SHARED, existing=found(ledger(3))).ready
    assert check(SHARED, existing=found(ledger(3), ledger(5))).reasons == (FindingReason.FOREIGN_ID,)


def test_a_shared_target_is_asked_about_every_id() -> None:
    assert check(SHARED, existing=found(listed=False, looked_up=(5, 7, 9))).ready
    [finding] = check(SHARED, existing=found(listed=False, looked_up=(5, 9))).findings
    assert (finding.reason, finding.samples) == (FindingReason.SNAPSHOT_INCOMPLETE, (7,))


def test_kinds_that_get_new_ids_need_not_be_free() -> None:
    rules = SHARED.model_copy(update={"strategies": {LedgerKind.CURSOR: IdStrategy.REMAP}})
    report = check(rules, existing=found(ledger(5)), deleted=frozenset({5}))
    assert report.ready
    assert report.to_import == 2


def test_references_of_other_clusters_are_not_imported() -> None:
    report = check(references=(cursor(5, "new"), schema(7, "elsewhere"), schema(9), cursor(-1)), bootstrap="elsewhere")
    assert report.to_import == 0


def test_only_some_ids_are_named_all_are_counted() -> None:
    report = check(existing=found(*(ledger(i) for i in range(100))))
    assert report.hits[HitClass.FOREIGN] == HitCount(count=100, samples=tuple(range(10)))
    [finding] = report.findings
    assert finding.count == 100
    assert "and 90 more" in finding.detail


@given(st.permutations(range(5)), st.integers(0, 1000))
def test_the_digest_depends_on_what_was_found_alone(order: list[int], later_ms: int) -> None:
    references = (cursor(5), schema(7), schema(7, position="index/0"), schema(9, "old"), cursor(-1))
    shuffled = tuple(references[i] for i in order)
    assert check(references=shuffled, now_ms=NOW_MS + later_ms).digest == check().digest


@pytest.mark.parametrize(
    "changes",
    [
        {"references": (cursor(5),)},
        {"source": changed(OLD, generator=IdGenerator(None, 202, 0))},
        {"target": changed(NEW, instance_id="another")},
        {"existing": found(ledger(3))},
        {"target": changed(NEW, layout=None)},
    ],
)
def test_another_finding_has_another_digest(changes: dict[str, Any]) -> None:
    assert check(**changes).digest != check().digest


def test_the_work_grows_with_the_references_and_no_faster() -> None:
    def work_for(count: int) -> int:
        many = snapshot(
            references=tuple((cursor if i % 2 else schema)(i) for i in range(count)),
            existing=found(*((copied if i < count // 2 else ledger)(i) for i in range(0, 2 * count, 2)), listed=True),
            source_facts={i: ledger(i) for i in range(count // 2)},
        )
        reports: list[SwitchPrecheck] = []
        calls = count_calls(lambda: reports.append(precheck(CLUSTER, many, SHARED, NOW_MS)))
        hits = reports[0].hits
        assert (hits[HitClass.OURS_COMPLETE].count, hits[HitClass.FOREIGN].count) == (count // 4, count // 4)
        return calls

    assert work_for(4_000) < 4 * work_for(1_000) * 1.2


SAME_CURSOR = Reference(LedgerKind.CURSOR, cursor(5).path, 6, "new")

ATTRIBUTIONS = {
    "to a cluster that nobody knows": ((cursor(5, "third"),), found(), FindingReason.UNKNOWN_CLUSTER, (5,)),
    "to the target, which has it not": ((cursor(5, "new"),), found(), FindingReason.MISSING_LEDGER, (5,)),
    "of one id to two clusters": ((cursor(5), schema(5, "new")), found(ledger(5)), FindingReason.AMBIGUOUS, (5,)),
    "of one cursor to two clusters": ((cursor(5), SAME_CURSOR), found(ledger(6)), FindingReason.AMBIGUOUS, (5, 6)),
}


@pytest.mark.parametrize(("references", "existing", "reason", "ids"), ATTRIBUTIONS.values(), ids=ATTRIBUTIONS)
def test_an_attribution_is_refused(
    references: tuple[Reference, ...], existing: TargetLedgers, reason: FindingReason, ids: tuple[int, ...]
) -> None:
    report = check(SHARED, references=references, existing=existing)
    assert not report.ready
    assert [(f.reason, f.samples) for f in report.findings if f.reason is reason] == [(reason, ids)]


def test_an_attribution_to_a_cluster_that_is_registered_is_none_of_ours() -> None:
    assert check(references=(cursor(5, "third"),), clusters=frozenset({"third"})).ready


def test_what_the_target_has_by_attribution_must_have_been_looked_up() -> None:
    seen = found(listed=False, looked_up=())
    report = check(SHARED, references=(cursor(5, "new"),), existing=seen)
    assert report.reasons == (FindingReason.SNAPSHOT_INCOMPLETE,)
    assert check(SHARED, references=(cursor(5, "new"),), existing=found(ledger(5), listed=False)).ready


def test_a_source_that_is_open_is_no_complete_copy() -> None:
    opened = ledger(5, state=LedgerState.OPEN)
    report = check(SHARED, existing=found(copied(5)), source_facts={5: opened})
    assert report.hits[HitClass.OURS_COMPLETE].count == 0


@pytest.mark.parametrize(("digest", "hit"), [("abc", HitClass.OURS_COMPLETE), (None, HitClass.OURS_PARTIAL)])
def test_a_copy_that_was_promoted_is_complete_by_the_digest_that_proved_it(digest: str | None, hit: HitClass) -> None:
    """Its source is not read again: its reference names the target."""
    copy = found(copied(7, entries_digest=digest))
    report = check(DEDICATED, references=(cursor(7, "new"),), existing=copy, source_facts={})
    assert report.hits[hit].count == 1


@for_each("reason", FindingReason)
def test_every_reason_says_what_to_do(reason: FindingReason) -> None:
    assert find_remedy(reason, 1).endswith(".")


def test_a_remedy_names_settings_that_there_are() -> None:
    text = " ".join(find_remedy(reason, 1) for reason in FindingReason)
    named = re.findall(r"policies\.switching\.(\w+)", text)
    assert set(named) == {"target_policy", "strategies"}
    assert set(named) <= SwitchingSettings.model_fields.keys()
    # No other way of naming them is left: where they were once, they are a mistake.
    assert len(named) == len(re.findall(r"target_policy|strategies", text))


# --- a lab may pass over ids that are behind; whatever is said from then on is marked

LAB = few(skip_idgen_precheck=True)
BEHIND = replace(GOOD, target=with_fields(NEW, generator=IdGenerator(None, 2, 0)))


@pytest.mark.parametrize("skip", [False, True])
def test_only_ids_that_are_behind_are_passed_over_and_the_finding_stays(skip: bool) -> None:
    rules = SHARED.model_copy(update={"skip_idgen_precheck": skip})
    report = precheck("c1", BEHIND, rules, NOW_MS)
    assert (report.ready, report.bypassed, report.reasons) == (skip, skip, (FindingReason.IDGEN_BEHIND,))


def test_what_is_unknown_is_never_passed_over() -> None:
    report = precheck("c1", replace(BEHIND, references_complete=False), LAB, NOW_MS)
    assert (report.ready, report.bypassed) == (False, True)
    assert precheck("c1", GOOD, LAB, NOW_MS).bypassed is False, "it bypassed nothing"


def bypassed(limits: SwitchingSettings) -> tuple[World, SwitchCommand]:
    """The target's ids are behind, and its report was bypassed."""
    world = World(limits).to(SwitchStage.PRECHECKED)
    world.clusters["new"].hob = None
    world.later().tell(*(world.cluster_event(name) for name in world.clusters))
    seen = world.prechecked_event()
    world.later().tell(seen.but(ready=True, bypassed=True))
    return world, world.start_event()


def test_a_bypassed_report_starts_nothing_unless_the_settings_allow_it() -> None:
    world, start = bypassed(few())
    said = world.tell(start)
    assert [each.code for each in said] == [RejectCode.PRECHECK_FAILED]
    assert "was bypassed" in said[0].sentence
    assert world.state.bypassed is False


def test_a_lab_goes_live_on_it_and_is_marked_for_good() -> None:
    world, start = bypassed(LAB)
    said = world.tell(start)
    assert "on a precheck that was bypassed" in said[0].sentence
    assert world.is_at(SwitchStage.TRIGGERED)
    world.later().acks()
    assert world.is_at(SwitchStage.LIVE_DUAL_READ)
    assert not world.switch.halted
    assert world.state.bypassed is True
