"""The policy over the wire: the same runs, numbered, explained, and the same again from any stored state."""

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.decisions import Decision, Mode
from policies.observations import Observation, Outcome, Reading
from policies.switching import (
    SwitchCommand,
    SwitchDecision,
    SwitchingPolicy,
    SwitchingSettings,
    SwitchingState,
    SwitchInventory,
    SwitchLease,
    SwitchRecord,
)
from policies.switching.decisions import RejectCode, SwitchVerdict
from policies.switching.events import Cleanup, Rollback
from policies.switching.fold import event_of
from policies.switching.precheck.report import precheck, reading_of
from policies.switching.readings import CommandName, LedgerOutcome
from policies.switching.references import LedgerKind, Reference
from policies.switching.registration import KIND
from policies.switching.settings import DAY_MS, SwitchLimits
from policies.switching.state import LedgerStage, SwitchStage
from policies.units import from_millis, to_millis
from tests.policies.switching.snapshots import DEDICATED, NOW_MS, found, intent, ledger, snapshot
from tests.policies.switching.test_rows import tell_of
from tests.policies.switching.wire import CLUSTER, OK, READER, SETTINGS, WireWorld, inventory_readings
from tests.policies.switching.world import apply, stored

REACHABLE = [s for s in SwitchStage if s is not SwitchStage.NONE]


@pytest.mark.parametrize("stage", REACHABLE)
def test_every_stage_is_reached_over_the_wire(stage: SwitchStage) -> None:
    world = WireWorld().to(stage)
    assert world.is_at(stage)
    assert stored(world.state) == world.state


DONE = WireWorld()
DONE.to(SwitchStage.DONE)


def test_decisions_are_numbered_and_never_repeat_an_id() -> None:
    numbers = [d.sequence for d in DONE.published if isinstance(d, SwitchDecision | SwitchRecord)]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert numbers[0] == to_millis(DONE.published[0].decided_at)
    assert len({d.decision_id for d in DONE.published}) == len(DONE.published)


def test_a_repeated_input_gives_the_same_decisions_from_any_stored_state() -> None:
    policy, state = SwitchingPolicy(CLUSTER, SETTINGS), None
    published: list[Decision] = []
    for now, observations in DONE.inputs:
        step = policy.step(state, observations[::-1] + observations, now)
        state = stored(step.state)
        published.extend(step.decisions)
    assert published == DONE.published
    assert state == DONE.state


def test_an_order_says_under_which_lease_at_which_epoch_and_what_it_must_find() -> None:
    decided = {d.verdict: d for d in DONE.published if isinstance(d, SwitchDecision)}
    promote = decided[SwitchVerdict.PROMOTE]
    assert (promote.lease_token, promote.epoch, promote.stage) == (1, 1, SwitchStage.PROMOTE)
    assert promote.ledger is not None
    assert (promote.ledger.place, promote.ledger.of) == (3, 3)
    assert promote.expects == {"attribution": "old", "legacy": "or_none", "ledger_id": promote.ledger.ledger_id}
    assert promote.subject == f"{CLUSTER}/ledgers/{promote.ledger.ledger_id}"
    assert promote.valid_until is not None
    assert len(promote.evidence) == 1
    assert decided[SwitchVerdict.WRITE_DIRECTIVE].args == {"target": "new", "directive_epoch": 1}
    assert decided[SwitchVerdict.WRITE_DIRECTIVE].expects == {"epoch_below": 1}
    assert decided[SwitchVerdict.DELETE_OLD].expects["attribution"] == "new"
    assert decided[SwitchVerdict.WRITE_REGISTRY].args["instance_id"] == "id-of-new"


def test_a_revert_takes_references_without_an_attribute_for_the_bootstrap_clusters() -> None:
    world = WireWorld()
    world.to(SwitchStage.ROLLED_BACK)
    reverts = [d for d in world.published if isinstance(d, SwitchDecision) and d.verdict is SwitchVerdict.REVERT]
    assert {(d.expects["attribution"], d.expects["legacy"]) for d in reverts} == {("new", "or_none")}


def test_the_record_of_the_switch_is_said_when_it_changes() -> None:
    records = DONE.records()
    stages = list(dict.fromkeys(r.verdict for r in records))
    assert stages == [
        SwitchStage.NONE,
        SwitchStage.TRIGGERED,
        SwitchStage.LIVE_DUAL_READ,
        SwitchStage.BUILD,
        SwitchStage.PROMOTE,
        SwitchStage.HOLD,
        SwitchStage.CLEANUP,
        SwitchStage.DONE,
    ]
    last = records[-1]
    assert last.ledgers == {LedgerStage.CLEANED: 3}
    assert (last.active, last.committed_epoch, last.registry) == ("new", 1, {"new": "active", "old": "deprecated"})
    assert last.cleanup_from is not None
    assert "3 of 3 ledgers moved" in last.explanation
    for one, other in pairwise(records):
        assert one.model_copy(update={"sequence": 0}) != other.model_copy(update={"sequence": 0})
    assert len({r.subject for r in records}) == 1


