"""Sentences from the values that decided."""

from typing import Any

import pytest

from tests.policies.isolation.scenario import (
    BASE,
    bookies,
    joined,
    placement_of,
    to,
)


@pytest.mark.parametrize(
    ("readings", "sentence"),
    [
        ((), "Bookie bk11 has been in no group for 10s or longer: it should be put into headgate-quarantine."),
        (
            (bookies(70, BASE), bookies(80, BASE)),
            "Bookie bk11 is no longer registered: nothing is to be done about it.",
        ),
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


@pytest.mark.parametrize(
    ("allowed", "sentence"),
    [
        (0, "Bookie bk11 is in no group, but max_quarantined allows none: it is left to a person."),
        (
            1,
            "Bookie bk12 is in no group, but the 1 bookie that max_quarantined allows is in quarantine or on its way "
            "there: it is left to a person.",
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
        "acme/a keeps to 2 bookies of its secondary group shared: it names no primary group for 2 needed bookies."
    )


def test_a_leak_is_explained_by_its_numbers() -> None:
    placement = placement_of("bk1 bk6 bk11:3181", "default")
    assert placement.explanation == (
        "acme/a can place data on 1 bookie without a group (bk11:3181): "
        "its primary group default has 1 of 2 needed bookies writable."
    )
    assert placement.candidates == ("bk1", "bk11:3181")
    assert (placement.promised_candidates, placement.promised_feasible) == (("bk1",), False)
