"""Which bookies are believed to be gone, and when."""

import pytest

from tests.policies.isolation.scenario import (
    GROUPS,
    LONG,
    Run,
    bookies,
    everything,
    placement_of,
)


def test_all_bookies_gone_in_one_reading_is_a_bad_reading() -> None:
    run = Run(LONG).see(*everything(0, "bk1 bk2", GROUPS, {"acme/a": "default"}))
    run.see(bookies(10, "", known="bk1 bk2")).until(100)
    assert run.placement("acme/a").verdict == "isolated"


@pytest.mark.parametrize(
    ("second", "verdict"), [(19, "isolated"), (20, "infeasible")], ids=["too soon", "confirm_after later"]
)
def test_that_all_bookies_are_gone_needs_a_second_reading(second: float, verdict: str) -> None:
    run = Run().see(*everything(0, "bk1 bk2", GROUPS, {"acme/a": "default"}))
    run.see(bookies(10, "")).see(bookies(second, ""))
    assert run.placement("acme/a").verdict == verdict


def test_a_bookie_seen_in_between_refutes_it() -> None:
    run = Run().see(*everything(0, "bk1 bk2", GROUPS, {"acme/a": "default"}))
    run.see(bookies(10, "")).see(bookies(15, "bk1 bk2")).see(bookies(21, ""))
    assert run.placement("acme/a").verdict == "isolated"


def test_the_same_reading_twice_does_not_confirm_itself() -> None:
    run = Run().see(*everything(0, "bk1 bk2", GROUPS, {"acme/a": "default"}))
    run.see(bookies(10, "", id="x")).see(bookies(30, "", id="x"))
    assert run.placement("acme/a").verdict == "isolated"


def test_all_read_only_at_once_is_believed() -> None:
    run = Run().see(*everything(0, "bk1 bk2", GROUPS, {"acme/a": "default"})).see(bookies(10, "", "bk1 bk2"))
    assert run.placement("acme/a").verdict == "infeasible"


def test_a_cluster_without_bookies_is_believed_at_first() -> None:
    assert placement_of("", "default").verdict == "infeasible"
