"""The metrics of the switching policy, from the policy's own decisions, in virtual time."""

from collections.abc import Iterable
from typing import Any

from connectors.exporter.loop_view import LoopView
from connectors.kafka.tail import Record
from connectors.switching.view import SwitchingView
from policies.decisions import Decision
from policies.observations import Observation
from policies.switching.decisions import SwitchRecord
from policies.switching.state import ENDED, LedgerStage, SwitchStage
from policies.units import to_millis
from policies.wire import observation_event
from tests.cases import for_each
from tests.connectors.exporter.loop import PREFIX, START, Series, decided, series
from tests.policies.switching.wire import CLUSTER, WireWorld

DECIDED = f"{PREFIX}.decided.switches"


def switched_to(stage: SwitchStage) -> WireWorld:
    return WireWorld().to(stage)


def shown(decisions: Iterable[Decision]) -> LoopView:
    view = LoopView(PREFIX, {})
    view.fold([decided(decision) for decision in decisions], live=True)
    return view


def of(view: LoopView, name: str) -> Series:
    return series(view, name, START)


def at(stage: SwitchStage) -> LoopView:
    """What there is to see once a switch has come to a stage."""
    return shown(switched_to(stage).published)


DONE = at(SwitchStage.DONE)
TRIGGERED = switched_to(SwitchStage.TRIGGERED).records()[-1]


def changed(stage: SwitchStage, **fields: Any) -> LoopView:
    """A record as the policy makes it, with fields that take long to come by."""
    return shown([TRIGGERED.model_copy(update={"verdict": stage, **fields})])


def test_before_the_first_switch_only_the_registry_shows() -> None:
    view = at(SwitchStage.PRECHECKED)
    assert of(view, "headgate_switch_stage") == of(view, "headgate_switch_ledgers") == {}
    assert of(view, "headgate_bookkeeper_cluster_active") == {(CLUSTER, "old"): 1, (CLUSTER, "new"): 0}
    assert of(view, "headgate_switch_epoch") == {(CLUSTER,): 0}


def test_exactly_the_present_stage_is_1() -> None:
    for stage in (SwitchStage.TRIGGERED, SwitchStage.PROMOTE, SwitchStage.ROLLED_BACK):
        assert of(at(stage), "headgate_switch_stage") == {(CLUSTER, "old", "new", stage.value): 1}


def test_ledgers_are_counted_at_every_stage_also_where_there_are_none() -> None:
    ledgers = of(at(SwitchStage.BUILD), "headgate_switch_ledgers")
    assert ledgers.keys() == {(CLUSTER, stage.value) for stage in LedgerStage}
    assert {stage: count for (_, stage), count in ledgers.items() if count} == {"pending": 1, "copying": 2}
    done = {stage: count for (_, stage), count in of(DONE, "headgate_switch_ledgers").items() if count}
    assert done == {"cleaned": 3}


def test_the_active_cluster_is_the_target_from_the_directive_on_registered_or_not() -> None:
    for view in (at(SwitchStage.TRIGGERED), changed(SwitchStage.HOLD, registry={"old": "standby"})):
        assert of(view, "headgate_bookkeeper_cluster_active") == {(CLUSTER, "old"): 0, (CLUSTER, "new"): 1}


def test_brokers_are_counted_as_live_unless_they_were_never_read_and_as_acked() -> None:
    world = switched_to(SwitchStage.TRIGGERED)
    world.now_ms += 1000
    world.tell(world.report_event("b1", 1, writes=("new",), reads=("old",)))
    assert of(shown(world.published), "headgate_switch_brokers") == {(CLUSTER, "live"): 2, (CLUSTER, "acked"): 1}
    unknown = TRIGGERED.brokers.model_copy(update={"live": None})
    assert of(changed(SwitchStage.TRIGGERED, brokers=unknown), "headgate_switch_brokers") == {(CLUSTER, "acked"): 0}


TROUBLES = {
    "halted": ({"halted": "INV-2: …"}, set(SwitchStage)),
    "blocked": ({"blocked": "an id generator is unknown"}, {SwitchStage.TRIGGERED}),
    "degraded": ({"degraded": True}, set(SwitchStage) - ENDED - {SwitchStage.DONE_WITH_FAILURES}),
}


@for_each(("name", "fields", "where"), [(n, *rest) for n, rest in TROUBLES.items()], ids=TROUBLES)
@for_each("stage", SwitchStage)
def test_a_trouble_shows_at_the_stages_at_which_its_alert_fires(
    name: str, fields: dict[str, Any], where: set[SwitchStage], stage: SwitchStage
) -> None:
    view = changed(stage, **fields)
    found = {trouble: of(view, f"headgate_switch_{trouble}") for trouble in TROUBLES}
    assert found == {trouble: {(CLUSTER,): float(trouble == name and stage in where)} for trouble in TROUBLES}


def test_a_deleted_record_takes_the_clusters_series_with_it() -> None:
    view = at(SwitchStage.HOLD)
    view.fold([Record(DECIDED, f"{CLUSTER}/ledgers/1".encode(), None, to_millis(START))], live=True)
    assert of(view, "headgate_switch_stage")
    view.fold([Record(DECIDED, CLUSTER.encode(), None, to_millis(START))], live=True)
    assert not any(of(view, family.name) for family in SwitchingView.families)


def test_the_compacted_topic_alone_gives_the_same_picture() -> None:
    world = switched_to(SwitchStage.DONE)
    compacted = {d.record_key(): d for d in world.published}
    view = shown(d for d in compacted.values() if isinstance(d, SwitchRecord))
    for family in SwitchingView.families:
        assert of(view, family.name) == of(DONE, family.name)
        assert of(view, family.name)


def test_a_step_that_something_caused_is_measured_and_a_record_is_not() -> None:
    world, view = switched_to(SwitchStage.BUILD), LoopView(PREFIX, {})
    view.fold([observed(o) for _, batch in world.inputs for o in batch], live=True)
    view.fold([decided(d) for d in world.records()], live=True)
    assert of(view, "headgate_decision_latency_seconds") == {}
    view.fold([decided(d) for d in world.published], live=True)
    assert of(view, "headgate_decision_latency_seconds")["switching", "appended_to_decided", "sum"] == 0


def observed(observation: Observation) -> Record:
    value = observation_event(observation.reading, id=observation.id, source="test", time=observation.at)
    return Record(f"{PREFIX}.observed.switches", CLUSTER.encode(), value, observation.at_ms)
