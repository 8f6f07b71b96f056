"""Whether a throttle has an effect, and what keeps it from having one."""

from typing import Any

import pytest

from policies.decisions import Alert, AlertStatus, Severity
from policies.observations import Observation, Outcome
from policies.throttle.alerts import CONTESTED, ESCAPED, NOT_CARRIED_OUT, UNKNOWN_ORIGINAL, WITHOUT_EFFECT
from policies.throttle.quotas import NamedQuota, QuotaState
from policies.throttle.readings import ReplicaSizes, TopicUsage, VolumeUsage
from tests.cases import for_each
from tests.policies.scenario import CLUSTER, HARD, Run, at, log_dirs, members, throttle

FREE = 900
"""Free bytes at the beginning: below the hard limit of 1,000."""
BEFORE = 40
"""Seconds of readings before the quotas."""
ALICE = NamedQuota(entity="user=alice", bytes_per_second=50_000_000)


def quotas(seconds: float, **more: Any) -> Observation:
    """The actuator's reading: two bytes a second may be written, window ten seconds."""
    fields = {"factor": 0.0, "set_count": 1, "is_settled": True, "brokers": 1, "let_through_bytes_per_second": 2,
              "window_seconds": 10.0, **more}  # fmt: skip
    return Observation(f"q@{seconds:g}", at(seconds), QuotaState(cluster=CLUSTER, outcome=Outcome.OK, **fields))


def fill(rate: float, *, seconds: int = 60, every: int = 5) -> list[Observation]:
    """Readings of the only volume, which fills at a rate, from before the quotas on."""
    return [log_dirs(t, 1, round(FREE - rate * t)) for t in range(-BEFORE, seconds + 1, every)]


def firing(*observations: Observation) -> dict[str, Alert]:
    run = Run(throttle(HARD))
    ordered = sorted(observations, key=lambda seen: seen.at)
    alerts = {each.alert: each for each in run.feed([members(-BEFORE, 1), *ordered]).alerts}
    return {name: alert for name, alert in alerts.items() if alert.status is AlertStatus.FIRING}


@for_each(
    ("rate", "more", "expected"),
    [
        pytest.param(3.0, {}, False, id="what the quotas let through, and some more"),
        pytest.param(6.0, {}, True, id="three times what they let through"),
        pytest.param(6.0, {"is_settled": False}, False, id="quotas that go down in steps"),
        pytest.param(6.0, {"factor": 1.0}, False, id="no throttle"),
        pytest.param(6.0, {"set_count": 0}, False, id="no quota is set"),
        pytest.param(6.0, {"factor": 0.5}, False, id="the quotas did not fall to below half"),
        pytest.param(6.0, {"factor": 0.4}, True, id="they did"),
        pytest.param(
            6.0, {"factor": 0.4, "set_count": 9, "let_through_bytes_per_second": 18}, False, id="many entities"
        ),
        pytest.param(6.0, {"set_count": 9, "let_through_bytes_per_second": 18}, True, id="many entities, stopped"),
    ],
)
def test_growth_as_before_beyond_twice_what_the_quotas_let_through_is_an_alert(
    rate: float, more: dict[str, Any], expected: bool
) -> None:
    assert (WITHOUT_EFFECT in firing(quotas(0, **more), *fill(rate))) is expected