def test_a_rejection_names_its_code() -> None:
    world = WireWorld()
    world.to(SwitchStage.HOLD)
    world.tell(Cleanup(key="x"))
    last = [d for d in world.published if isinstance(d, SwitchDecision)][-1]
    assert (last.verdict, last.code, last.subject) == (
        SwitchVerdict.REJECT,
        RejectCode.WINDOW_NOT_ELAPSED,
        f"{CLUSTER}/commands/x",
    )


def test_cleaning_up_is_a_dry_run_unless_said_otherwise() -> None:
    plain = SwitchCommand(cluster=CLUSTER, command=CommandName.CLEANUP, idempotency_key="k")
    for given_, expected in ((None, True), (True, True), (False, False)):
        event = event_of(Observation("o", from_millis(0), plain.model_copy(update={"dry_run": given_})))
        assert isinstance(event, Cleanup)
        assert event.dry_run is expected
    other = plain.model_copy(update={"command": CommandName.ROLLBACK})
    event = event_of(Observation("o", from_millis(0), other))
    assert isinstance(event, Rollback)
    assert not event.dry_run


@pytest.mark.parametrize("name", CommandName)
def test_a_command_without_its_arguments_is_rejected(name: CommandName) -> None:
    bare = SwitchCommand(cluster=CLUSTER, command=name, idempotency_key="k", dry_run=False)
    step = SwitchingPolicy(CLUSTER, SETTINGS).step(None, [Observation("o", from_millis(0), bare)], from_millis(0))
    [decision] = [d for d in step.decisions if isinstance(d, SwitchDecision)]
    assert decision.verdict is SwitchVerdict.REJECT
    assert decision.code in (RejectCode.NOT_FOUND, RejectCode.INVALID_TRANSITION)


# --- inventories


@given(st.permutations(range(3)), st.sets(st.integers(0, 2)))
def test_an_inventory_counts_when_all_its_parts_and_its_manifest_are_there(order: list[int], lost: set[int]) -> None:
    world = WireWorld()
    world.to(SwitchStage.LIVE_DUAL_READ)
    readings = inventory_readings(world.inventory_event(), world.now_ms)
    assert len(readings) == 3
    for i in order:
        if i not in lost:
            world.step(world.observation(readings[i]), world.observation(readings[i]))
    assert world.is_at(SwitchStage.LIVE_DUAL_READ if lost else SwitchStage.BUILD)
    kept = world.state.assembly
    assert (kept is None) is (lost == {0, 1, 2})
    assert kept is None or kept.complete is (not lost)
    assert kept is None or kept.parts == () or lost


def test_a_manifest_that_counts_more_references_is_not_complete() -> None:
    world = WireWorld()
    world.to(SwitchStage.LIVE_DUAL_READ)
    *parts, manifest = inventory_readings(world.inventory_event(), world.now_ms)
    assert isinstance(manifest, SwitchInventory)
    wrong = manifest.model_copy(update={"references": manifest.references + 1})
    world.step(*(world.observation(r) for r in (*parts, wrong)))
    assert world.is_at(SwitchStage.LIVE_DUAL_READ)
    failed = manifest.model_copy(update={"outcome": Outcome.TIMEOUT})
    world.step(world.observation(failed))
    assert world.state.assembly is None


def test_a_reading_that_began_before_the_switch_was_live_is_too_old_however_late_it_comes() -> None:
    world = WireWorld()
    world.to(SwitchStage.LIVE_DUAL_READ)
    *parts, manifest = inventory_readings(world.inventory_event(), world.now_ms)
    early = manifest.model_copy(update={"took_ms": world.now_ms - world.switch.live_ms})
    world.step(*(world.observation(r) for r in (*parts, early)))
    assert world.is_at(SwitchStage.LIVE_DUAL_READ)


def test_what_could_not_be_read_is_no_event() -> None:
    for kind in KIND.readings:
        if kind is not SwitchCommand:
            bare = kind.model_construct(cluster=CLUSTER, outcome=Outcome.TIMEOUT)
            assert event_of(Observation("o", from_millis(0), bare)) is None


# --- the report


def test_a_report_is_published_with_what_to_do() -> None:
    report = precheck(snapshot(existing=found(ledger(3), ledger(7)), journal={7: intent(7)}), DEDICATED, NOW_MS)
    reading = reading_of(report, CLUSTER)
    assert (reading.ready, reading.digest, reading.to_import) == (False, report.digest, 3)
    assert reading.findings[0].remedy
    world = WireWorld()
    world.observation(reading)


# --- time and alerts


def test_it_wakes_for_its_windows_and_the_end_of_the_lease() -> None:
    world = WireWorld()
    world.to(SwitchStage.HOLD)
    assert world.wake_at == from_millis(world.switch.rollback_until_ms)
    world.now_ms = world.switch.rollback_until_ms
    world.step()
    assert world.wake_at == from_millis(world.switch.cleanup_from_ms)


