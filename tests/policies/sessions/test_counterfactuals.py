"""What would have to change for another verdict on a member or a bundle."""

from typing import Any

import pytest

from policies.sessions.counterfactuals import derive_bundle_counterfactuals, derive_member_counterfactuals
from policies.sessions.decisions import (
    OwnershipDecision,
    OwnershipReason,
    OwnershipVerdict,
    SessionDecision,
    SessionReason,
    SessionVerdict,
)
from policies.sessions.settings import SessionsSettings
from tests.policies.sessions.course import Run, absent, owned, session
from tests.policies.sessions.joined import connected, expired

SETTINGS = SessionsSettings()

RUN = Run(on_session_lost="reconnect").together(*connected("b1", "b2"), owned(1, "b1", "0xb1"))
RUN.see(*expired("b1", seconds=10)).see(session(20, "b1", "connected", "0xnew"), absent(21))


def decided(reason: SessionReason, verdict: SessionVerdict, seconds_left: float | None) -> SessionDecision:
    return RUN.sessions[-1].model_copy(update={"reason": reason, "verdict": verdict, "seconds_left": seconds_left})


def ruled(reason: OwnershipReason, verdict: OwnershipVerdict) -> OwnershipDecision:
    return RUN.bundles[-1].model_copy(update={"reason": reason, "verdict": verdict, "expected_version": 3})


def said(decision: Any) -> dict[str, str]:
    return {each.verdict: each.when for each in decision.otherwise}


def test_who_lost_its_session_is_told_what_ends_that_and_by_when() -> None:
    run = Run(on_session_lost="reconnect").together(*connected("b1", "b2")).see(*expired("b1", seconds=10))
    assert run.sessions[-1].verdict == "reconnect"
    assert said(run.sessions[-1]) == {
        "recover": "it has a session again",
        "shutdown": "it has no session within 5 min, or has failed 10 times",
    }


def test_who_recovers_is_told_of_its_bundles() -> None:
    run = Run().together(*connected("b1", "b2"), owned(1, "b1", "0xb1")).see(*expired("b1", seconds=10))
    run.see(session(20, "b1", "connected", "0xnew"))
    assert said(run.sessions[-1]) == {"resume": "its bundle is its own again or given up"}
    run.see(absent(21))
    assert said(run.bundles[-1])["unload"] == "it names another member"


@pytest.mark.parametrize(
    ("budget", "when"),
    [
        (0, "`shutdown_budget` is more than 0"),
        (1, "no member is down by an order or was ordered down within 10m"),
        (3, "fewer than 3 members are down or were ordered down within 10m"),
    ],
)
def test_who_waits_for_the_budget_is_told_when_there_is_one(budget: int, when: str) -> None:
    waits = decided(SessionReason.SHUTDOWN_BUDGET, SessionVerdict.HOLD, None)
    found = derive_member_counterfactuals(waits, SessionsSettings(shutdown_budget=budget))
    assert {each.verdict: each.when for each in found}["shutdown"] == when


def test_who_owned_nothing_waits_for_nothing_when_it_is_back() -> None:
    run = Run().together(*connected("b1", "b2")).see(*expired("b1", seconds=10))
    assert said(run.see(session(20, "b1", "connected", "0xnew")).sessions[-1]) == {"hold": "its connection is lost"}


@pytest.mark.parametrize("reason", SessionReason)
@pytest.mark.parametrize("seconds_left", [None, 12.0])
def test_of_each_reason_it_is_said_what_would_change_it(reason: SessionReason, seconds_left: float | None) -> None:
    for verdict in SessionVerdict:
        found = derive_member_counterfactuals(decided(reason, verdict, seconds_left), SETTINGS)
        assert found
        assert {each.verdict for each in found} <= {*SessionVerdict}
        assert all(each.when and "None" not in each.when for each in found)


@pytest.mark.parametrize("reason", OwnershipReason)
@pytest.mark.parametrize("verdict", OwnershipVerdict)
def test_of_each_ruling_it_is_said_what_would_change_it(reason: OwnershipReason, verdict: OwnershipVerdict) -> None:
    found = derive_bundle_counterfactuals(ruled(reason, verdict))
    assert found
    assert {each.verdict for each in found} <= {*OwnershipVerdict}