@pytest.mark.parametrize(
    ("after", "foreign_share", "expected"),
    [
        pytest.param(0.6, None, False, id="a tenth: many clients share an entity"),
        pytest.param(2.6, None, False, id="just below half"),
        pytest.param(3.4, None, True, id="just above half"),
        pytest.param(2.6, 1.0, True, id="less, but of files that are not Kafka's"),
        pytest.param(2.6, 0.4, False, id="less, and most of it Kafka's"),
        pytest.param(1.0, 1.0, False, id="what the quotas let through"),
    ],
)
def test_the_growth_is_compared_with_the_growth_before_the_quotas_fell(
    after: float, foreign_share: float | None, expected: bool
) -> None:
    """6 bytes a second before; the quotas let through 1."""
    seen = [log_dirs(t, 1, round(FREE - after * t)) for t in range(5, 81, 5)]
    if foreign_share is not None:
        foreign = {"kafka_bytes_per_second": 0.0, "other_bytes_per_second": after, "other_share": foreign_share}
        seen += [usage(seconds, **foreign) for seconds in (20, 40, 60)]
    found = firing(*fill(6.0, seconds=0), quotas(1, let_through_bytes_per_second=1), *seen)
    assert (WITHOUT_EFFECT in found) is expected


def test_a_restart_that_knows_no_growth_before_is_no_false_alarm() -> None:
    assert WITHOUT_EFFECT not in firing(quotas(-BEFORE), *fill(6.0))


def test_a_volume_that_is_full_has_not_recovered() -> None:
    filling, full = fill(15.0), [log_dirs(t, 1, 0) for t in range(65, 600, 5)]
    still = [quotas(t) for t in range(60, 600, 60)]
    summary = firing(quotas(0), *still, *filling, *full)[WITHOUT_EFFECT].summary
    assert "broker 1 /data/a filled by 15 B/s until it was full (before: 15 B/s)" in summary
    freed = [quotas(600), *(log_dirs(t, 1, 800) for t in range(600, 640, 5))]
    assert WITHOUT_EFFECT not in firing(quotas(0), *still, *filling, *full, *freed)


def test_one_window_alone_is_none() -> None:
    assert WITHOUT_EFFECT not in firing(quotas(0), *fill(6.0, seconds=10))


@pytest.mark.parametrize(("rate", "is_over"), [(0.0, True), (2.6, True), (3.4, False)])
def test_it_ends_when_the_growth_falls_to_below_half(rate: float, is_over: bool) -> None:
    slower = [log_dirs(60 + t, 1, round(FREE - 6 * 60 - rate * t)) for t in range(5, 40, 5)]
    found = firing(quotas(0, let_through_bytes_per_second=1), *fill(6.0), *slower)
    assert (WITHOUT_EFFECT not in found) is is_over


@pytest.mark.parametrize(("let_through", "is_over"), [(3, True), (4, True), (2, False), (1, False)])
def test_it_ends_when_the_quotas_are_raised_beyond_the_growth(let_through: int, is_over: bool) -> None:
    """6 bytes a second are expected of quotas that let through 3. The next window has not ended yet."""
    raised = quotas(61, factor=0.4, let_through_bytes_per_second=let_through)
    found = firing(quotas(0), *fill(6.0), raised, log_dirs(62, 1, FREE - 6 * 60))
    assert (WITHOUT_EFFECT not in found) is is_over


def test_a_failed_reading_of_the_actuator_ends_no_alert() -> None:
    failed = Observation("q-failed", at(60), QuotaState(cluster=CLUSTER, outcome=Outcome.TIMEOUT))
    assert WITHOUT_EFFECT in firing(quotas(0), *fill(6.0), failed)


def test_growth_without_a_known_cause_names_none() -> None:
    topic = TopicUsage(topic="orders", size_bytes=1, bytes_per_second=-3.0, share=0.4)
    summary = firing(quotas(0), usage(topics=(topic,)), *fill(6.0))[WITHOUT_EFFECT].summary
    assert summary.endswith("many clients that write less than their quotas")


def test_it_does_not_end_because_the_volume_is_no_longer_read() -> None:
    other = [quotas(t) for t in range(60, 1000, 60)] + [log_dirs(t, 2, 5000) for t in range(60, 1000, 60)]
    assert WITHOUT_EFFECT in firing(quotas(0), *fill(6.0), *other)
    calm = [log_dirs(t, 1, 500) for t in range(1000, 1040, 5)]
    assert WITHOUT_EFFECT not in firing(quotas(0), *fill(6.0), *other, quotas(999), *calm)


