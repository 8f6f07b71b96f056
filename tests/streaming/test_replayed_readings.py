"""A captured signed reading that is written again keeps no gate open, and its silent collector stays silent."""

from datetime import timedelta

import pytest

from policies.records import ObservedRecord
from policies.signatures import Author, Serial, Signatures
from policies.units import to_millis
from streaming.host import PolicyHost
from streaming.key_state import KeyState
from streaming.transition import KeyTransition, reconcile
from tests.policies.scenario import CLUSTER, GB, SOFT_AND_HARD, at, log_dirs, throttle
from tests.streaming.records import TOPIC, event
from tests.streaming.transitions import letters, told

HOST = PolicyHost({"throttle": throttle(SOFT_AND_HARD, fallback_factor=0.25)}, frozenset({CLUSTER}))
SIGNATURES = Signatures({Author.OBSERVER: (b"k" * 64,)})
VALIDITY_SECONDS = 300


def signed(seconds: float, number: int, usable_bytes: int) -> ObservedRecord:
    """A reading that its collector signs and publishes at a second."""
    value, at_ms = event(log_dirs(seconds, 3, usable_bytes)), to_millis(at(seconds))
    signature = SIGNATURES.sign(TOPIC, CLUSTER, value, at_ms, Serial("c" * 16, number))
    return ObservedRecord(TOPIC, 0, number, at_ms, value, None, CLUSTER.encode(), signature)


def again(captured: ObservedRecord, seconds: float, *, partition: int, offset: int) -> ObservedRecord:
    """The same bytes with the same headers, appended later."""
    return captured._replace(partition=partition, offset=offset, appended_ms=to_millis(at(seconds)))


def take(state: KeyState | None, seconds: float, *records: ObservedRecord) -> KeyTransition:
    return reconcile(HOST, "headgate", ("throttle", CLUSTER), state, records, to_millis(at(seconds)), SIGNATURES)


@pytest.mark.parametrize("partition", [0, 1])
def test_a_captured_reading_of_free_space_keeps_no_gate_open(partition: int) -> None:
    captured = signed(0, 1, 50 * GB)
    state = take(None, 1, captured).key_state
    for look in range(1, 20):
        seconds = 10.0 * look
        records = [
            signed(seconds, look + 1, GB // 2),
            again(captured, seconds + 1, partition=partition, offset=1000 + look),
        ]
        transition = take(state, seconds + 2, *records)
        state = transition.key_state
        assert {letter["reason"] for letter in letters(transition)} <= {"unsigned"}
        assert {each["factor"] for each in told(transition, "decided.throttle")} <= {0.0}


def test_the_death_of_a_collector_is_noticed_though_its_last_reading_is_repeated() -> None:
    captured = signed(0, 1, 50 * GB)
    state, fallback_at = take(None, 1, captured).key_state, None
    for seconds in range(10, 2 * VALIDITY_SECONDS, 10):
        transition = take(state, seconds, again(captured, seconds, partition=0, offset=seconds))
        state = transition.key_state
        if fallback_at is None and [e for e in told(transition, "decided.throttle") if e["factor"] == 0.25]:
            fallback_at = seconds
    assert fallback_at is not None
    assert fallback_at <= VALIDITY_SECONDS + 20


def test_a_query_that_lost_its_checkpoint_takes_nothing_old_for_new() -> None:
    captured = signed(0, 1, 50 * GB)
    transition = take(None, 250, again(captured, 250, partition=1, offset=7))
    (decision,) = told(transition, "decided.throttle")
    assert decision["factor"] == 1.0
    later = take(transition.key_state, VALIDITY_SECONDS + 35)
    assert [each["factor"] for each in told(later, "decided.throttle")] == [0.25]
    assert timedelta(seconds=VALIDITY_SECONDS + 35) < timedelta(seconds=250 + VALIDITY_SECONDS)
