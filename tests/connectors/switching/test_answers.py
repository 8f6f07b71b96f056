"""Answers are gathered while more are to come."""

import json
from typing import Any

from connectors.switching.publisher import GatheredAnswers
from policies.observations import Outcome
from policies.switching.readings import LedgerOutcome, SwitchLedger

RESULT = SwitchLedger(cluster="c1", outcome=Outcome.OK, ledger_id=7, op=1, result=LedgerOutcome.COPIED)


class Wire:
    """What was sent, in a time of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.answers = GatheredAnswers(lambda key, value: self.sent.append((key, json.loads(value))), lambda: self.now)

    def sent_at(self, now: float) -> int:
        """How many are sent then."""
        before, self.now = len(self.sent), now
        self.answers.send_due()
        return len(self.sent) - before


def test_results_are_gathered_while_more_are_to_come() -> None:
    wire = Wire()
    sent = []
    for now in (0.0, 0.4, 0.9, 1.0, 1.1):
        wire.now = now
        wire.answers.send(RESULT, more_to_come=True)
        sent.append(len(wire.sent))
    assert sent == [0, 0, 0, 4, 4]
    wire.answers.send(RESULT)
    assert len(wire.sent) == 6, "the last one keeps none of the others back"
    assert len({event["id"] for _, event in wire.sent}) == 6


def test_what_was_gathered_goes_out_also_when_nothing_more_comes() -> None:
    wire = Wire()
    wire.answers.send(RESULT, more_to_come=True)
    assert [wire.sent_at(now) for now in (0.5, 1.0, 2.0)] == [0, 1, 0]


def test_what_was_gathered_under_a_lost_lease_is_not_sent() -> None:
    wire = Wire()
    wire.answers.send(RESULT, more_to_come=True)
    wire.answers.clear()
    assert wire.sent_at(2.0) == 0
