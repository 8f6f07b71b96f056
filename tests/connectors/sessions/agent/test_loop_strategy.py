"""Who is followed: the loop where it has something to say for the current, the rules at hand otherwise."""

from datetime import timedelta

import pytest

from connectors.sessions.agent import LocalStrategy, LoopStrategy, MemberDecisions
from connectors.sessions.agent.strategy import Outage
from policies.sessions.decisions import OwnershipDecision, OwnershipVerdict
from policies.sessions.judge.ownership_table import Claimant, NodeNow, rule
from policies.sessions.settings import OnSessionLost, OwnershipRules, RecoveryStep, SessionsSettings
from policies.wire import decision_event
from tests.connectors.sessions.agent.decided import CLUSTER, MEMBER, NOON, SESSION, ownership_decision, session_decision

PATH = "/namespace/t/ns/0x00000000_0xffffffff"
DECISION_TIMEOUT = timedelta(seconds=10)
EARLY, LATE = Claimant(MEMBER, SESSION, 9_999), Claimant(MEMBER, SESSION, 10_000)
ABSENT = NodeNow(exists=False)
MINE = NodeNow(exists=True, owner=MEMBER, session=SESSION, version=0)
OLD = NodeNow(exists=True, owner=MEMBER, session="0xa", version=3)
OTHERS = NodeNow(exists=True, owner="b2:8080", session="0xc", version=0)
PERSISTENT = NodeNow(exists=True, ephemeral=False, owner=MEMBER, version=0)


def local(rules: OwnershipRules) -> LocalStrategy:
    return LocalStrategy(SessionsSettings(ownership_rules=rules))


def outage(attempts: int, session: str = SESSION) -> Outage:
    return Outage(CLUSTER, MEMBER, "broker", session, 6_000, 6.0 * attempts, attempts)


def strategy(*given: OwnershipDecision, rules: OwnershipRules = OwnershipRules.PIP57) -> LoopStrategy:
    decisions = MemberDecisions(CLUSTER, MEMBER)
    for decision in given:
        decisions.fold(decision_event(decision), NOON)
    return LoopStrategy(decisions, fallback=local(rules), decision_timeout=DECISION_TIMEOUT, clock=lambda: NOON)


@pytest.mark.parametrize("node", [ABSENT, MINE, OLD, OTHERS, PERSISTENT, None])
@pytest.mark.parametrize("rules", OwnershipRules)
def test_the_local_guide_is_the_pure_rules(node: NodeNow | None, rules: OwnershipRules) -> None:
    assert local(rules).ruling(PATH, EARLY, node) == rule(EARLY, node, rules)


def test_the_local_guide_orders_no_shutdown_and_plans_as_the_policy_does() -> None:
    assert LocalStrategy().shutdown(SESSION, None) is None
    assert LocalStrategy().shutdown(SESSION, outage(1000)) is None
    assert LocalStrategy().plan(SESSION) == SessionsSettings().recovery_order


SHUTDOWN = SessionsSettings(on_session_lost=OnSessionLost.SHUTDOWN, reconnect_limit=3)


def test_with_shutdown_the_local_guide_orders_one_after_enough_failed_attempts_once_for_each_loss() -> None:
    guide = LocalStrategy(SHUTDOWN, clock=lambda: NOON)
    assert [guide.shutdown(SESSION, each) for each in (None, outage(0), outage(2))] == [None, None, None]
    decision = guide.shutdown(SESSION, outage(3))
    assert decision is not None
    assert (decision.verdict, decision.reason, decision.member) == ("shutdown", "reconnect_exhausted", MEMBER)
    assert decision.explanation == f"Broker {MEMBER} has not reconnected in 18 s and 3 failed attempts: shut it down."
    assert decision.valid_until == NOON + SHUTDOWN.validity
    assert guide.shutdown(SESSION, outage(4)) is None
    assert guide.shutdown(SESSION, outage(3, "0xc")) is not None
    assert guide.shutdown("0xc", outage(0, "0xc")) is None
    assert guide.shutdown("0xc", outage(3, "0xc")) is not None, "the same session is lost again"


