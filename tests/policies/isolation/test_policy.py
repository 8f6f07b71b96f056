"""What is published of namespaces and quarantines, when, and under which number."""

from itertools import pairwise

from policies.decisions import Mode
from policies.isolation.decisions import QUARANTINE_GROUP
from policies.observations import Outcome
from policies.units import to_millis
from tests.policies.isolation.scenario import (
    BASE,
    GROUPS,
    LONG,
    NAMESPACES,
    ON,
    Run,
    affinity,
    at,
    bookies,
    everything,
    joined,
    racks,
)


def test_nothing_is_decided_before_all_three_were_read() -> None:
    run = Run(LONG).see(bookies(0, "bk1 bk2")).see(affinity(1, {"acme/a": "default"})).until(60)
    assert run.published == []
    run.see(racks(61, GROUPS))
    assert run.placement("acme/a").verdict == "isolated"


def test_a_failed_reading_keeps_the_last_one() -> None:
    run = Run().see(*everything(0, "bk1 bk2", GROUPS, {"acme/a": "default"}))
    run.see(bookies(10, "", outcome=Outcome.TIMEOUT)).see(racks(20, None, outcome=Outcome.UNREACHABLE))
    run.see(affinity(30, {}, outcome=Outcome.ERROR)).until(299)
    assert len(run.placements()) == 1
    assert ("bookies-unread", "c1") not in run.firing()


def test_an_older_reading_changes_nothing() -> None:
    run = Run().see(*everything(10, "bk1 bk2", GROUPS, {"acme/a": "default"}))
    before = run.state
    run.see(bookies(5, "bk1"), racks(5, {}), affinity(5, {}), seconds=11)
    assert run.state == before


def test_nothing_new_is_decided_on_what_is_unread() -> None:
    run = Run().see(*everything(0, "bk1 bk2", GROUPS, {"acme/a": "default"}))
    run.see(racks(200, GROUPS), affinity(201, {"acme/a": "default"})).until(310)
    count = len(run.placements())
    run.see(affinity(320, {"acme/a": "shared", "acme/c": "shared"}))
    assert len(run.placements()) == count
    run.see(bookies(330, "bk1 bk2"))
    assert run.placement("acme/c").verdict == "infeasible"


def test_it_is_repeated_before_it_runs_out_until_it_is_carried_out() -> None:
    run = joined(validity="100s")
    for second in range(20, 200, 20):
        run.see(*everything(second, f"{BASE} bk11", GROUPS, NAMESPACES))
    assert [v[0] for v in run.verdicts()] == [10, 60, 110, 160]
    said = run.quarantines()
    assert all(later.decided_at < before.valid_until for before, later in pairwise(said))
    assert [d.sequence == to_millis(d.decided_at) for d in said] == [True, False, False, False], "the first is the time"
    run.see(racks(200, GROUPS | {QUARANTINE_GROUP: "bk11"})).see(bookies(205, f"{BASE} bk11")).until(280)
    assert len(run.verdicts()) == 4


def test_what_is_withheld_is_not_repeated() -> None:
    run = joined(validity="100s", max_quarantined=0)
    for second in range(20, 200, 20):
        run.see(*everything(second, f"{BASE} bk11", GROUPS, NAMESPACES))
    assert [v[:3] for v in run.verdicts()] == [(10, "bk11", "withhold")]


def test_who_needs_what_is_withheld_is_named_as_it_is_now() -> None:
    run = Run(ON, LONG, grace="0s").see(*everything(0, "bk1 bk6 bk7 bk11", GROUPS, {"acme/a": "default"}))
    run.see(affinity(10, {"acme/b": "default"})).see(affinity(20, {"acme/b": "default", "acme/c": "shared"}))
    assert [(v[0], v[2], v[3]) for v in run.verdicts()] == [
        (0, "withhold", "would_be_infeasible"),
        (20, "withhold", "would_be_infeasible"),
    ], "that acme/a is gone, the only namespace, was confirmed by the second reading"
    assert "without it acme/b could not place data" in run.quarantines()[-1].explanation


def test_a_placement_is_published_again_only_when_it_changes() -> None:
    run = Run().see(*everything(0, "bk1 bk2 bk6", GROUPS, {"acme/a": "default", "acme/b": "shared"}))
    assert [p.namespace for p in run.placements()] == ["acme/a", "acme/b"]
    run.see(*everything(10, "bk1 bk2 bk6", GROUPS, {"acme/b": "shared", "acme/a": "default"})).until(200)
    assert len(run.placements()) == 2
    run.see(bookies(201, "bk1 bk2 bk6 bk7"))
    assert [p.namespace for p in run.placements()][2:] == ["acme/b"]
    assert run.placement("acme/b").verdict == "isolated"


def test_a_namespace_that_leaves_is_named_a_last_time_and_forgotten() -> None:
    run = Run().see(*everything(0, "bk1 bk6", GROUPS, {"acme/a": "default", "acme/b": "shared"}))
    run.twice(10, lambda second: affinity(second, {"acme/b": "shared"}))
    last = run.placement("acme/a")
    assert (last.verdict, last.reason, last.decided_at) == ("unconstrained", "no_affinity", at(20))
    run.see(bookies(30, "bk1 bk2"))
    assert run.placement("acme/a") == last
    assert ("placement-infeasible", "c1/acme/a") not in run.firing()


def test_a_namespace_that_changes_its_groups_without_effect_is_not_news() -> None:
    run = Run().see(*everything(0, "bk1 bk2", GROUPS, {"acme/a": "default"}))
    run.see(affinity(10, {"acme/a": "default/nowhere"}))
    assert len(run.placements()) == 1


def test_other_settings_are_published() -> None:
    run = Run().see(*everything(0, "bk1 bk2", GROUPS, {"acme/a": "default"}))
    run.with_settings(mode="shadow").see(bookies(10, "bk1 bk2"))
    assert run.placement("acme/a").mode is Mode.SHADOW
    run.with_settings(mode="shadow", rules="strict").see(bookies(20, "bk1 bk2"))
    assert run.placement("acme/a").rules == "strict"
    assert len(run.placements()) == 3


def test_placements_and_orders_never_run_out_while_readings_count_for_days() -> None:
    settings = {"validity": "7d", "alert_repeat": "7d", "quarantine": "on", "grace": "0s"}
    run = Run(**settings).see(*everything(0, f"{BASE} bk11", GROUPS, {"acme/a": "default"})).until(3 * 86_400)
    for said in (run.placements("acme/a"), run.quarantines("bk11")):
        ends = [each.expires_at or at(0) for each in said]
        assert all(end > later.decided_at for end, later in zip(ends, said[1:], strict=False))
        assert ends[-1] > at(3 * 86_400)


def test_nothing_in_force_runs_out_when_readings_are_to_count_for_longer() -> None:
    block = {"quarantine": "on", "grace": "0s"}
    run = Run(block, validity="60s", alert_repeat="1m").see(
        *everything(0, f"{BASE} bk11", GROUPS, {"acme/a": "default"})
    )
    run.with_settings(block, validity="10m", alert_repeat="4h")
    for second in range(30, 3600, 30):
        run.see(*everything(second, f"{BASE} bk11", GROUPS, {"acme/a": "default"}))
    overdue = [alert for alert in run.alerts if alert.alert == "unassigned-bookie"]
    for said in (run.placements("acme/a"), run.quarantines("bk11"), overdue):
        assert len(said) > 1
        assert all(later.decided_at < (earlier.expires_at or at(0)) for earlier, later in pairwise(said))
