"""Sentences from the values that decided."""

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
    racks,
    to,
)
from tests.policies.virtual_run import at


@pytest.mark.parametrize(
    ("readings", "sentence"),
    [
        ((), "Bookie bk11 has been in no group for 10s or longer: it should be put into headgate-quarantine."),
        ((bookies(70, BASE), bookies(80, BASE)), "Bookie bk11 is no longer registered: no action is needed."),
    ],
)
def test_sentences(readings: Any, sentence: str) -> None:
    assert joined().until(60).feed(readings).quarantines()[-1].explanation == sentence


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"mode": "shadow"}, "; this is shadow mode, nothing is carried out"),
        ({"has_actuator": False}, "; no actuator is set for this cluster"),
        ({"has_actuator": True}, ""),
        ({}, ""),
    ],
)
def test_who_carries_nothing_out_is_not_said_to(settings: dict[str, Any], why: str) -> None:
    assert joined(**settings).until(60).quarantines()[-1].explanation == (
        f"Bookie bk11 has been in no group for 10s or longer: it should be put into headgate-quarantine{why}."
    )


def test_a_pause_is_not_called_shadow_mode() -> None:
    run = Run(LONG, ON)
    run.policy = IsolationPolicy(CLUSTER, run.settings.while_quiet(PolicyPause(to_millis(at(9999)))))
    run.see(*everything(0, f"{BASE} bk11", GROUPS, NAMESPACES)).until(60)
    assert run.quarantines()[-1].explanation.endswith("; the policy is paused, nothing is carried out.")


@pytest.mark.parametrize(
    ("allowed", "sentence"),
    [
        (0, "Bookie bk11 is in no group, but max_quarantined allows none: an operator must decide."),
        (
            1,
            "Bookie bk12 is in no group, but the 1 bookie that max_quarantined allows is in quarantine or on its way "
            "there: an operator must decide.",
        ),
    ],
)
def test_what_is_withheld_for_its_number_says_how_many_there_may_be(allowed: int, sentence: str) -> None:
    withheld = [
        q for q in joined("bk11 bk12", max_quarantined=allowed).until(60).quarantines() if q.verdict == "withhold"
    ]
    assert withheld[0].explanation == sentence


def test_secondary_groups_alone_are_explained() -> None:
    assert placement_of("bk6 bk7 bk11", to("", "shared")).explanation == (
        "acme/a keeps to 2 bookies of its secondary group shared: it names no primary group, and it needs 2 bookies."
    )


def test_a_leak_is_explained_by_its_numbers() -> None:
    placement = placement_of("bk1 bk6 bk11:3181", "default")
    assert placement.explanation == (
        "acme/a can place data on 1 bookie without a group (bk11:3181): "
        "its primary group default has 1 of 2 needed bookies writable."
    )
    assert placement.candidates == ("bk1", "bk11:3181")
    assert (placement.promised_candidates, placement.promised_feasible) == (("bk1",), False)


@pytest.mark.parametrize(
    ("writable", "said", "size", "sentence"),
    [
        ("bk1", to("default shared"), 3, "its primary groups default, shared have 1 of 3 needed bookies writable"),
        ("bk1 bk2", "default", 1, "its primary group default has 2 writable bookies, and 1 is needed"),
        ("bk6", to("", "shared"), 3, "it names no primary group, and it needs 3 bookies, and its secondary group "
         "shared has 1"),
        ("bk1 bk6", to("default", "shared"), 3, "1 of 3 needed bookies writable, and its secondary group shared has 1 "
         "more"),
    ],
)  # fmt: skip
def test_groups_and_numbers_agree(writable: str, said: Any, size: int, sentence: str) -> None:
    assert sentence in placement_of(writable, said, ensemble_size=size).explanation


def test_without_a_grace_a_bookie_has_not_been_in_no_group_for_0s() -> None:
    said = joined(grace="0s").quarantines()[-1].explanation
    assert said == "Bookie bk11 is in no group: it should be put into headgate-quarantine."


def test_without_a_grace_no_condition_and_no_alert_names_0s() -> None:
    run = joined(grace="0s", member_missing_after="0s").feed(
        (bookies(70, f"{BASE} bk11#2"), bookies(80, "bk1 bk6 bk7"))
    )
    run.see(bookies(95, "bk1 bk6 bk7"))
    assert run.latest("group-member-missing").summary == "bookie bk2 of c1 is in group default, but is not registered"
    assert not [text for text in (d.explanation for d in run.published) if " 0s" in text]


@pytest.mark.parametrize(("groups", "tier"), [({"g": "bk1 bk2"}, "can no longer place its data"),
                                              ({"g": "bk1 bk2", "s": "bk6"}, "must reach further")])  # fmt: skip
def test_in_the_last_tier_one_more_loss_ends_the_placement(groups: dict[str, str], tier: str) -> None:
    names = {"acme/a": "g/s" if "s" in groups else "g"}
    run = Run(LONG).see(*everything(0, "bk1 bk2 bk6" if "s" in groups else "bk1 bk2", groups, names))
    assert f"{tier} when one more of its bookies is lost" in run.latest("isolation-headroom").summary


def test_a_namespace_that_can_place_no_data_is_not_said_to_place_it_on_a_bookie() -> None:
    run = Run(LONG, grace="0s", ensemble_size=3).see(*everything(0, "bk1 bk11", GROUPS, {"acme/a": "default"}))
    alert = run.latest("unassigned-bookie")
    assert (alert.severity, alert.summary) == ("warning", "bookie bk11 of c1 takes data and is in no group")


def test_one_namespace_asks_for_groups() -> None:
    run = Run(LONG).see(*everything(0, "bk1 bk2", {}, {"acme/a": "default"}))
    assert run.latest("no-bookie-groups").summary == (
        "c1 puts no bookie into a group, but 1 namespace asks for groups (acme/a): brokers exclude no bookie, and 2 "
        "bookies are writable"
    )


def test_many_in_quarantine_are_said_to_be_there() -> None:
    strangers = " ".join(f"bk{n}" for n in range(100, 112))
    run = Run(LONG, grace="0s").see(
        *everything(0, f"{BASE} {strangers}", {**GROUPS, "headgate-quarantine": strangers}, {})
    )
    assert run.latest("unassigned-bookie").summary.startswith(
        "12 bookies of c1 take data and have no group from an operator, 12 of them in quarantine: bk100, "
    )


def test_members_of_a_group_that_vanished_are_named() -> None:
    run = Run(LONG).see(*everything(0, BASE, GROUPS, {})).see(racks(20, {**GROUPS, "default": ""}))
    assert run.latest("bookies-unconfirmed").summary == (
        "since 2026-11-21T08:00:20Z readings of c1 contradict what was confirmed about 2 grouped bookies (bk1, bk2): "
        "that counts until two readings in a row, 10s apart, agree"
    )


@pytest.mark.parametrize(
    ("then", "successor"),
    [
        ([bookies(20, BASE, "bk11"), bookies(30, BASE, "bk11")], "unassigned-bookie-idle"),
        ([racks(20, {}), racks(30, {})], "no-bookie-groups"),
    ],
)
def test_another_alert_takes_the_place_of_an_unassigned_bookie_s(then: Any, successor: str) -> None:
    run = Run(LONG, grace="0s").see(*everything(0, f"{BASE} bk11", GROUPS, {})).feed(then)
    assert [run.latest(alert).status for alert in ("unassigned-bookie", successor)] == ["resolved", "firing"]


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
