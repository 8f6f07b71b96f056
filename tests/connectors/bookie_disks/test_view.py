"""The metrics show the factors as they were decided, and the disks behind them."""

import pytest

from connectors import views
from connectors.bookie_disks.view import BookieDisksDetail, BookieDisksView
from policies.bookie_disks.decisions import BookieThrottle
from policies.units import to_millis
from tests.policies.bookie_disks.scenario import Run, all_disks, disks, settings
from tests.policies.cases_of_bookies import affinity, racks
from tests.policies.virtual_run import at

GROUPS = {"g1": "b1 b2", "g2": "b3 b4"}


def test_factors_disks_and_the_bookie_that_decides_are_samples() -> None:
    seen = [racks(0, GROUPS), affinity(0, {"a/b": "g1"}), *all_disks(0, b1=50, b2=16, b3=60, b4=70)]
    run, view = Run(settings()).see(*seen), BookieDisksView(settings())
    view.observe(seen)
    decided = {"c1": [each for each in run.published if isinstance(each, BookieThrottle)]}
    now = {(s.family.name, s.labels): s.value for s in view.samples(to_millis(at(1)), decided)}
    assert now["headgate_bookie_throttle_factor", ("c1", "g1")] == 0.5
    assert now["headgate_bookie_throttle_factor", ("c1", "default")] == 1.0
    assert now["headgate_throttling_bookie", ("c1", "g1", "b2", "/l", "soft_limit")] == 1.0
    assert now["headgate_placement_group_namespaces", ("c1", "g1")] == 1
    assert now["headgate_bookie_dir_usable_bytes", ("c1", "b2", "/l")] == 16 * 10**9
    assert now["headgate_bookie_read_only", ("c1", "b1")] == 0.0

    later = {(s.family.name, s.labels): s.value for s in view.samples(to_millis(at(1000)), decided)}
    assert later["headgate_bookie_throttle_factor", ("c1", "g1")] == 0.5


def test_the_disks_of_so_many_bookies_are_kept_and_of_each_those_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "MOST_SERVERS", 2)
    view = BookieDisksView(settings())
    for second, name in enumerate(("/a", "/b")):
        view.observe([disks(second, "b1", {name: 50})])
    view.observe(all_disks(10, b2=50, b3=50))
    monkeypatch.setattr(views, "MOST_DISKS", 2)
    view.observe([disks(10.5, "b1", {"/b": 50, "/c": 50})])
    shown = {
        s.labels for s in view.samples(to_millis(at(11)), {}) if s.family.name == "headgate_bookie_dir_usable_bytes"
    }
    assert shown == {("c1", "b1", "/b"), ("c1", "b2", "/l")}


def test_the_page_explains_the_slowest_group_and_not_the_one_that_was_decided_last() -> None:
    run = Run(settings()).see(racks(0, GROUPS), affinity(0, {"a/b": "g1"}), *all_disks(0, b1=50, b2=12, b3=60, b4=70))
    decided = {d.group: d for d in run.published if isinstance(d, BookieThrottle)}
    later = decided["default"].model_copy(update={"decided_at": at(5)})
    found = {"c1": [decided["g1"], later]}
    detail = dict(BookieDisksView(settings()).details(to_millis(at(5)), found))["c1"]
    assert isinstance(detail, BookieDisksDetail)
    assert (detail.groups[0].group, detail.groups[0].factor) == ("g1", 0.0)
    assert detail.sentence == decided["g1"].explanation


def test_a_group_that_ended_is_shown_no_more() -> None:
    run = Run(settings()).see(racks(0, GROUPS), affinity(0, {"a/b": "g1"}), *all_disks(0, b1=50, b2=16))
    run.see(affinity(10, {})).see(affinity(20, {}))
    last = {each.group: each for each in run.published if isinstance(each, BookieThrottle)}
    samples = BookieDisksView(settings()).samples(0, {"c1": list(last.values())})
    assert {s.labels for s in samples if s.family.name == "headgate_bookie_throttle_factor"} == {("c1", "default")}
