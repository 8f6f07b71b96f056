"""The alerts: each begins at its limit, and ends by a margin."""

from typing import Any

import pytest

from policies.bookie_disks.readings import BookieThresholds
from tests.policies.bookie_disks.scenario import QUIET, Run, all_disks, disks, failed, settings
from tests.policies.cases_of_bookies import affinity, racks, registered

WIDE = {f"w{n}": 90 for n in range(3)}
"""Enough other bookies, so that no group is at risk."""


LIMITS = [
    ("bookie-disk-below-soft-limit", "b1/l", "warning"), ("bookie-disk-below-hard-limit", "b1/l", "critical"),
    ("compaction-suspended", "b1/l", "critical"),
]  # fmt: skip


@pytest.mark.parametrize(("free", "count"), [(50, 0), (20, 1), (12, 2), (10, 3)])
def test_a_dir_at_a_limit_has_its_alerts(free: int, count: int) -> None:
    run = Run(settings(QUIET)).see(disks(0, "b1", free), *all_disks(0, **WIDE))
    assert run.firing() == {*LIMITS[:count]}


def test_without_thresholds_no_claim_is_made_about_compaction() -> None:
    run = Run(settings(QUIET)).see(disks(0, "b1", 5, thresholds=None), *all_disks(0, **WIDE))
    assert "compaction-suspended" not in {alert for alert, _, _ in run.firing()}


def test_an_unread_bookie_is_named_with_the_outcome() -> None:
    run = Run(settings(heartbeat="1d")).see(registered(0, "b1 w0 w1 w2"), *all_disks(0, **WIDE), failed(0, "b1"))
    run.see(*all_disks(250, **WIDE)).until(301)
    assert run.firing() == {("bookie-disks-unread", "b1", "warning")}
    assert run.alerts[-1].reason == "unsupported"


@pytest.mark.parametrize(
    ("free", "reason", "words"),
    [
        pytest.param([{}], "read_only", "is read-only", id="its disks are not read"),
        pytest.param([50, 50], "by_hand", "it was made read-only by hand; `curl -X PUT", id="by hand"),
        pytest.param([{"/l": 50, "/m": None}], "by_hand", "no ledger dir is full", id="a dir that was never readable"),
        pytest.param([4, 0], "full", "a ledger dir is full, beyond its read-only threshold; give it space", id="full"),
        pytest.param([{"/l": 4, "/m": 50}, {"/m": 50}], "kept", "room again", id="the full dir left"),
        pytest.param([5, 30], "kept", "room again, and it stayed read-only; `curl -X PUT", id="kept"),
    ],
)
def test_a_read_only_bookie_has_a_cause_and_its_remedy(free: list[Any], reason: str, words: str) -> None:
    run = Run(settings(QUIET)).see(*all_disks(0, **WIDE))
    for second, each in enumerate(free, 1):
        run.see(disks(10 * second, "b1", each, read_only=True)).until(10 * second + 70)
    alert = [a for a in run.alerts if a.alert == "bookie-read-only"][-1]
    assert (alert.reason, words in alert.summary) == (reason, True), alert.summary


@pytest.mark.parametrize(
    "thresholds", [None, BookieThresholds(), BookieThresholds(read_only=0.95), BookieThresholds(major_compaction=0.9)]
)
def test_thresholds_that_are_not_known_are_reported(thresholds: BookieThresholds | None) -> None:
    run = Run(settings(QUIET)).see(disks(0, "b1", 50, thresholds=thresholds), *all_disks(0, **WIDE))
    assert run.firing() == {("bookie-thresholds-unknown", "b1", "warning")}
    assert run.see(disks(10, "b1", 50)).firing() == set()


def test_a_bookie_that_its_registration_shows_as_read_only_was_never_full() -> None:
    run = Run(settings(QUIET)).see(*all_disks(0, b1=50, **WIDE), registered(1, "w0 w1 w2", read_only="b1")).until(70)
    assert [a.reason for a in run.alerts if a.alert == "bookie-read-only"] == ["by_hand"]


@pytest.mark.parametrize(("second", "is_read_only"), [(9, True), (10, False)])
def test_disks_that_are_not_older_than_the_registrations_show_the_mode(second: int, is_read_only: bool) -> None:
    run = Run(settings(QUIET)).see(*all_disks(0, **WIDE)).see(registered(10, "w0 w1 w2", read_only="b1"))
    run.see(disks(second, "b1", 50)).until(100)
    assert ("bookie-read-only" in {alert for alert, _, _ in run.firing()}) is is_read_only