def test_our_copies_are_deleted_when_the_time_comes_without_any_observation() -> None:
    world = WireWorld()
    world.to(SwitchStage.ROLLED_BACK)
    assert world.orders == []
    world.now_ms = world.switch.cleanup_from_ms
    world.step()
    assert {o.verdict for o in world.orders} == {SwitchVerdict.DELETE_OWN_COPY}


def test_a_halted_switch_alarms_until_it_is_driven_on() -> None:
    world = WireWorld()
    world.to(SwitchStage.PROMOTE)
    tell_of(world, "/c1", LedgerOutcome.PROMOTED, changed=("attribution", "entry_id"))
    assert world.alerts() == [("switch-halted", "firing")]
    world.tell(world.start_event())
    assert world.alerts() == [("switch-halted", "firing"), ("switch-halted", "resolved")]


def test_other_troubles_alarm_as_well() -> None:
    world = WireWorld()
    world.to(SwitchStage.TRIGGERED)
    world.clusters["old"].hob = 2
    world.acks()
    assert world.alerts() == [("switch-blocked", "firing")]
    world = WireWorld()
    world.to(SwitchStage.TRIGGERED)
    world.tell(world.follow("b1"), world.broker_event("b2", failed=True, epoch=1))
    assert world.alerts() == [("switch-degraded", "firing")]
    world = WireWorld()
    world.to(SwitchStage.DONE_WITH_FAILURES)
    assert world.alerts() == [("switch-ledgers-left-behind", "firing")]
    world = WireWorld()
    world.to(SwitchStage.BUILD)
    assert world.state.lease is not None
    world.now_ms = world.state.lease.valid_until_ms
    world.step()
    assert world.alerts() == [("switch-unattended", "firing")]


# --- settings


def test_the_defaults_are_these() -> None:
    settings = SwitchingSettings()
    assert settings.limits == SwitchLimits(DAY_MS, 15 * DAY_MS, 16, 16, 5)
    assert settings.rules.policy.value == "dedicated"
    assert settings.rules.validity_ms == 600_000
    remap = SwitchingSettings.model_validate({"strategies": {"cursor": "remap", "schema": "same_id"}})
    assert remap.limits.remapped == {LedgerKind.CURSOR}
    with pytest.raises(ValueError, match="strategies"):
        SwitchingSettings.model_validate({"strategies": {"topic": "remap"}})


def test_in_shadow_mode_decisions_say_so() -> None:
    shadow = SwitchingSettings.model_validate({"mode": "shadow"})
    lease: Reading = SwitchLease(**OK, token=1, valid_ms=1000)
    command = SwitchCommand(cluster=CLUSTER, command=CommandName.CLEANUP, idempotency_key="k")
    seen = [Observation(str(i), from_millis(0), r) for i, r in enumerate((lease, command))]
    step = SwitchingPolicy(CLUSTER, shadow).step(None, seen, from_millis(0))
    assert {d.mode for d in step.decisions} == {Mode.SHADOW}


# --- any readings at all


@given(st.data())
def test_a_step_is_total(data: st.DataObject) -> None:
    """Whatever valid readings arrive in whatever stage, in whatever order."""
    world = WireWorld()
    world.to(data.draw(st.sampled_from(REACHABLE)))
    pool = [o for _, seen in DONE.inputs for o in seen]
    extremes = [2**63 - 1, 0, -1]
    wild: list[Any] = [
        {"type": "switch-ledger", "ledger_id": i, "op": max(0, o), "result": r}
        for i in extremes for o in extremes for r in ("exists", "rolled_over", "deleted")
    ]  # fmt: skip
    for _ in range(data.draw(st.integers(1, 5))):
        world.later(data.draw(st.sampled_from([0, 1, DAY_MS, 400 * DAY_MS])))
        seen = data.draw(st.lists(st.sampled_from(pool), max_size=6))
        odd = data.draw(st.sampled_from(wild))
        record = msgspec.json.encode(
            {
                "specversion": "1.0", "id": f"w{world.seen}", "source": "x", "type": f"headgate.{odd['type']}.v1",
                "data": {"cluster": CLUSTER, "outcome": "ok", **odd},
            }
        )  # fmt: skip
        world.step(*seen, Observation("wild", from_millis(world.now_ms), READER.read(record).data))
        assert stored(world.state) == world.state


def test_the_state_of_a_large_plan_stays_small_and_quick() -> None:
    world = WireWorld()
    world.to(SwitchStage.LIVE_DUAL_READ)
    event = world.inventory_event()
    references = tuple(
        Reference(LedgerKind.CURSOR, f"/managed-ledgers/tenant/namespace/persistent/topic-{i}/cursor", 10 + i)
        for i in range(20_000)
    )
    big = type(event)(references, event.at_ms, "new")
    state, said = apply(world.state, (big,), world.limits, world.now_ms)
    assert len(said) == 3
    encoded = msgspec.msgpack.encode(state)
    assert len(encoded) < 100 * 20_000
    assert msgspec.msgpack.decode(encoded, type=SwitchingState) == state