def test_the_sentence_has_the_age_of_each_rate() -> None:
    silent = [*(quotas(t) for t in range(60, 301, 60)), *(log_dirs(t, 2, 5000) for t in range(60, 301, 60))]
    topics = (TopicUsage(topic="orders", size_bytes=9, bytes_per_second=6.0, share=0.9),)
    summary = firing(quotas(0), usage(20, topics=topics), *fill(6.0), *silent)[WITHOUT_EFFECT].summary
    assert "broker 1 /data/a fills by 6 B/s, as measured 3 min ago (before: 6 B/s) where its quotas" in summary
    assert summary.endswith("(filled by topic orders (6 B/s, 90%), as measured 4 min ago)")


@pytest.mark.parametrize("growing", [(1, "/data/b"), (2, "/data/a")], ids=["another dir", "another broker"])
def test_each_limiting_volume_is_followed_and_not_only_the_one_that_decides(growing: tuple[int, str]) -> None:
    seen = [quotas(0)]
    for t in range(-BEFORE, 61, 5):
        free = {(b, d): 300 for b in (1, 2) for d in ("/data/a", "/data/b")} | {growing: FREE - 6 * t}
        seen += [log_dirs(t, b, {d: free[b, d] for d in ("/data/a", "/data/b")}) for b in (1, 2)]
    summary = firing(*seen)[WITHOUT_EFFECT].summary
    assert (
        f"broker {growing[0]} {growing[1]} fills by 6 B/s (before: 6 B/s) where its quotas let through 2 B/s" in summary
    )


def usage(seconds: float = 1, **more: Any) -> Observation:
    fields = {"log_dir": "/data/a", "kafka_bytes": 1, "kafka_bytes_per_second": 6.0, "other_bytes": 1,
              "other_bytes_per_second": 0.0, "other_share": 0.0, "topics": (), **more}  # fmt: skip
    volume = VolumeUsage(**fields)
    return Observation(
        f"u@{seconds:g}", at(seconds), ReplicaSizes(cluster=CLUSTER, outcome=Outcome.OK, broker=1, volumes=(volume,))
    )


OFFSETS = TopicUsage(topic="__consumer_offsets", size_bytes=9, bytes_per_second=6.0, share=0.9)


@pytest.mark.parametrize(
    ("reading", "more", "cause"),
    [
        pytest.param((), {"escaping": (ALICE,), "escaping_count": 1}, "clients escape by user=alice", id="escape"),
        pytest.param((), {"callback_brokers": (1,)}, "broker 1 ignores quotas because", id="callback"),
        pytest.param((), {"callback_brokers": (1, 2)}, "brokers 1, 2 ignore quotas because", id="two"),
        pytest.param((), {"excluded_users": ("carol",)}, "excluded users (carol), a user of the disk that is not "
                     "Kafka, a partition", id="excluded"),
        pytest.param(
            (usage(kafka_bytes_per_second=0.0, other_bytes_per_second=6.0, other_share=1.0),), {},
            "2 B/s: a user of the disk that is not Kafka (", id="other",
        ),
        pytest.param(
            (usage(kafka_bytes_per_second=8.0, topics=(OFFSETS,)),), {},
            "2 B/s: a user of the disk that is not Kafka, a partition", id="usage of before, when it filled faster",
        ),
        pytest.param(
            (usage(kafka_bytes_per_second=4.0, topics=(OFFSETS,)),), {},
            "2 B/s: a user of the disk that is not Kafka, a partition", id="usage of before, when it filled slower",
        ),
        pytest.param((usage(topics=(OFFSETS,)),), {}, "the internal topic __consumer_offsets", id="internal"),
    ],
)  # fmt: skip
def test_the_sentence_names_the_likely_cause(
    reading: tuple[Observation, ...], more: dict[str, Any], cause: str
) -> None:
    summary = firing(quotas(0, **more), *reading, *fill(6.0))[WITHOUT_EFFECT].summary
    assert f"{CLUSTER} is stopped, but broker 1 /data/a fills by 6 B/s (before: 6 B/s) where its quotas let" in summary
    assert cause in summary