def test_the_dirs_of_a_bookie_that_does_not_answer_are_not_named_too() -> None:
    run = Run(settings(heartbeat="1d")).see(*all_disks(0, b1=50, **WIDE)).see(*all_disks(290, **WIDE)).until(301)
    assert run.firing() == {("bookie-disks-unread", "b1", "warning")}


def test_dirs_are_compared_as_paths() -> None:
    run = Run(settings(QUIET)).see(disks(0, "b1", {"/l/": 10.0}), *all_disks(0, **WIDE))
    run.see(disks(10, "b1", {"//l": 50.0})).until(100)
    assert run.firing() == set()


@pytest.mark.parametrize(
    ("free", "severity"),
    [((50, 50, 50), None), ((50, 50, 19), "warning"), ((50, 19, 19), "critical"), ((50, 50), "warning")],
)
def test_an_ensemble_without_a_spare_bookie_is_at_risk(free: tuple[int, ...], severity: str | None) -> None:
    run = Run(settings(QUIET)).see(*(disks(0, f"b{n}", each) for n, each in enumerate(free)))
    found = {severity for alert, _, severity in run.firing() if alert == "ensemble-at-risk"}
    assert found == ({severity} if severity else set())


def test_a_saw_tooth_of_the_spare_bookie_is_one_alert() -> None:
    run = Run(settings(QUIET)).see(*all_disks(0, b1=50, b2=50, b3=50))
    for second, free in enumerate([20, 21, 20, 21.5, 20], 1):
        run.see(disks(10 * second, "b3", free))
    assert [a.status.value for a in run.alerts if a.alert == "ensemble-at-risk"] == ["firing"]
    assert run.see(disks(90, "b3", 50, read_only=True)).firing() >= {("ensemble-at-risk", "default", "warning")}
    assert run.see(disks(100, "b3", 22.1)).firing() == set()


@pytest.mark.parametrize(("free", "words"), [((50, 19), "1 has"), ((19, 19), "none have"), ((50, 50), "2 have")])
def test_the_sentence_says_whether_publishing_is_slowed_already(free: tuple[int, ...], words: str) -> None:
    summary = Run(settings(QUIET)).see(*(disks(0, f"b{n}", each) for n, each in enumerate(free))).alerts[-1].summary
    assert f"{words} room above the soft limit, and a ledger needs 2 bookies: " in summary
    assert summary.endswith("one more full bookie slows or stops publishing") is (free == (50, 50))


def test_a_spare_bookie_within_the_margin_is_not_said_to_be_missing() -> None:
    run = Run(settings(QUIET, alert_refresh="1s")).see(*all_disks(0, b1=50, b2=50, b3=20)).see(disks(10, "b3", 21))
    assert run.alerts[-1].summary.endswith(
        ", 3 have room above the soft limit, and a ledger needs 2 bookies: 2 of them are above it by 10%"
    )


def test_at_the_start_no_ensemble_is_at_risk_while_first_readings_are_awaited() -> None:
    """Which bookie is read first, and in which batch, is chance."""
    run = Run(settings({"heartbeat": "1d"})).see(registered(0, "b1 b2 b3"), disks(1, "b1", 50)).see(disks(2, "b2", 50))
    assert run.alerts == []
    assert run.see(failed(3, "b3")).firing() == {("ensemble-at-risk", "default", "warning")}, "tried, and not read"
    assert run.see(disks(13, "b3", 50)).firing() == set()
    late = Run(settings({"heartbeat": "1d"})).see(registered(0, "b1 b2 b3"), disks(1, "b1", 50)).until(299)
    assert late.alerts == []
    assert ("ensemble-at-risk", "default", "critical") in late.until(301).firing()


def test_a_group_without_any_bookie_is_at_risk() -> None:
    run = Run(settings(QUIET)).see(racks(0, {"g1": "w0"}), affinity(0, {"a/b": "nobody"}), *all_disks(0, **WIDE))
    assert run.firing() == {("ensemble-at-risk", "nobody", "critical")}
    run.see(registered(10, "")).see(registered(20, ""))
    assert {("ensemble-at-risk", "default", "critical")} <= run.firing()


def test_a_bookie_that_leaves_takes_its_alerts_along() -> None:
    run = Run(settings(QUIET)).see(*all_disks(0, b1=5, **WIDE))
    run.see(registered(10, "w0 w1 w2")).see(registered(20, "w0 w1 w2"))
    assert run.firing() == set()
