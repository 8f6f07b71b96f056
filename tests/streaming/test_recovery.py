"""A key whose state was lost goes on with the alerts that its readings confirm, and resolves the others."""

from typing import Any

import pytest

from policies.alerts import CONFIRM_MS
from policies.decisions import Alert
from policies.policy import POLICY_FAILED
from policies.recovery import OpenAlerts
from streaming.host import PolicyHost
from streaming.transition import KeyTransition
from tests.policies.scenario import CLUSTER, GB, HARD, log_dirs, throttle
from tests.streaming.transitions import Transitions, told

FULL, FREE = GB // 2, 50 * GB
CONFIRM = CONFIRM_MS / 1000
ALERTS = "decided.alerts"


def fresh(**more: Any) -> Transitions:
    return Transitions(PolicyHost({"throttle": throttle(HARD, min_hold="0s", **more)}, frozenset({CLUSTER})))


def read(key: Transitions, seconds: float, **free_bytes: int) -> KeyTransition:
    """Take a reading of some brokers: `b3=FULL`."""
    records = [
        key.record(log_dirs(seconds, int(name[1:]), free), appended=seconds) for name, free in free_bytes.items()
    ]
    return key.take(seconds, *records)


def alerts(transition: KeyTransition) -> list[tuple[str, str, str]]:
    return [(a["subject"], a["status"], a["alert_id"]) for a in told(transition, ALERTS)]


def lost(key: Transitions, seconds: float, *fired: KeyTransition) -> Transitions:
    """A key without the state of this one, which has learnt which alerts fire."""
    open_alerts = [a for each in fired for a in each.decisions if isinstance(a, Alert)]
    after = Transitions(key.host)
    command = OpenAlerts.build("throttle", CLUSTER, open_alerts)
    assert after.take(seconds, after.reading(command, appended=seconds, topic="commands")).decisions == ()
    return after


@pytest.mark.parametrize("grace", ["0s", "20s"])
def test_of_two_alerts_whose_state_was_lost_one_goes_on_under_its_id_and_the_other_is_resolved_once(grace: str) -> None:
    key = fresh(alert_grace=grace)
    read(key, 0, b3=FULL, b4=FULL)
    fired = read(key, 20, b3=FULL, b4=FULL) if grace != "0s" else read(fresh(), 0, b3=FULL, b4=FULL)
    ids = {subject: alert_id for subject, _, alert_id in alerts(fired)}
    after = lost(key, 3600, fired)
    of_first = alerts(read(after, 3601, b3=FULL, b4=FREE))
    assert of_first == [], "the one that holds was published; of the other, another reading may still come"
    assert after.key_state.wake_ms is not None
    ended = alerts(read(after, 3601 + CONFIRM, b3=FULL, b4=FREE))
    resolved = [subject for subject, status, _ in ended if status == "resolved"]
    assert [subject for subject in ids if "/4/" in subject] == resolved
    assert all(ids[subject] == alert_id for subject, _, alert_id in ended)
    assert "resolved" not in {status for _, status, _ in alerts(read(after, 3700, b3=FULL, b4=FREE))}
    assert {status for _, status, _ in alerts(read(after, 3800, b3=FREE, b4=FREE))} == {"resolved"}


def test_no_alert_ends_because_its_broker_is_read_a_little_later() -> None:
    fired = read(key := fresh(), 0, b3=FULL, b4=FULL)
    after = lost(key, 3600, fired)
    told_then = [*alerts(read(after, 3601, b3=FULL)), *alerts(read(after, 3610, b4=FULL)), *alerts(after.take(3700))]
    assert "resolved" not in {status for _, status, _ in told_then}
    assert {alert_id for *_, alert_id in told_then} <= {alert_id for *_, alert_id in alerts(fired)}


def test_without_a_reading_nothing_is_resolved() -> None:
    after = lost(key := fresh(), 3600, read(key, 0, b3=FULL))
    assert told(after.take(9000), ALERTS) == []


def test_the_last_list_counts_so_what_an_earlier_loss_left_behind_is_not_resolved_again() -> None:
    fired = read(key := fresh(), 0, b3=FULL)
    after = lost(key, 3600, fired)
    nothing = OpenAlerts.build("throttle", CLUSTER, [])
    after.take(3601, after.reading(nothing, appended=3601, topic="commands"))
    read(after, 3602, b3=FREE)
    assert told(read(after, 3700, b3=FREE), ALERTS) == []


def test_an_alert_about_the_policy_itself_ends_too() -> None:
    key = fresh()
    (fired,) = [a for a in read(key, 0, b3=FULL).decisions if isinstance(a, Alert) and "hard" in a.alert][:1]
    own = fired.model_copy(update={"alert": POLICY_FAILED, "subject": CLUSTER})
    after = Transitions(key.host)
    command = OpenAlerts.build("throttle", CLUSTER, [own])
    after.take(3600, after.reading(command, appended=3600, topic="commands"))
    read(after, 3601, b3=FREE)
    ended = told(read(after, 3700, b3=FREE), ALERTS)
    assert [(a["alert"], a["status"]) for a in ended] == [(POLICY_FAILED, "resolved")]
