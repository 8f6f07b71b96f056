"""What the actuator counts, for all clusters alike."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from policies.throttle.quota_events import QuotaOutcome
from policies.throttle.quota_plan import Rate
from policies.throttle.quota_settings import Entity

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class QuotaMetrics:
    """The metrics of the actuator: make one for a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._rate = Gauge(
            "headgate_quota_bytes_per_second",
            "The producer_byte_rate that Headgate has set; absent when it has set none.",
            ("cluster", "entity"),
            registry=registry,
        )
        self._applications = Counter(
            "headgate_quota_applications",
            "What came of carrying decisions out, by entity's quota: applied, unchanged, refused or failed.",
            ("cluster", "outcome"),
            registry=registry,
        )
        self._failing = Gauge(
            "headgate_quota_failing",
            "1 while quotas are not what they should be because Kafka does not do as asked.",
            ("cluster",),
            registry=registry,
        )
        self._seconds = Histogram(
            "headgate_quota_apply_seconds",
            "From a decision's append to its topic until Kafka has taken the quotas.",
            ("cluster",),
            buckets=_SECONDS,
            registry=registry,
        )

    def shows(self, cluster: str, entity: Entity, rate: Rate) -> None:
        """What we have set an entity's quota to; null: nothing."""
        if rate is not None:
            self._rate.labels(cluster, str(entity)).set(rate)
        else:
            self._rate.remove(cluster, str(entity))

    def counts(self, cluster: str, outcome: QuotaOutcome) -> None:
        """One entity's quota was dealt with."""
        self._applications.labels(cluster, outcome.value).inc()

    def failing(self, cluster: str, *, yes: bool) -> None:
        """Whether a cluster's quotas are at fault."""
        self._failing.labels(cluster).set(yes)

    def took(self, cluster: str, seconds: float) -> None:
        """How long it took to carry one decision out."""
        self._seconds.labels(cluster).observe(seconds)
