"""What must hold at the moment a bookie is put into quarantine."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from connectors.actuation.worker import CommonOutcome
from connectors.isolation.groups import RacksSnapshot
from connectors.isolation.quarantine import find_refusal, measure_quarantine
from policies.bookie_readings import BookieAffinity, BookieRegistration, NamespaceAffinity
from policies.isolation import IsolationSettings
from policies.isolation.decisions import QUARANTINE_GROUP
from policies.isolation.readings import QuarantineOutcome
from policies.observations import Outcome
from tests.cases import for_each
from tests.connectors.isolation.quarantine.orders import BOOKIE, NOON, decision, registered

GROUPS: dict[str, dict[str, object]] = {"blue": {"bk1:3181": {}}}
REGISTERED = registered("0x1", 7)
MOST = 2
SETTINGS = IsolationSettings(max_quarantined=MOST)
NOBODY = BookieAffinity(cluster="messaging", outcome=Outcome.OK)
"""No namespace has an affinity."""


def snapshot(
    groups: Mapping[str, Mapping[str, object]] = GROUPS,
    registration: BookieRegistration | None = REGISTERED,
    writable: str = BOOKIE,
) -> RacksSnapshot:
    def write(group: str, rack: str) -> datetime:
        raise AssertionError("a guard only looks")

    return RacksSnapshot(groups, registration, frozenset(writable.split()), NOON, write)


def refused(of: RacksSnapshot, **fields: Any) -> QuarantineOutcome | CommonOutcome | None:
    result = find_refusal(decision(**fields), of, NOBODY, SETTINGS)
    return None if result is None else result.outcome  # type: ignore[return-value]


def test_an_unassigned_bookie_that_is_registered_may_be_put_there() -> None:
    assert refused(snapshot()) is None


def test_who_is_in_a_group_by_now_stays_there_and_the_group_is_named() -> None:
    result = find_refusal(decision(), snapshot({"blue": {BOOKIE: {}}}), NOBODY, SETTINGS)
    assert result is not None
    assert result.outcome is QuarantineOutcome.ALREADY_ASSIGNED
    assert result.observed is not None
    assert result.observed.found_group == "blue"


def test_without_any_group_there_is_nothing_to_keep_it_out_of() -> None:
    assert refused(snapshot({})) is QuarantineOutcome.NO_GROUPS


def test_a_group_that_has_lost_all_its_bookies_is_one_to_keep_it_out_of() -> None:
    assert refused(snapshot({"blue": {}})) is None


def test_a_bookie_that_is_gone_is_left_alone() -> None:
    assert refused(snapshot(registration=None)) is QuarantineOutcome.NOT_REGISTERED


@for_each(
    ("decided", "found", "meant"),
    [
        ({"czxid": 7}, registered(czxid=7), True),
        ({"czxid": 7}, registered(czxid=8), False),
        ({"czxid": 7}, registered(), True),
        ({"session": "0x1"}, registered("0x01"), True),
        ({"session": "-0x1"}, registered("0xffffffffffffffff"), True),
        ({"session": "0x1"}, registered("0x2"), False),
        ({"session": "0x1"}, registered(), True),
        ({}, registered("0x2", 8), True),
        ({"session": "not hexadecimal"}, registered("0x1"), False),
    ],
    ids=["transaction", "another transaction", "store cannot tell", "leading zeros", "signed", "another session",
         "no session known", "decision names none", "no number"],
)  # fmt: skip
def test_only_the_registration_that_was_decided_about_is_meant(
    decided: dict[str, Any], found: BookieRegistration, meant: bool
) -> None:
    outcome = refused(snapshot(registration=found), **decided)
    assert outcome is (None if meant else QuarantineOutcome.NOT_REGISTERED)


@pytest.mark.parametrize(("held", "outcome"), [(MOST - 1, None), (MOST, QuarantineOutcome.TOO_MANY)])
def test_no_more_than_the_settings_allow(held: int, outcome: QuarantineOutcome | None) -> None:
    quarantined: dict[str, object] = {f"bk{number}:3181": {} for number in range(100, 100 + held)}
    assert refused(snapshot({**GROUPS, QUARANTINE_GROUP: quarantined})) is outcome


@pytest.mark.parametrize(
    ("writable", "ensemble_size", "starved"),
    [
        (f"bk1:3181 bk2:3181 {BOOKIE}", 2, None),
        (f"bk1:3181 {BOOKIE} bk12:3181", 2, None),
        (f"bk1:3181 {BOOKIE}", 2, "acme/a"),
        (f"bk1:3181 {BOOKIE}", 3, "acme/a"),
        (BOOKIE, 2, "acme/a"),
    ],
    ids=["its group suffices", "another one is in no group", "it is the last", "even with it too few", "group is gone"],
)
def test_what_a_namespace_needs_by_what_is_read_now_stays(
    writable: str, ensemble_size: int, starved: str | None
) -> None:
    needs = NamespaceAffinity(primary=("blue",), ensemble_size=ensemble_size)
    affinity = NOBODY.model_copy(update={"namespaces": {"acme/a": needs}})
    found = snapshot({"blue": {"bk1:3181": {}, "bk2:3181": {}}}, writable=writable)
    result = find_refusal(decision(), found, affinity, SETTINGS)
    assert (result and result.detail) == (starved and f"{starved} needs it to place data")
    assert result is None or result.outcome is QuarantineOutcome.NEEDED


@pytest.mark.parametrize(
    ("registered_at", "seconds"),
    [(NOON - timedelta(seconds=4), 4.0), (None, 10.0), (NOON + timedelta(seconds=1), 0.0)],
    ids=["the store's clock", "the decision's where the store cannot tell", "never negative"],
)
def test_the_leak_window_ends_when_it_is_in_quarantine(registered_at: datetime | None, seconds: float) -> None:
    result = measure_quarantine(decision(), snapshot(registration=registered(registered_at=registered_at)), NOON)
    assert result.outcome is CommonOutcome.DONE
    assert result.observed is not None
    assert (result.observed.quarantined_at, result.observed.leak_window_seconds) == (NOON, seconds)
