"""Which of the loop's decisions are in force for a member: by sequence, session, time, mode, and state of the node."""

from datetime import timedelta
from typing import Any

import pytest

from connectors.sessions.agent.decisions import MemberDecisions
from policies.sessions.decisions import OwnershipVerdict
from policies.sessions.judge.ownership_table import NodeNow
from policies.sessions.settings import RecoveryStep
from policies.units import to_millis
from policies.wire import decision_event
from tests.connectors.sessions.agent.decided import CLUSTER, MEMBER, NOON, SESSION, ownership_decision, session_decision

PATH = "/namespace/t/ns/0x00000000_0xffffffff"
ABSENT = NodeNow(exists=False)
OLD = NodeNow(exists=True, owner=MEMBER, session="0xa", version=3)
REPLACE = {"owner": MEMBER, "node_session": "0xa", "delete_first": True, "expected_version": 3}


def decisions(*given: Any) -> MemberDecisions:
    taken = MemberDecisions(CLUSTER, MEMBER)
    for decision in given:
        taken.fold(decision_event(decision), NOON)
    return taken


def verdict(taken: MemberDecisions, node: NodeNow = ABSENT, session: str = SESSION) -> OwnershipVerdict | None:
    ruling = taken.ruling(PATH, session, node, NOON)
    return None if ruling is None else ruling.verdict


def test_a_decision_for_the_session_and_the_node_as_it_is_holds() -> None:
    assert verdict(decisions(ownership_decision(PATH, "re-own", "absent"))) is OwnershipVerdict.RE_OWN
    ruling = decisions(ownership_decision(PATH, "re-own", "old_session", **REPLACE)).ruling(PATH, SESSION, OLD, NOON)
    assert ruling is not None
    assert (ruling.delete_first, ruling.expected_version) == (True, 3)


@pytest.mark.parametrize(
    "fields",
    [
        {"session": "0xa"},
        {"session": None},
        {"valid_until": NOON - timedelta(milliseconds=1)},
        {"mode": "shadow"},
        {"cluster": "c2"},
        {"member": "b2:8080"},
        {"owner": "b2:8080"},
        {"node_session": "0xc"},
    ],
    ids=[
        "another session",
        "no session",
        "past",
        "shadow",
        "another cluster",
        "another member",
        "another owner",
        "node",
    ],
)
def test_a_decision_for_anything_else_does_not(fields: dict[str, Any]) -> None:
    assert verdict(decisions(ownership_decision(PATH, "re-own", "absent", **fields))) is None


def test_a_deletion_without_a_version_and_a_keep_on_hearsay_are_not_followed() -> None:
    blind = ownership_decision(PATH, "re-own", "old_session", **{**REPLACE, "expected_version": None})
    assert verdict(decisions(blind), OLD) is None
    keep = ownership_decision(PATH, "keep", "own_session", owner=MEMBER, node_session="0xa")
    assert verdict(decisions(keep), OLD) is None


def test_the_highest_sequence_holds_in_whatever_order_they_come() -> None:
    first, second = (
        ownership_decision(PATH, "re-own", "absent", sequence=4),
        ownership_decision(PATH, "unload", "other_owner", sequence=5),
    )
    assert verdict(decisions(first, second)) is OwnershipVerdict.UNLOAD
    assert verdict(decisions(second, first)) is OwnershipVerdict.UNLOAD


def test_after_a_lost_sequence_an_expired_decision_gives_way_to_a_valid_one() -> None:
    minute = timedelta(minutes=1)
    expired = ownership_decision(PATH, "unload", "other_owner", sequence=9, valid_until=NOON - minute)
    taken = MemberDecisions(CLUSTER, MEMBER)
    assert taken.fold(decision_event(expired), NOON - 2 * minute)
    anew = decision_event(ownership_decision(PATH, "re-own", "absent", sequence=4))
    assert not taken.fold(anew, NOON - 2 * minute), "the one in force had not expired yet"
    assert taken.fold(anew, NOON)
    assert verdict(taken) is OwnershipVerdict.RE_OWN


def test_nobody_who_forges_a_number_or_an_end_fences_later_decisions_out() -> None:
    ahead = NOON + timedelta(days=2)
    taken = decisions(
        ownership_decision(PATH, "unload", "other_owner", sequence=to_millis(ahead)),
        ownership_decision(PATH, "unload", "other_owner", sequence=2, valid_until=ahead),
        ownership_decision(PATH, "re-own", "absent", sequence=1),
    )
    assert verdict(taken) is OwnershipVerdict.RE_OWN


def test_one_in_shadow_takes_the_place_of_an_active_one_and_is_no_news() -> None:
    taken = decisions(ownership_decision(PATH, "re-own", "absent"))
    shadow = ownership_decision(PATH, "re-own", "absent", sequence=2, mode="shadow")
    assert not taken.fold(decision_event(shadow), NOON)
    assert verdict(taken) is None


def test_what_is_no_decision_is_passed_over() -> None:
    assert not decisions().fold(b"{}", NOON)
    assert not decisions().fold(b"\xff", NOON)


@pytest.mark.parametrize(("passed", "left_ms"), [(5, 15_000), (19.5, 1000), (60, 1000)])
def test_the_rest_of_a_wait_counts_from_when_it_was_decided_and_one_that_is_over_is_no_busy_loop(
    passed: float, left_ms: int
) -> None:
    wait = ownership_decision(PATH, "wait", "old_session", **{**REPLACE, "delete_first": False}, seconds_left=20.0)
    ruling = decisions(wait).ruling(PATH, SESSION, OLD, NOON + timedelta(seconds=passed))
    assert ruling is not None
    assert ruling.left_ms == left_ms


def test_a_plan_is_of_a_recovery_of_this_session() -> None:
    plan = (RecoveryStep.REPUBLISH_LOAD_DATA, RecoveryStep.RE_OWN)
    recover = session_decision("recover", "session_reestablished", plan=plan)
    assert decisions(recover).plan(SESSION, NOON) == plan
    assert decisions(recover).plan("0xa", NOON) is None
    assert decisions(session_decision("hold", "connection_lost")).plan(SESSION, NOON) is None


@pytest.mark.parametrize(("told", "goes"), [("shutdown", True), ("restart", True), ("hold", False), ("gone", False)])
def test_it_goes_down_by_decision_and_once(told: str, goes: bool) -> None:
    taken = decisions(session_decision(told, "zombie"))
    assert (taken.shutdown(SESSION, NOON) is not None) is goes
    assert taken.shutdown(SESSION, NOON) is None


@pytest.mark.parametrize(
    ("session", "fields"),
    [("0xa", {}), (None, {}), (SESSION, {"mode": "shadow"}), (SESSION, {"valid_until": NOON - timedelta(seconds=1)})],
    ids=["another session", "no session yet", "shadow", "past"],
)
def test_it_does_not_go_down_otherwise(session: str | None, fields: dict[str, Any]) -> None:
    assert decisions(session_decision("shutdown", "not_ready", **fields)).shutdown(session, NOON) is None
