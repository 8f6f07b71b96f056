"""A lab may pass over ids that are behind; whatever is said from then on is marked."""

from dataclasses import replace

import pytest
from msgspec.structs import replace as with_fields

from policies.switching.decisions import RejectCode
from policies.switching.ledgers import FindingReason, IdGenerator
from policies.switching.precheck import precheck
from policies.switching.readings import SwitchCommand
from policies.switching.settings import SwitchingSettings
from policies.switching.state import SwitchStage
from tests.policies.switching.snapshots import GOOD, NEW, NOW_MS, SHARED
from tests.policies.switching.world import World, few

LAB = few(skip_idgen_precheck=True)
BEHIND = replace(GOOD, target=with_fields(NEW, generator=IdGenerator(None, 2, 0)))


@pytest.mark.parametrize("skip", [False, True])
def test_only_ids_that_are_behind_are_passed_over_and_the_finding_stays(skip: bool) -> None:
    rules = SHARED.model_copy(update={"skip_idgen_precheck": skip})
    report = precheck("c1", BEHIND, rules, NOW_MS)
    assert (report.ready, report.bypassed, report.reasons) == (skip, skip, (FindingReason.IDGEN_BEHIND,))


def test_what_is_unknown_is_never_passed_over() -> None:
    report = precheck("c1", replace(BEHIND, references_complete=False), LAB, NOW_MS)
    assert report.ready is False
    assert report.bypassed is True


def test_a_report_that_bypassed_nothing_says_so() -> None:
    assert precheck("c1", GOOD, LAB, NOW_MS).bypassed is False


def bypassed(limits: SwitchingSettings) -> tuple[World, SwitchCommand]:
    """The target's ids are behind, and its report was bypassed."""
    world = World(limits).to(SwitchStage.PRECHECKED)
    world.clusters["new"].hob = None
    world.later().tell(*(world.cluster_event(name) for name in world.clusters))
    seen = world.prechecked_event()
    world.later().tell(with_fields(seen, ready=True, bypassed=True))
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
