"""Sentences from the values that decided."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from policies.bookie_readings import NamespaceAffinity
from policies.isolation.policy import IsolationPolicy
from policies.pauses import PolicyPause
from policies.units import to_millis
from tests.policies.isolation.scenario import (
    BASE,
    CLUSTER,
    GROUPS,
    LONG,
    NAMESPACES,
    ON,
    Run,
    bookies,
    everything,
    joined,
    placement_of,
    to,
)
from tests.policies.virtual_run import at

STRANGERS = " ".join(f"bk{n}" for n in range(100, 112))
PORTS = " ".join(f"bk{n}:1" for n in range(20, 32))


def order(run: Run) -> str:
    return run.until(60).quarantines()[-1].explanation


def alert(name: str, *readings: Any, **settings: Any) -> str:
    """The summary of an alert after these readings."""
    return Run(LONG, settings).feed(readings).latest(name).summary


def paused() -> Run:
    run = Run(LONG, ON)
    run.policy = IsolationPolicy(CLUSTER, run.settings.while_quiet(PolicyPause(to_millis(at(9999)))))
    return run.see(*everything(0, f"{BASE} bk11", GROUPS, NAMESPACES))


TO_BE_PUT = "Bookie bk11 has been in no group for 10s or longer: it should be put into headgate-quarantine"
SENTENCES: Mapping[str, tuple[Callable[[], str], str]] = {
    "an order": (lambda: order(joined()), f"{TO_BE_PUT}."),
    "an order without a grace": (
        lambda: order(joined(grace="0s")), "Bookie bk11 is in no group: it should be put into headgate-quarantine.",
    ),
    "an order in shadow mode": (
        lambda: order(joined(mode="shadow")), f"{TO_BE_PUT}; this is shadow mode, nothing is carried out.",
    ),
    "an order in a pause": (lambda: order(paused()), f"{TO_BE_PUT}; the policy is paused, nothing is carried out."),
    "a bookie that is gone": (
        lambda: joined().until(60).feed([bookies(70, BASE), bookies(80, BASE)]).quarantines()[-1].explanation,
        "Bookie bk11 is no longer registered: no action is needed.",
    ),
    "none is allowed": (
        lambda: order(joined(max_quarantined=0)),
        "Bookie bk11 is in no group, but max_quarantined allows none: an operator must decide.",
    ),
    "one is allowed": (
        lambda: order(joined("bk11 bk12", max_quarantined=1)),
        "Bookie bk12 is in no group, but the 1 bookie that max_quarantined allows is in quarantine or on its way "
        "there: an operator must decide.",
    ),
    "many of which a namespace needs all": (
        lambda: order(
            Run(LONG, ON, max_quarantined=100, grace="0s", ensemble_size=13).see(
                *everything(0, f"bk1 {STRANGERS}", GROUPS, {"acme/a": "default"})
            )
        ).partition(" (")[0],
        "12 bookies are in no group, and an operator must decide: with one fewer of them, acme/a could not place data",
    ),
    "many whose rack entries lack the port": (
        lambda: order(
            Run(LONG, ON, grace="0s").see(
                *everything(0, PORTS, {"g": PORTS.replace(":1", "")}, {})
            )
        ).partition(" (")[0],
        "12 bookies are in no group, and an operator must decide: their rack entries lack the port",
    ),
    "secondary groups alone": (
        lambda: placement_of("bk6 bk7 bk11", to("", "shared")).explanation,
        "acme/a keeps to 2 bookies of its secondary group shared: it names no primary group, and it needs 2 bookies.",
    ),
    "a leak": (
        lambda: placement_of("bk1 bk6 bk11:3181", "default").explanation,
        "acme/a can place data on 1 bookie without a group (bk11:3181): its primary group default has 1 of 2 needed "
        "bookies writable.",
    ),
    "two groups, one bookie": (
        lambda: placement_of("bk1", to("default shared"), ensemble_size=3).explanation,
        "acme/a cannot place its data: it may use 1 bookie of 3 needed, and its primary groups default, shared have 1 "
        "of 3 needed bookies writable.",
    ),
    "an ensemble of one": (
        lambda: placement_of("bk1 bk2", "default", ensemble_size=1).explanation,
        "acme/a keeps to its groups: its primary group default has 2 writable bookies, and 1 is needed.",
    ),
    "too few in the secondary group": (
        lambda: placement_of("bk6", to("", "shared"), ensemble_size=3).explanation,
        "acme/a cannot place its data: it may use 1 bookie of 3 needed, and it names no primary group, and it needs 3 "
        "bookies, and its secondary group shared has 1.",
    ),
    "too few in both groups": (
        lambda: placement_of("bk1 bk6", to("default", "shared"), ensemble_size=3).explanation,
        "acme/a cannot place its data: it may use 2 bookies of 3 needed, and its primary group default has 1 of 3 "
        "needed bookies writable, and its secondary group shared has 1 more.",
    ),
    "groups of brokers": (
        lambda: placement_of(
            "bk1 bk2 bk6", to(), broker_groups={"primary": ["shared"], "secondary": ["default"]}
        ).explanation,
        "acme/a reaches beyond its brokers' primary groups to 2 bookies of its brokers' secondary group default: "
        "it has no affinity, and its brokers' primary group shared has 1 of 2 needed bookies writable.",
    ),
    "secondary groups of brokers": (
        lambda: placement_of("bk1 bk2 bk6", to(), broker_groups={"secondary": ["default"]}).explanation,
        "acme/a keeps to 2 bookies of its brokers' secondary group default: it has no affinity, its brokers name no "
        "primary group, and it needs 2 bookies.",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("tell", "sentence"), SENTENCES.values(), ids=SENTENCES)
def test_sentences(tell: Callable[[], str], sentence: str) -> None:
    assert tell() == sentence


def test_without_a_grace_no_condition_and_no_alert_names_0s() -> None:
    run = joined(grace="0s", member_missing_after="0s").feed(
        (bookies(70, f"{BASE} bk11#2"), bookies(80, "bk1 bk6 bk7"))
    )
    run.see(bookies(95, "bk1 bk6 bk7"))
    assert run.latest("group-member-missing").summary == "bookie bk2 of c1 is in group default, but is not registered"
    assert not [text for text in (d.explanation for d in run.published) if " 0s" in text]


@pytest.mark.parametrize("has_policies", [True, False])
def test_an_ensemble_that_is_only_assumed_is_named_in_the_decision_and_in_the_alert(*, has_policies: bool) -> None:
    """Another namespace's policies are there, so the configuration store is no other one."""
    lone = NamespaceAffinity(primary=("g",), has_policies=has_policies)
    run = Run(LONG).see(*everything(0, "bk1 bk2", {"g": "bk1"}, {"t/a": lone, "t/b": "g"}))
    words = "; its policies were not found, so its ensemble is not known, and 2 is assumed"
    assert (words in run.placement("t/a").explanation) is not has_policies
    assert words not in run.placement("t/b").explanation
    leak = next(each for each in run.alerts if each.alert == "isolation-leak" and each.subject.endswith("t/a"))
    assert (words in leak.summary) is not has_policies
