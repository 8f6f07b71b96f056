"""The factor of all bookies: the E-th best decides; it falls at once, and rises with patience."""

from typing import Any

import pytest

from policies.bookie_disks.decisions import BookieCounts
from policies.observations import Observation
from policies.pauses import PolicyPause
from policies.units import to_millis
from tests.cases import for_each
from tests.policies.bookie_disks.scenario import NO_PATIENCE, QUIET, Run, all_disks, disks, failed, settings
from tests.policies.cases_of_bookies import affinity, racks, registered
from tests.policies.virtual_run import at


@for_each(
    ("ensemble", "free", "factor", "reason"),
    [
        pytest.param(3, [1, 50, 50, 50, 50], 1.0, "above_limits", id="one full bookie of five slows nobody down"),
        pytest.param(3, [1, 1, 50, 50, 50], 1.0, "above_limits", id="nor do two of five"),
        pytest.param(3, [1, 1, 16, 50, 50], 0.5, "soft_limit", id="the third best of five decides"),
        pytest.param(3, [1, 14, 16, 50], 0.25, "soft_limit", id="the third best of four decides"),
        pytest.param(2, [50, 12], 0.0, "hard_limit", id="at the hard limit"),
        pytest.param(2, [50, 20], 1.0, "soft_limit", id="exactly at the soft limit it is reached, and allows 1.0"),
        pytest.param(2, [50], 0.0, "too_few_bookies", id="fewer than a ledger needs"),
        pytest.param(1, [50, 1], 1.0, "above_limits", id="an ensemble of one needs one bookie"),
    ],
)
def test_the_bookie_of_the_rank_of_the_ensemble_decides(
    ensemble: int, free: list[int], factor: float, reason: str
) -> None:
    run = Run(settings(QUIET, ensemble=ensemble))
    run.see(*(disks(0, f"b{number}", gigabytes) for number, gigabytes in enumerate(free)))
    decided = run.last()
    if reason == "soft_limit" and factor == 1.0:
        reason = "above_limits"  # a factor of 1.0 limits nobody
    assert (round(decided.factor, 6), decided.reason.value, decided.ensemble) == (factor, reason, ensemble)


def test_the_sentence_has_the_numbers_that_decided() -> None:
    run = Run(settings(QUIET, ensemble=3)).see(*all_disks(0, b1=50, b2=60, b3=16, b4=1))
    assert run.last().explanation == (
        "Publishing to group default of c1 should be slowed to 0.50: bookie b3 /l has 16.0 GB free of 100 GB, and with "
        "ensembles of 3 the third best of 4 bookies decides."
    )


def test_the_bookies_are_counted_by_what_is_known_of_them() -> None:
    run = Run(settings(heartbeat="1d")).see(registered(0, "b1 b2 b3 b4"), *all_disks(0, b1=50, b2=50, b3=50))
    run.see(disks(300, "b1", 16), disks(300, "b2", 50, read_only=True))
    assert run.last().bookies == BookieCounts(counted=2, stale=1, unread=1, read_only=1)


@pytest.mark.parametrize("free", [50, {"/l": None}], ids=["readable", "without a readable dir"])
def test_a_read_only_bookie_counts_as_full(free: int | dict[str, None]) -> None:
    run = Run(settings(QUIET)).see(disks(0, "b1", 50), disks(0, "b2", free, read_only=True))
    assert run.verdict() == (0.0, "read_only")
    assert "bookie b2 is read-only" in run.last().explanation


def test_it_falls_at_once_and_rises_after_the_hold_and_clear_of_the_margin() -> None:
    run = Run(settings(QUIET)).see(*all_disks(0, b1=50, b2=50))
    run.see(disks(10, "b2", 11))
    assert run.verdict() == (0.0, "hard_limit")
    run.see(disks(50, "b2", 13))
    assert run.verdict() == (0.0, "recovery_margin")
    run.see(disks(60, "b2", 14))
    assert run.verdict() == (0.25, "soft_limit")
    run.see(disks(70, "b2", 50))
    assert run.verdict() == (0.25, "min_hold")
    assert run.until(91).verdict() == (1.0, "above_limits")


