"""Results are sent again until a decision rests on them."""

import json
from typing import Any

from connectors.switching.result_outbox import ResultOutbox
from policies.observations import Outcome
from policies.switching.decisions import SwitchVerdict
from policies.switching.readings import LedgerOutcome, SwitchLedger
from tests.connectors.switching.orders import order

RESULT = SwitchLedger(cluster="c1", outcome=Outcome.OK, ledger_id=7, op=1, result=LedgerOutcome.COPIED)


class Wire:
    """What was sent, in a time of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.outbox = ResultOutbox(lambda key, value: self.sent.append((key, json.loads(value))), lambda: self.now)

    def repeats_at(self, now: float) -> int:
        """How many are sent again."""
        before, self.now = len(self.sent), now
        self.outbox.resend_due()
        return len(self.sent) - before


def test_a_result_that_no_decision_acknowledges_is_sent_again_as_it_was_and_not_for_ever() -> None:
    wire = Wire()
    wire.outbox.send(RESULT)
    ((key, event),) = wire.sent
    assert (key, event["data"]["op"], event["type"]) == ("c1", 1, "headgate.switch-ledger.v1")
    assert [wire.repeats_at(now) for now in (14, 15, 29, 30)] == [0, 1, 0, 1]
    assert wire.sent == [(key, event)] * 3
    assert [wire.repeats_at(now) for now in (599, 600, 700)] == [1, 0, 0]


def test_a_result_that_a_decision_rests_on_is_acknowledged() -> None:
    wire = Wire()
    wire.outbox.send(RESULT)
    wire.outbox.send(RESULT)
    arrived, lost = (event["id"] for _, event in wire.sent)
    wire.outbox.acknowledge(order(SwitchVerdict.LEDGER, evidence=(arrived,)))
    assert wire.repeats_at(20) == 1
    assert wire.sent[-1][1]["id"] == lost


def test_who_lost_the_lease_sends_nothing_again() -> None:
    wire = Wire()
    wire.outbox.send(RESULT)
    wire.outbox.clear()
    assert wire.repeats_at(20) == 0


def test_results_are_gathered_while_more_are_to_come() -> None:
    wire = Wire()
    sent = []
    for now in (0.0, 0.4, 0.9, 1.0, 1.1):
        wire.now = now
        wire.outbox.send(RESULT, more_to_come=True)
        sent.append(len(wire.sent))
    assert sent == [0, 0, 0, 4, 4]
    wire.outbox.send(RESULT)
    assert len(wire.sent) == 6, "the last one keeps none of the others back"
    assert len({event["id"] for _, event in wire.sent}) == 6


def test_what_was_gathered_goes_out_also_when_nothing_more_comes() -> None:
    wire = Wire()
    wire.outbox.send(RESULT, more_to_come=True)
    assert [wire.repeats_at(now) for now in (0.5, 1.0, 2.0)] == [0, 1, 0]


def test_what_was_gathered_under_a_lost_lease_is_not_sent() -> None:
    wire = Wire()
    wire.outbox.send(RESULT, more_to_come=True)
    wire.outbox.clear()
    assert wire.repeats_at(2.0) == 0