@pytest.mark.parametrize(
    ("factor", "words"), [(0.0, "stopped"), (0.004, "slowed to less than 0.01"), (0.4, "slowed to 0.40")]
)
def test_the_sentence_has_the_factor_that_is_carried_out(factor: float, words: str) -> None:
    assert firing(quotas(0, factor=factor), *fill(6.0))[WITHOUT_EFFECT].summary.startswith(
        f"{CLUSTER} is {words}, but "
    )


@pytest.mark.parametrize(
    ("more", "is_told"),
    [
        ({"set_count": 0}, True),
        ({"set_count": 0, "factor": 0.5}, True),
        ({"set_count": 1}, False),
        ({"set_count": 0, "factor": 1.0}, False),
        ({"set_count": 0, "factor": None}, False),
    ],
)
def test_a_throttle_of_which_nothing_is_set_is_a_critical_alert(more: dict[str, Any], is_told: bool) -> None:
    alerts = firing(quotas(0, not_set="user=alice: no base", **more), *fill(0.0))
    assert (NOT_CARRIED_OUT in alerts) is is_told
    if is_told:
        assert alerts[NOT_CARRIED_OUT].severity is Severity.CRITICAL
        assert alerts[NOT_CARRIED_OUT].summary.endswith(
            "which is not carried out: nobody is slowed down: user=alice: no base"
        )


@pytest.mark.parametrize(
    ("factor", "words"), [(0.5, "only a stop with `cover: all` reaches them"), (0.0, "applies to them")]
)
def test_clients_without_an_id_may_escape_which_is_a_warning(factor: float, words: str) -> None:
    alert = firing(quotas(0, factor=factor, clients_without_id_escape=True), *fill(0.0))[ESCAPED]
    assert (alert.severity, "without a client id may escape" in alert.summary) == (Severity.WARNING, True)
    assert alert.summary.endswith(words)
    both = {"clients_without_id_escape": True, "escaping": (ALICE,), "escaping_count": 1}
    alert = firing(quotas(0, factor=factor, **both), *fill(0.0))[ESCAPED]
    assert "user=alice (50.0 MB/s); clients of" in alert.summary


@pytest.mark.parametrize(("factor", "severity"), [(0.0, Severity.CRITICAL), (0.5, Severity.WARNING)])
def test_a_quota_that_escapes_is_an_alert_critical_in_a_stop(factor: float, severity: Severity) -> None:
    alert = firing(quotas(0, factor=factor, escaping=(ALICE,), escaping_count=1), *fill(0.0))[ESCAPED]
    assert alert.severity is severity
    assert "user=alice (50.0 MB/s)" in alert.summary


def test_a_rival_and_an_unknown_original_are_alerts_with_the_remedy() -> None:
    rival = NamedQuota(entity="client-id=app", bytes_per_second=3_000_000, period_seconds=120.0)
    unknown = NamedQuota(entity="user=CN=bob smith,O=x", bytes_per_second=65_536)
    alerts = firing(quotas(0, contested=(rival,), unknown=(unknown,)), *fill(0.0))
    assert "sets the quota client-id=app of payments to 3.0 MB/s every 2 min" in alerts[CONTESTED].summary
    assert "headgate act --release --forget 'user=CN=bob smith,O=x'" in alerts[UNKNOWN_ORIGINAL].summary


def test_an_actuator_that_is_silent_for_validity_says_nothing_any_more() -> None:
    later = [log_dirs(t, 1, FREE) for t in range(0, 600, 60)]
    assert ESCAPED not in firing(quotas(0, escaping=(ALICE,), escaping_count=1), *later)
