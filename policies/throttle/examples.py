"""The example scenario of throttling: a volume fills up, and a quota is set."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from policies.decisions import Mode
from policies.examples import ExampleReport, Examples, make_readings, minutes
from policies.free_space.publication import FactorOrder
from policies.observations import Outcome, Reading, ReportResult
from policies.throttle.fold import AdoptCommand, ForgetCommand
from policies.throttle.quota_entities import DEFAULT, Entity
from policies.throttle.quota_plan import QuotaReason, QuotaSituation, plan
from policies.throttle.quota_state import NamedQuota, QuotaState
from policies.throttle.readings import (
    AppliedQuota,
    BrokerMember,
    KafkaCluster,
    LogDirs,
    QuotaApplication,
    ReplicaSizes,
    TopicUsage,
    VolumeReading,
    VolumeUsage,
)
from policies.throttle.settings import ThrottleSettings

_GIGABYTE = 10**9
_CLUSTER = "payments"


def examples() -> Examples:
    """Make the examples of the references."""
    limits = {"soft": {"available_bytes_below": "5GB"}, "hard": {"available_bytes_below": "1GB"}}
    return Examples(
        settings=ThrottleSettings.model_validate(limits),
        batches=(make_readings("headgate/collector/kafka", *_readings()),),
        later=make_readings("headgate/cli", *_commands()),
        reports=_quotas_set(),
        block={
            "preset": "strimzi",
            "hard": {"available_bytes_below": "5GB"},
            "soft": {"available_ratio_below": 0.15},
            "clusters": {"payments": {"min_hold": "2m"}, "dev-*": {"mode": "shadow", "fallback_factor": 0.5}},
        },
        cluster={"quotas": {"entities": [{"client_id": "default", "base": "10MB"}]}},
    )


def _readings() -> Sequence[tuple[str, datetime, Reading]]:
    """Three brokers; a volume of the last fills by 0.1 GB a minute. The readings that the pages show come first."""
    members = tuple(BrokerMember(broker=broker, rack=rack) for broker, rack in ((1, "a"), (2, "b"), (3, "c")))
    filling = [(f"reading-{minute}", minutes(minute), _log_dirs(3, 4.3 - minute / 10)) for minute in range(4)]
    topics = (TopicUsage(topic="orders", size_bytes=40 * _GIGABYTE, bytes_per_second=1_200_000, share=0.75),)
    usage = VolumeUsage(
        log_dir="/data/a",
        kafka_bytes=90 * _GIGABYTE,
        kafka_bytes_per_second=1_200_000,
        other_bytes=6 * _GIGABYTE,
        other_bytes_per_second=400_000,
        other_share=0.25,
        topics=topics,
    )
    sizes = ReplicaSizes(cluster=_CLUSTER, outcome=Outcome.OK, broker=3, volumes=(usage,))
    return (
        ("quotas-3", minutes(3), _quota_state()),
        ("sizes-3", minutes(3), sizes),
        ("members-3", minutes(3), KafkaCluster(cluster=_CLUSTER, outcome=Outcome.OK, brokers=members)),
        *reversed(filling),
        *((f"roomy-{broker}", minutes(3), _log_dirs(broker, 60)) for broker in (1, 2)),
    )


def _commands() -> Sequence[tuple[str, datetime, Reading]]:
    forget = ForgetCommand(
        cluster=_CLUSTER, broker=3, log_dir="/data/a", actor="alice@bastion-1", reason="the disk is taken out"
    )
    adopt = AdoptCommand(
        cluster=_CLUSTER, cluster_id="Zt5mX0bUQ2q6mYk3Tn1w0A", actor="alice@bastion-1", reason="set up again"
    )
    return (("forget-1", minutes(4), forget), ("adopt-1", minutes(4), adopt))


def _quota_state() -> QuotaState:
    entity = NamedQuota(entity="user=<default>,client-id=app", bytes_per_second=50_000_000)
    contested = NamedQuota(entity="client-id=<default>", bytes_per_second=10_000_000, period_seconds=120.0)
    return QuotaState(
        cluster=_CLUSTER,
        outcome=Outcome.OK,
        factor=0.75,
        set_count=1,
        is_settled=True,
        brokers=3,
        let_through_bytes_per_second=22_500_000,
        escaping=(entity,),
        escaping_count=1,
        contested=(contested,),
    )


def _log_dirs(broker: int, usable_gigabytes: float) -> LogDirs:
    usable_bytes = round(usable_gigabytes * _GIGABYTE)
    volume = VolumeReading(log_dir="/data/a", total_bytes=100 * _GIGABYTE, usable_bytes=usable_bytes)
    return LogDirs(cluster=_CLUSTER, outcome=Outcome.OK, broker=broker, volumes=(volume,))


def _quotas_set() -> Sequence[ExampleReport]:
    entity, at = Entity(client_id=DEFAULT), minutes(3)
    decision_id, until = "4be51c4a-2a3c-5c7e-9b0e-0d3a5a1d9b10", at + timedelta(minutes=3)
    order = FactorOrder(_CLUSTER, _CLUSTER, decision_id, 4, 0.75, Mode.ACTIVE, at, until)
    wanted = order.choose_factor(at, ThrottleSettings(), QuotaReason)
    planned = plan(QuotaSituation(wanted, record=None, found=None, base=10_000_000, floor=65_536))
    said = QuotaApplication(
        cluster=_CLUSTER,
        entity=str(entity),
        decision_id=order.decision_id,
        sequence=order.sequence,
        factor=wanted.factor,
        verdict=planned.verdict,
        reason=planned.reason,
        rate_bytes_per_second=planned.rate,
        previous_bytes_per_second=planned.found,
        outcome=ReportResult.APPLIED,
        attempt=1,
    ).explained(at)
    assert planned.record is not None  # noqa: S101 - a rate that is set is recorded
    note = AppliedQuota.build(_CLUSTER, entity, planned.record, order)
    return (
        ExampleReport("application-1", at, said),
        ExampleReport("note-1", at, note),
    )
