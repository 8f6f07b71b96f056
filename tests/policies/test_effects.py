"""What is in force: the fold of the actuators' reports, and its one sentence."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.bookie_disks.readings import PublishApplication
from policies.decisions import Decision, Issuer, Mode, Standing, StandingReason, StandingVerdict
from policies.effects import EffectBook, InForce, Report, judge_in_force
from policies.free_space.levels import LimitReason, LimitVerdict
from policies.isolation.readings import BookieQuarantined, QuarantineOutcome
from policies.observations import ReportedEffect, ReportResult
from policies.sessions.readings import BundleUnloaded, UnloadOutcome
from policies.throttle.decisions import FreshnessCounts, ThrottleFactor, VolumeCounts
from policies.throttle.readings import QuotaApplication
from tests.cases import for_each
from tests.decisions import decided as decision

BROKERS = FreshnessCounts(counted=1, stale=0, departed=0)
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
CLUSTER = "payments"
ALICE, ANY = "user=alice", "client-id=<default>"
SLOW, STOP = 250_000, 65_536


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def quota(outcome: ReportResult, rate: int | None, entity: str | None = ANY, **more: Any) -> QuotaApplication:
    verdicts = {ReportResult.APPLIED: LimitVerdict.SET, ReportResult.UNCHANGED: LimitVerdict.KEEP}
    plain: dict[str, Any] = {
        "cluster": CLUSTER, "entity": entity, "decision_id": None, "sequence": None, "factor": 0.25, "attempt": 1,
        "verdict": verdicts.get(outcome, LimitVerdict.SET), "reason": LimitReason.DECIDED, "outcome": outcome,
        "rate_bytes_per_second": rate, "previous_bytes_per_second": rate,
    }  # fmt: skip
    return QuotaApplication.model_validate({**plain, **more})


def applied(rate: int = SLOW, entity: str = ANY) -> QuotaApplication:
    return quota(ReportResult.APPLIED, rate, entity)


def restored() -> QuotaApplication:
    return quota(ReportResult.APPLIED, None, verdict=LimitVerdict.RESTORE, factor=1.0)


def failed(entity: str | None = None, rate: int | None = None) -> QuotaApplication:
    return quota(ReportResult.FAILED, rate, entity, detail="no answer in time")


def book(*reports: tuple[float, Any], policy: str = "throttle") -> EffectBook:
    folded = EffectBook()
    for seconds, event in reports:
        if (effect := event.effect()) is not None:
            folded.fold(Report(policy, CLUSTER, event.subject(), at(seconds), effect))
    return folded


def decided() -> ThrottleFactor:
    counts = {"volumes": VolumeCounts(counted=1, stale=0, departed=0), "brokers": BROKERS}
    return decision(
        ThrottleFactor, cluster=CLUSTER, subject=CLUSTER, factor=0.25, verdict="lower", reason="hard_limit", **counts
    )


def in_force(
    *reports: tuple[float, Any], decisions: tuple[Decision, ...] = (), pause: Standing | None = None
) -> InForce:
    effects = book(*reports).effects("throttle", CLUSTER)
    found = judge_in_force("throttle", CLUSTER, decisions or (decided(),), effects, pause, at(100))
    assert found is not None
    return found


def test_where_no_actuator_is_configured_the_sentence_names_what_would_make_one() -> None:
    found = judge_in_force("throttle", CLUSTER, (decided(),), (), None, at(100), "`quotas`")
    assert found is not None
    remedy = "nothing is set: no actuator is configured, for which the cluster needs `quotas`"
    assert found.sentence == f"wanted: factor 0.25; {remedy}"


def paused(keeps: bool | None = True, by: str | None = "alice@bastion") -> Standing:
    issuer = Issuer("throttle", CLUSTER, Mode.ACTIVE, "cafe")
    return Standing(
        **issuer.header(f"throttle/{CLUSTER}", 1, NOON), verdict=StandingVerdict.STANDS,
        reason=StandingReason.ONLY_WATCHED, explanation="", valid_until=at(180), quiet_until=at(3600), paused_by=by,
        pause_reason=None if by is None else "disks", pause_keeps=keeps,
    )  # fmt: skip


SET = f"set: 250 kB/s a broker for {ANY} since 2026-11-21 12:00:00 UTC by the quota actuator"
DOWN = "FAILING since 2026-11-21 12:00:10 UTC"


AGAIN = quota(ReportResult.UNCHANGED, SLOW)
SENTENCES: dict[str, tuple[list[tuple[float, Any]], str]] = {
    "no report": ([], "nothing is set yet: no process that acts (`headgate act` or `run`) has reported"),
    "set": ([(0, applied())], SET),
    "found so later": ([(0, applied()), (50, AGAIN)], SET),
    "another value was found there": ([(0, applied(STOP)), (50, AGAIN)], SET.replace("12:00:00", "12:00:50")),
    "restored": (
        [(0, applied()), (5, restored())],
        f"set: nothing of Headgate's (no quota for {ANY} since 2026-11-21 12:00:05 UTC by the quota actuator)",
    ),
    "not read since the first failure": (
        [(0, applied()), (10, failed()), (20, failed())],
        f"{SET}; {DOWN}: the whole cluster (no answer in time)",
    ),
    "read again": ([(0, applied()), (10, failed()), (30, AGAIN)], SET),
    "a lower rate cannot be set": (
        [(0, applied()), (10, failed(ANY, STOP))],
        f"{SET}; {DOWN}: 65.5 kB/s a broker for {ANY} (no answer in time)",
    ),
    "different rates cannot be set": (
        [(0, applied()), (10, failed(ANY, STOP)), (0, applied(SLOW, ALICE)), (10, failed(ALICE, 2 * STOP))],
        f"{SET.replace(ANY, f'{ANY}, {ALICE}')}; {DOWN}: {ANY}, {ALICE} (no answer in time)",
    ),
    "refused": (
        [(0, quota(ReportResult.REFUSED, SLOW, reason=LimitReason.QUOTA_CALLBACK))],
        f"set: nothing; not set: 250 kB/s a broker for {ANY} (A broker has a "
        "`client.quota.callback.class`: it heeds no quotas)",
    ),
    "many entities of one rate are one clause": (
        [(0, applied(entity=f"user={name}")) for name in "abcde"],
        SET.replace(ANY, "user=a, user=b, user=c and 2 more"),
    ),
}


@for_each(("reports", "sentence"), SENTENCES.values(), ids=SENTENCES)
def test_the_sentence_says_what_is_set(reports: list[tuple[float, Any]], sentence: str) -> None:
    assert in_force(*reports).sentence == f"wanted: factor 0.25; {sentence}"


def test_who_paused_it_until_when_and_why_comes_first() -> None:
    until = "PAUSED until 2026-11-21 13:00:00 UTC by"
    kept = in_force((0, applied()), pause=paused())
    assert kept.sentence == f"{until} alice@bastion (disks); wanted: factor 0.25; {SET}"
    assert kept.describe_set() == f"{until} alice@bastion (disks); {SET}"
    taken_back = in_force((0, restored()), pause=paused(keeps=False))
    assert taken_back.sentence.startswith(f"{until} alice@bastion (disks), what was set is taken back; wanted")


def test_the_brokers_that_show_it_are_counted() -> None:
    effect = ReportedEffect(
        ANY, "the quota actuator", ReportResult.APPLIED, "1 MB/s", confirmed_brokers=2, broker_count=3
    )
    folded = EffectBook()
    folded.fold(Report("throttle", CLUSTER, f"{CLUSTER}/{ANY}", NOON, effect))
    found = judge_in_force("throttle", CLUSTER, (decided(),), folded.effects("throttle", CLUSTER), None, NOON)
    assert found is not None
    assert found.sentence.endswith("by the quota actuator, confirmed on 2 of 3 brokers")


def test_shadow_mode_is_named() -> None:
    shadow = decided().model_copy(update={"mode": Mode.SHADOW})
    assert in_force(decisions=(shadow,)).sentence == "wanted: factor 0.25; set: nothing, in shadow mode"


def test_a_policy_without_orders_reports_and_pause_has_no_line() -> None:
    assert judge_in_force("throttle", CLUSTER, (), (), None, NOON) is None


@given(st.permutations(range(5)))
def test_the_order_of_the_reports_does_not_matter(order: list[int]) -> None:
    reports = [(0, applied()), (1, applied(entity=ALICE)), (5, quota(ReportResult.UNCHANGED, SLOW)),
               (10, failed(ALICE, STOP)), (20, applied(STOP, ALICE))]  # fmt: skip
    expected = book(*reports).effects("throttle", CLUSTER)
    assert book(*(reports[number] for number in order)).effects("throttle", CLUSTER) == expected
    rates = {effect.target: effect.value for effect in expected}
    assert rates == {ALICE: "65.5 kB/s a broker", ANY: "250 kB/s a broker"}


def quarantined(outcome: QuarantineOutcome, found: str | None = None) -> BookieQuarantined:
    return BookieQuarantined(
        cluster=CLUSTER, bookie="bk1:3181", group="quarantine", found_group=found, decision_id="d", sequence=1,
        outcome=outcome, attempt=1,
    )  # fmt: skip


def unloaded(outcome: UnloadOutcome) -> BundleUnloaded:
    return BundleUnloaded(
        cluster=CLUSTER, member="b1:8080", bundle="t/ns/0x0_0x1", decision_id="d", sequence=1, outcome=outcome,
        attempt=1,
    )  # fmt: skip


@for_each(
    ("event", "effect"),
    [
        (quarantined(QuarantineOutcome.DONE), (ReportResult.APPLIED, "group quarantine", True)),
        (quarantined(QuarantineOutcome.ALREADY_ASSIGNED, "a"), (ReportResult.UNCHANGED, "group a", False)),
        (quarantined(QuarantineOutcome.TOO_MANY), (ReportResult.REFUSED, "group quarantine", True)),
        (quarantined(QuarantineOutcome.FAILED), (ReportResult.FAILED, "group quarantine", True)),
        (quarantined(QuarantineOutcome.SUPERSEDED), None),
        (unloaded(UnloadOutcome.DONE), (ReportResult.APPLIED, "unloaded", False)),
        (unloaded(UnloadOutcome.CONTESTED), (ReportResult.REFUSED, "unloaded", False)),
        (unloaded(UnloadOutcome.EXPIRED), None),
    ],
)
def test_each_actuators_reports_have_the_same_terms(event: Any, effect: tuple[ReportResult, str, bool] | None) -> None:
    found = event.effect()
    assert (None if found is None else (found.result, found.value, found.is_held)) == effect


@pytest.mark.parametrize(
    ("outcome", "verdict", "reason", "factor", "is_held"),
    [
        ("applied", "set", "decided", 0.5, True),
        ("applied", "restore", "decided", 1.0, False),
        ("unchanged", "keep", "decided", 0.5, True),
        ("unchanged", "keep", "decided", 1.0, False),
        ("unchanged", "keep", "tighter", 0.5, False),
        ("failed", "set", "decided", 0.5, False),
        ("refused", "refuse", "no_base", 0.5, False),
    ],
)
def test_only_a_limit_that_is_set_below_factor_1_is_held(
    outcome: str, verdict: str, reason: str, factor: float, is_held: bool
) -> None:
    rates = {"rate_bytes_per_second": 9, "previous_bytes_per_second": 9, "decision_id": None, "sequence": None}
    block = {"outcome": outcome, "verdict": verdict, "reason": reason, "factor": factor, "attempt": 1, **rates}
    limits = (
        QuotaApplication.model_validate({"cluster": CLUSTER, "entity": ANY, **block}),
        PublishApplication.model_validate({"cluster": CLUSTER, "target": "t/ns", "by": "namespace", **block}),
    )
    effects = [each.effect() for each in limits]
    assert [effect is not None and effect.is_held for effect in effects] == [is_held, is_held]


def test_only_a_refusal_is_explained_by_its_outcome() -> None:
    outcomes = (QuarantineOutcome.DONE, QuarantineOutcome.FAILED, QuarantineOutcome.TOO_MANY)
    effects = [quarantined(outcome).effect() for outcome in outcomes]
    assert [effect is not None and effect.detail is not None for effect in effects] == [False, False, True]


def test_what_concerns_a_subject_that_needs_nothing_any_more_is_left_out() -> None:
    done = quarantined(QuarantineOutcome.DONE)
    lifted = decided().model_copy(update={"subject": done.subject()})
    effects = book((0, done), policy="isolation").effects("isolation", CLUSTER)
    assert judge_in_force("isolation", CLUSTER, (), effects, None, NOON) is not None

    class Lifted(ThrottleFactor):
        def wanted(self) -> None:  # type: ignore[override]
            return None

    nothing = Lifted.model_validate(lifted.model_dump())
    assert judge_in_force("isolation", CLUSTER, (nothing,), effects, None, NOON) is None
