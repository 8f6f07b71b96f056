"""Metrics of the switching policy: the state of each broker cluster's switch, from its compacted record alone."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from connectors.views import Decided, Family, PolicyDetail, PolicyView, Sample
from policies.decisions import Decision
from policies.observations import Observation
from policies.switching.decisions import SwitchDecision, SwitchRecord
from policies.switching.settings import SwitchingSettings
from policies.switching.state import ENDED, WAY, LedgerStage, SwitchStage
from policies.units import Instant

STAGE = Family(
    "headgate_switch_stage",
    "1 for the stage of the cluster's last switch; absent before the first one.",
    ("cluster", "source", "target", "stage"),
)
LEDGERS = Family(
    "headgate_switch_ledgers",
    "Ledgers of the last switch's plan by stage; absent before the first switch.",
    ("cluster", "stage"),
)
EPOCH = Family(
    "headgate_switch_epoch",
    "The greatest epoch of a directive: it grows with each directive to the brokers.",
    ("cluster",),
)
BROKERS = Family(
    "headgate_switch_brokers",
    "Brokers by state: live (absent while unknown), and acked (those that follow the directive in force).",
    ("cluster", "state"),
)
HALTED = Family(
    "headgate_switch_halted",
    "1 while no orders are given because an invariant is broken, or a promotion changed too much. An operator must "
    "look.",
    ("cluster",),
)
BLOCKED = Family(
    "headgate_switch_blocked", "1 while all brokers have acked, but the switch does not go live.", ("cluster",)
)
DEGRADED = Family(
    "headgate_switch_degraded", "1 while a broker cannot reach the target that others already write to.", ("cluster",)
)
ACTIVE = Family(
    "headgate_bookkeeper_cluster_active",
    "1 for the registered BookKeeper cluster that brokers write to, 0 for the other registered ones.",
    ("cluster", "name"),
)

_OVER = ENDED | {SwitchStage.DONE_WITH_FAILURES}


class SwitchingView(PolicyView[Any]):
    """The present state of all clusters, from the decisions in force alone."""

    families: tuple[Family, ...] = (STAGE, LEDGERS, EPOCH, BROKERS, HALTED, BLOCKED, DEGRADED, ACTIVE)
    of_decisions: tuple[Family, ...] = families

    def __init__(self, _: SwitchingSettings) -> None:
        super().__init__(timedelta(0), lambda _: None, _show)

    def observe(self, observations: Sequence[Observation]) -> None:
        """Keep no reading."""

    def decide(self, decision: Decision, before: Decision | None, *, live: bool) -> bool:  # noqa: ARG002 - none counts
        """Return whether a step has a cause; it has none as evidence if time alone caused it."""
        return isinstance(decision, SwitchDecision) and bool(decision.evidence)

    def samples(self, now_ms: int, decided: Decided) -> Iterator[Sample]:  # noqa: ARG002 - a record holds until the next
        """Yield the samples of all clusters: of the last switch, its problems and the brokers."""
        for cluster, _, decisions in self.states(decided):
            if (record := _find_record(decisions)) is not None:
                yield from _record_samples(cluster, record)


def _find_record(decisions: Sequence[Decision]) -> SwitchRecord | None:
    return next((each for each in decisions if isinstance(each, SwitchRecord)), None)


def _record_samples(cluster: str, record: SwitchRecord) -> Iterator[Sample]:
    stage = record.verdict
    if record.source is not None and record.target is not None:
        yield Sample(STAGE, (cluster, record.source, record.target, stage.value), 1)
        for one in LedgerStage:
            yield Sample(LEDGERS, (cluster, one.value), record.ledgers.get(one, 0))
    # Like the alerts: a problem of a switch that has gone on, or is over, does not count any more.
    yield Sample(HALTED, (cluster,), bool(record.halted))
    yield Sample(BLOCKED, (cluster,), bool(record.blocked) and stage is SwitchStage.TRIGGERED)
    yield Sample(DEGRADED, (cluster,), record.degraded and stage not in _OVER)
    yield Sample(EPOCH, (cluster,), record.epoch)
    if record.brokers.live is not None:
        yield Sample(BROKERS, (cluster, "live"), record.brokers.live)
    yield Sample(BROKERS, (cluster, "acked"), record.brokers.acked)
    for name in sorted({*record.registry, *filter(None, [record.active])}):
        yield Sample(ACTIVE, (cluster, name), name == record.active)


# The switching policy on the status page: the progress of a switch through its stages.


class SwitchingDetail(PolicyDetail):
    """The cluster that brokers write to, and the state of the last switch."""

    template: ClassVar[str] = str(Path(__file__).with_name("detail.html"))

    active: str | None = Field(description="The cluster that brokers write to.")
    source: str | None = Field(description="The cluster that brokers leave; null if no switch has begun.")
    target: str | None = Field(description="The cluster that they move to; null if no switch has begun.")
    stage: SwitchStage
    way: tuple[SwitchStage, ...] = Field(description="The stages of a switch without failures; empty for another one.")
    ledgers: dict[LedgerStage, int] = Field(description="Number of ledgers by stage.")
    brokers_live: int | None = Field(description="Number of live brokers; null if unknown.")
    brokers_acked: int = Field(description="Number of brokers that follow the directive in force.")
    blocked: str = Field(description="The reason why it does not go live; empty if there is none.")
    halted: str = Field(description="The reason why no orders are given; empty if there is none.")
    paused: bool
    degraded: bool
    rollback_until: Instant | None = Field(description="End of the time for a rollback; null before it is live.")


def _show(_: None, decisions: Sequence[Decision], *__: object) -> SwitchingDetail | None:
    if (record := _find_record(decisions)) is None:
        return None
    return SwitchingDetail(
        **{name: getattr(record, name) for name in SwitchingDetail.model_fields.keys() & SwitchRecord.model_fields},
        stage=record.verdict,
        way=WAY if record.verdict in WAY else (),
        brokers_live=record.brokers.live,
        brokers_acked=record.brokers.acked,
    )