@for_each(
    ("first", "other", "words"),
    [
        pytest.param(90, 90, "best of 1 bookie decides; full in ", id="the dir that is named"),
        pytest.param(25, 25, "best of 1 bookie decides; bookie b1 /a is full in ", id="another dir of the bookie"),
        pytest.param(16, 90, "is held for 1h; bookie b1 /a is full in ", id="a hold names no dir"),
    ],
)
def test_the_sentence_names_the_dir_that_is_full_soon_unless_it_is_about_it(first: int, other: int, words: str) -> None:
    run = Run(settings(QUIET, ensemble=1, anticipate=False, min_hold="1h"))
    for second in range(0, 100, 10):
        run.see(disks(second, "b1", {"/a": 60 - 0.1 * second, "/b": other if second else first}))
    assert words in run.last().explanation


def test_registered_bookies_are_awaited_at_the_start_for_the_validity() -> None:
    run = Run(settings(heartbeat="1d", fallback_factor=0.7)).see(registered(0, "b1 b2"), disks(0, "b1", 50))
    assert run.verdict() == (0.7, "initial")
    run.see(disks(200, "b1", 50)).until(301)
    assert run.verdict() == (0.7, "stale_volume"), "never read is not absent: it counts as the fallback"
    assert run.last().explanation == (
        "Publishing to group default of c1 should be slowed to 0.70: 1 of 2 bookies has been read, and the others "
        "count as 0.70 at most until then."
    )


def test_an_unread_bookie_does_not_hide_that_the_others_are_full() -> None:
    run = Run(settings(QUIET)).see(registered(0, "b1 b2 b3"), *all_disks(0, b1=5, b2=16))
    assert run.verdict() == (0.0, "hard_limit"), "two are known, so unread ones do not count"
    three = Run(settings(QUIET, ensemble=3)).see(*all_disks(0, b1=14, b2=90), failed(0, "b3"))
    three.see(registered(0, "b1 b2 b3"))
    assert three.verdict() == (0.25, "soft_limit"), "all three are needed, so the fullest known one counts"
    assert three.last().explanation.endswith(
        "bookie b1 /l has 14.0 GB free of 100 GB, and a ledger needs it: it takes 3 bookies, and 2 have been read."
    )


def test_a_read_only_bookie_is_not_said_to_be_of_use() -> None:
    run = Run(settings(QUIET, ensemble=4)).see(*all_disks(0, b1=90, b3=90), disks(0, "b2", 90, read_only=True))
    assert run.last().explanation.endswith(": a ledger needs 4 bookies, and 2 can be used.")


def test_the_room_on_a_read_only_bookie_opens_no_gate_that_another_keeps_closed() -> None:
    run = Run(settings(QUIET)).see(*all_disks(0, b1=50, b2=50), disks(0, "b3", 90, read_only=True))
    assert run.see(disks(10, "b2", 11)).verdict()[0] == 0.0
    assert run.see(disks(50, "b2", 13)).verdict() == (0.0, "recovery_margin")
    assert run.see(disks(60, "b2", 14)).verdict() == (0.25, "soft_limit")


def test_a_bookie_that_is_registered_again_must_be_missing_twice_again() -> None:
    run = Run(settings(QUIET)).see(*all_disks(0, b1=50, b2=11))
    for second, writable in enumerate(["b1", "b1 b2", "b1"], 1):
        run.see(registered(5 * second, writable))
    run.see(disks(15, "b2", 11)).see(registered(20, "b1"))  # it was there when its disks were read
    assert [bookie.name for bookie in run.state.cluster.bookies] == ["b1", "b2"]  # type: ignore[union-attr]


@pytest.mark.parametrize("heartbeats", [0, 1, 2])
def test_a_stop_by_silence_ends_by_the_margin_however_often_it_was_repeated(heartbeats: int) -> None:
    run = Run(settings(fallback_factor=0.0, validity="60s", heartbeat="60s"))
    run.see(*all_disks(0, a=50, b=50))
    run.see(*all_disks(70 + 60 * heartbeats, a=13, b=13))
    assert run.verdict() == (0.0, "recovery_margin")


def test_a_full_bookie_that_was_away_opens_the_gate_by_the_margin_only() -> None:
    run = Run(settings(QUIET)).see(*all_disks(0, b1=50, b2=11)).see(registered(5, "b1")).see(registered(10, "b1"))
    assert run.verdict() == (0.0, "too_few_bookies")
    assert run.see(disks(60, "b2", 13)).verdict() == (0.0, "recovery_margin")
    assert run.see(disks(70, "b2", 14)).verdict() == (0.25, "soft_limit")


