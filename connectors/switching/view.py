"""Metrics of the switching policy: the state of each broker cluster's switch, from its compacted record alone."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

from connectors.metric_families import Family, Histogram, Sample
from policies.decisions import Decision
from policies.observations import Observation
from policies.switching.decisions import SwitchDecision, SwitchRecord
from policies.switching.settings import SwitchingSettings
from policies.switching.state import ENDED, LedgerStage, SwitchStage

STAGE = Family(
    "headgate_switch_stage",
    "1 for the stage at which the cluster's last switch stands; absent before the first one.",
    ("cluster", "source", "target", "stage"),
)
LEDGERS = Family(
    "headgate_switch_ledgers",
    "Ledgers of the last switch's plan by the stage at which each stands; absent before the first switch.",
    ("cluster", "stage"),
)
EPOCH = Family(
    "headgate_switch_epoch",
    "The greatest epoch ever directed: it grows whenever brokers are sent anywhere.",
    ("cluster",),
)
BROKERS = Family(
    "headgate_switch_brokers",
    "Brokers: live, as last read (absent while not known), and acked, those that follow the directive in force.",
    ("cluster", "state"),
)
HALTED = Family(
    "headgate_switch_halted",
    "1 while nothing is ordered because an invariant is breached, or a promotion changed too much: a person must look.",
    ("cluster",),
)
BLOCKED = Family(
    "headgate_switch_blocked", "1 while all brokers have acked, but the switch does not go live.", ("cluster",)
)
DEGRADED = Family(
    "headgate_switch_degraded",
    "1 while a broker cannot reach the target to which others already write.",
    ("cluster",),
)
ACTIVE = Family(
    "headgate_bookkeeper_cluster_active",
    "Of the BookKeeper clusters that are registered: 1 for the one that brokers write to, 0 for the others.",
    ("cluster", "name"),
)

_OVER = ENDED | {SwitchStage.DONE_WITH_FAILURES}


class SwitchingView:
    """The present picture of all clusters.

    Args:
        settings: the policy's block; nothing of it matters here.
    """

    families: tuple[Family, ...] = (STAGE, LEDGERS, EPOCH, BROKERS, HALTED, BLOCKED, DEGRADED, ACTIVE)
    of_decisions: tuple[Family, ...] = families
    histograms: tuple[Histogram, ...] = ()

    def __init__(self, settings: SwitchingSettings) -> None:  # noqa: ARG002 - as every view is made
        self._records: dict[str, SwitchRecord] = {}

    @property
    def history(self) -> timedelta:
        """Nothing: what was heard is in the record."""
        return timedelta(0)

    def observe(self, observations: Sequence[Observation]) -> None:
        """Nothing here comes from what is heard."""

    def decide(self, decision: Decision, *, live: bool) -> bool:  # noqa: ARG002 - nothing here is counted
        """Take a cluster's next record; a step names what it follows from, unless time alone made it due."""
        if isinstance(decision, SwitchRecord):
            self._records[decision.record_key()] = decision
        return isinstance(decision, SwitchDecision) and bool(decision.evidence)

    def forget(self, key: str) -> None:
        """Drop the cluster whose record was deleted."""
        self._records.pop(key, None)

    def forget_cluster(self, cluster: str) -> None:
        """Drop all that is shown of it."""
        self._records = {key: record for key, record in self._records.items() if record.cluster != cluster}

    def samples(self, now_ms: int) -> Iterator[Sample]:  # noqa: ARG002 - a record holds until the next one
        """Every series of every cluster."""
        for _, record in sorted(self._records.items()):
            yield from _of_switch(record)
            yield from _of_brokers(record)


def _of_switch(record: SwitchRecord) -> Iterator[Sample]:
    """What there is only once there was a switch, and what may be wrong with it."""
    cluster, stage = record.cluster, record.verdict
    if record.source is not None and record.target is not None:
        yield Sample(STAGE, (cluster, record.source, record.target, stage.value), 1)
        for one in LedgerStage:
            yield Sample(LEDGERS, (cluster, one.value), record.ledgers.get(one, 0))
    # As the alerts have it: what was in the way of a switch that has gone on, or is over, is so no more.
    yield Sample(HALTED, (cluster,), bool(record.halted))
    yield Sample(BLOCKED, (cluster,), bool(record.blocked) and stage is SwitchStage.TRIGGERED)
    yield Sample(DEGRADED, (cluster,), record.degraded and stage not in _OVER)


def _of_brokers(record: SwitchRecord) -> Iterator[Sample]:
    """Where brokers write, and how many of them follow."""
    cluster = record.cluster
    yield Sample(EPOCH, (cluster,), record.epoch)
    if record.brokers.live is not None:
        yield Sample(BROKERS, (cluster, "live"), record.brokers.live)
    yield Sample(BROKERS, (cluster, "acked"), record.brokers.acked)
    for name in sorted({*record.registry, *filter(None, [record.active])}):
        yield Sample(ACTIVE, (cluster, name), name == record.active)
