"""The loop in virtual time: the real policy, its records made by the real codec, and a view that reads them."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from prometheus_client import disable_created_metrics
from prometheus_client.openmetrics import exposition
from prometheus_client.registry import CollectorRegistry

from connectors.exporter.loop_view import LoopView
from connectors.kafka.tail import Record
from policies.decisions import Decision, Issuer, Mode
from policies.effects import report_key
from policies.free_space.levels import LimitReason, LimitVerdict
from policies.observations import ActuatorEvent, Observation, Outcome, Reading, ReportResult
from policies.pauses import PolicyPause
from policies.policy import Policy
from policies.registry import observed_topic
from policies.throttle import KafkaCluster, LogDirs, ThrottleSettings
from policies.throttle.policy import ThrottlePolicy
from policies.throttle.readings import BrokerMember, QuotaApplication, VolumeReading
from policies.units import to_millis
from policies.wire import actuator_event, decision_event, observation_event
from streaming.key_state import LastHeartbeat, emit_heartbeat
from tests.policies.virtual_run import NEVER_STEPPED, step_hosted

START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
PREFIX = "headgate"
OBSERVED, DECIDED = f"{PREFIX}.observed.log-dirs", f"{PREFIX}.decided.throttle"
REPORTS = f"{PREFIX}.applied.reports"
ALERTS, DEAD_LETTERS = f"{PREFIX}.decided.alerts", f"{PREFIX}.dead-letters"
TOTAL_BYTES = 1000
LIMITS = {"hard": {"available_bytes_below": 100}, "soft": {"available_bytes_below": 500}}

# Untyped upstream.
_generate_openmetrics: Any = exposition.generate_latest
_disable_created_metrics: Any = disable_created_metrics

_disable_created_metrics()  # as each process of Headgate does

Series = dict[tuple[str, ...], float]


def log_dirs(usable_bytes: int | dict[str, int], *, broker: int = 1, cluster: str = "payments") -> LogDirs:
    """A good reading of one broker: free bytes of `/a`, or of each log dir."""
    free = usable_bytes if isinstance(usable_bytes, dict) else {"/a": usable_bytes}
    volumes = (VolumeReading(log_dir=d, total_bytes=TOTAL_BYTES, usable_bytes=b) for d, b in free.items())
    return LogDirs(cluster=cluster, outcome=Outcome.OK, broker=broker, volumes=tuple(volumes))


def members(*brokers: int, cluster: str = "payments") -> KafkaCluster:
    return KafkaCluster(cluster=cluster, outcome=Outcome.OK, brokers=tuple(BrokerMember(broker=b) for b in brokers))


def observed(reading: Reading, at: datetime, *, id: str, read_at: datetime | None = None) -> Record:  # noqa: A002
    value = observation_event(reading, id=id, source="test", time=read_at or at)
    return Record(f"{PREFIX}.{observed_topic(type(reading))}", reading.cluster.encode(), value, to_millis(at))


def decided(decision: Decision, at: datetime | None = None) -> Record:
    topic = f"{PREFIX}.{decision.topic}"
    value = decision_event(decision)
    return Record(topic, decision.record_key().encode(), value, to_millis(at or decision.decided_at))


def reported(event: ActuatorEvent, at: datetime) -> Record:
    """An actuator's report, as on the compacted topic."""
    value = actuator_event(event, id="report", at=at)
    return Record(REPORTS, report_key(value).encode(), value, to_millis(at))


def quota(outcome: ReportResult, rate: int | None, entity: str | None = "user=alice", **more: Any) -> QuotaApplication:
    """A report of the quota actuator about `payments`."""
    plain: dict[str, Any] = {
        "cluster": "payments", "entity": entity, "decision_id": None, "sequence": None, "factor": 0.25, "attempt": 1,
        "verdict": LimitVerdict.SET, "reason": LimitReason.DECIDED, "outcome": outcome,
        "rate_bytes_per_second": rate, "previous_bytes_per_second": rate,
    }  # fmt: skip
    return QuotaApplication.model_validate({**plain, **more})


def standing(policy: str, at: datetime, cluster: str = "payments", quiet: PolicyPause | None = None) -> Record:
    """The heartbeat of a policy."""
    _, said = emit_heartbeat(Issuer(policy, cluster, Mode.ACTIVE, "cafe"), LastHeartbeat(), to_millis(at), quiet)
    return Record(f"{PREFIX}.{said.topic}", said.key.encode(), said.value, to_millis(at))


def paused(at: datetime, until: datetime, cluster: str = "payments") -> Record:
    """The heartbeat of a policy that alice paused."""
    return standing("throttle", at, cluster, PolicyPause(to_millis(until), actor="alice", reason="disks are swapped"))


def series(view: LoopView, name: str, at: datetime) -> Series:
    """Label values to value of one family; sums and counts of a histogram, not its buckets."""
    return {
        tuple(str(label) for label in (*sample.labels.values(), sample.name.removeprefix(name).strip("_")) if label): (
            sample.value
        )
        for metric in view.metrics(to_millis(at))
        for sample in metric.samples
        if sample.name.startswith(name) and not sample.name.endswith("_bucket")
    }


class PolicyLoop:
    """One cluster's policy, stepped by hand, and the view that reads what it reads and says."""

    def __init__(self, policy: Policy[Any], cluster: str, view: LoopView) -> None:
        self.cluster = cluster
        self.view = view
        self.now = START
        self.records: list[Record] = []
        self.decisions: list[Decision] = []
        self.kept = NEVER_STEPPED
        self._policy = policy
        self._read = 0

    def step(self, *readings: Reading, after: float = 0.0, live: bool = True) -> Sequence[Decision]:
        """Let `after` seconds pass, observe, decide, and let the view see both; returns what is news to the view."""
        self.now += timedelta(seconds=after)
        batch: list[Record] = []
        observations: list[Observation] = []
        for reading in readings:
            self._read += 1
            observations.append(Observation(f"o{self._read}", self.now, reading))
            batch.append(observed(reading, self.now, id=f"o{self._read}"))
        self.kept, step = step_hosted(self._policy, self.kept, observations, self.now)
        self.decisions.extend(step.decisions)
        batch.extend(decided(decision, self.now) for decision in step.decisions)
        self.records.extend(batch)
        return self.view.fold(batch, live=live)

    def series(self, name: str, *, after: float = 0.0) -> Series:
        return series(self.view, name, self.now + timedelta(seconds=after))


class Loop(PolicyLoop):
    """That of the throttle policy."""

    def __init__(self, *, cluster: str = "payments", view: LoopView | None = None, **settings: Any) -> None:
        block = ThrottleSettings.model_validate({**LIMITS, **settings})
        self.settings = block.for_cluster(cluster)
        policy = ThrottlePolicy(cluster, self.settings)
        super().__init__(policy, cluster, view or LoopView(PREFIX, {"throttle": block}))


def openmetrics(registry: CollectorRegistry) -> str:
    text: bytes = _generate_openmetrics(registry)
    return text.decode()