@pytest.mark.parametrize(
    "others",
    [[registered(1, "b1 b2")], [failed(1, "b2")], [registered(1, "b1 b2"), failed(1, "b2")]],
    ids=["it is registered", "it was tried", "both"],
)
def test_a_bookie_that_is_read_before_others_are_known_stops_nothing_for_long(others: list[Observation]) -> None:
    run = Run(settings(heartbeat="1d", fallback_factor=0.5)).see(disks(0, "b1", 50))
    assert run.verdict() == (0.0, "too_few_bookies")
    assert run.see(*others).verdict() == (0.5, "initial")
    run.see(disks(290, "b1", 50)).until(301)
    assert run.verdict() == (0.5, "stale_volume")


@pytest.mark.parametrize("bookie", ["b1", ""])
def test_without_any_good_reading_the_fallback_applies(bookie: str) -> None:
    run = Run(settings(heartbeat="1d", fallback_factor=0.5)).see(failed(0, bookie))
    assert run.verdict() == (0.5, "initial")
    assert run.until(301).verdict() == (0.5, "no_data")
    assert ("bookie-disks-unread", "c1", "critical") in run.firing()


def test_a_dir_that_was_never_readable_counts_as_the_fallback_after_the_validity() -> None:
    run = Run(settings(NO_PATIENCE, heartbeat="1d", fallback_factor=0.4))
    run.see(*all_disks(0, b1=90), disks(0, "b2", {"/a": 90, "/b": None}))
    assert run.verdict() == (1.0, "above_limits")
    run.see(*all_disks(200, b1=90), disks(200, "b2", {"/a": 90, "/b": None})).until(301)
    assert run.verdict() == (0.4, "stale_volume")
    assert "bookie b2 /b was never readable, and counts as 0.40 until it is read" in run.last().explanation
    assert run.firing() >= {("bookie-disks-unread", "b2/b", "warning")}
    run.see(*all_disks(310, b1=90), disks(310, "b2", {"/a": 90, "/b": 90}))
    assert run.verdict() == (1.0, "above_limits")


def test_a_dir_that_is_no_longer_reported_counts_for_a_while() -> None:
    run = Run(settings(QUIET, NO_PATIENCE, departed_hold="10m"))
    run.see(disks(0, "b1", 50), disks(0, "b2", {"/a": 16, "/b": 60}))
    run.see(disks(10, "b2", {"/b": 60}))
    assert run.verdict() == (0.5, "departed_volume")
    until = "goes on counting as 0.50 until 2026-11-21T08:10:10Z"
    assert f"bookie b2 /a is no longer reported, and {until}" in run.last().explanation
    assert run.until(611).verdict() == (1.0, "above_limits")
    named = ("departed-ledger-dir-forgotten", "b2/a", "warning")
    assert named in run.firing()
    assert named not in run.until(1211).firing()


def test_readings_of_other_policies_alone_decide_nothing() -> None:
    run = Run(settings())
    run.see(registered(0, "b1 b2"), racks(0, {"g": "b1 b2"}), affinity(0, {"a/b": "g"})).until(10_000)
    assert (run.published, run.wake_at) == ([], None)


def test_shadow_mode_and_a_missing_actuator_are_named() -> None:
    full = [disks(0, "b1", 16), disks(0, "b2", 16)]
    shadow = Run(settings(QUIET, mode="shadow")).see(*full).last()
    assert shadow.explanation.endswith("decides; this is shadow mode, nothing is carried out.")
    paused = settings(QUIET).while_quiet(PolicyPause(to_millis(at(9999))))
    assert Run(paused).see(*full).last().explanation.endswith("; the policy is paused, what is set stays as it is.")
    idle = Run(settings(QUIET, has_actuator=False)).see(*full).last()
    assert idle.explanation.endswith("decides; no actuator is set for this cluster.")


def test_two_full_bookies_do_not_alternate() -> None:
    run = Run(settings(QUIET, ensemble=1)).see(*all_disks(0, b1=5, b2=6))
    first: Any = run.last().limiting
    for second in range(1, 6):
        run.see(*all_disks(second, b1=5 + second % 2, b2=6 - second % 2))
    assert [d.limiting.bookie for d in run.decided() if d.limiting] == [first.bookie]