@pytest.mark.parametrize(("said", "goes"), [(None, True), ("reconnect", False), ("hold", False), ("shutdown", True)])
def test_while_the_loop_speaks_of_the_session_its_word_counts_alone(said: str | None, goes: bool) -> None:
    decisions = MemberDecisions(CLUSTER, MEMBER)
    if said is not None:
        decisions.fold(decision_event(session_decision(said, "session_lost", status="session_lost")), NOON)
    looped = LoopStrategy(decisions, fallback=LocalStrategy(SHUTDOWN), clock=lambda: NOON)
    assert (looped.shutdown(SESSION, outage(3)) is not None) is goes


@pytest.mark.parametrize("node", [MINE, OTHERS, PERSISTENT], ids=["its own", "another's", "not ephemeral"])
def test_what_leaves_nothing_to_decide_does_not_wait_for_the_loop(node: NodeNow) -> None:
    assert strategy().ruling(PATH, EARLY, node) == rule(EARLY, node, OwnershipRules.PIP57)


@pytest.mark.parametrize("node", [ABSENT, OLD], ids=["absent", "old session"])
def test_everything_else_waits_for_the_loop_and_not_for_ever(node: NodeNow) -> None:
    early = strategy(rules=OwnershipRules.CURRENT).ruling(PATH, EARLY, node)
    assert (early.verdict, early.retry_ms) == (OwnershipVerdict.WAIT, 1)
    assert strategy(rules=OwnershipRules.CURRENT).ruling(PATH, LATE, node).verdict is OwnershipVerdict.RE_OWN


def test_a_bundle_that_is_new_to_the_member_and_nobodys_is_taken_without_asking_the_loop() -> None:
    new = Claimant(MEMBER, SESSION, 0, is_new=True)
    assert strategy().ruling(PATH, new, ABSENT).verdict is OwnershipVerdict.RE_OWN
    assert strategy().ruling(PATH, new, OLD).verdict is OwnershipVerdict.WAIT


def test_the_loop_is_followed_where_the_rules_at_hand_say_otherwise() -> None:
    decided = ownership_decision(
        PATH, "re-own", "old_session", owner=MEMBER, node_session="0xa", delete_first=True, expected_version=3
    )
    for claimant in (EARLY, LATE):
        ruling = strategy(decided).ruling(PATH, claimant, OLD)
        assert (ruling.verdict, ruling.delete_first) == (OwnershipVerdict.RE_OWN, True)


def test_the_loop_never_makes_anyone_keep_or_take_what_is_anothers() -> None:
    for verdict, reason in (("keep", "own_session"), ("re-own", "absent"), ("wait", "old_session")):
        decided = ownership_decision(PATH, verdict, reason, owner="b2:8080", node_session="0xc")
        assert strategy(decided).ruling(PATH, EARLY, OTHERS).verdict is OwnershipVerdict.UNLOAD


def test_a_decision_for_another_session_leaves_it_to_the_rules_in_time() -> None:
    stale = ownership_decision(PATH, "unload", "other_owner", session="0xa")
    assert strategy(stale).ruling(PATH, EARLY, ABSENT).verdict is OwnershipVerdict.WAIT
    assert strategy(stale).ruling(PATH, LATE, ABSENT).verdict is OwnershipVerdict.RE_OWN


def test_the_loops_plan_comes_before_the_one_at_hand() -> None:
    plan = (RecoveryStep.INVALIDATE_CACHES, RecoveryStep.RE_OWN)
    decisions = MemberDecisions(CLUSTER, MEMBER)
    decisions.fold(decision_event(session_decision("recover", "session_reestablished", plan=plan)), NOON)
    looped = LoopStrategy(decisions, clock=lambda: NOON)
    assert looped.plan(SESSION) == plan
    assert looped.plan("0xc") == SessionsSettings().recovery_order
