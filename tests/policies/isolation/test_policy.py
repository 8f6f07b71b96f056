"""Placements: what is published of namespaces, and when."""

from policies.observations import Outcome
from tests.policies.isolation.scenario import GROUPS, LONG, Run, affinity, bookies, everything, racks


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
