"""Answers are given again until a decision rests on them."""

import json
from typing import Any

from connectors.switching.answers import Answers
from policies.observations import Outcome
from policies.switching.decisions import SwitchVerdict
from policies.switching.readings import LedgerOutcome, SwitchLedger
from tests.connectors.switching.orders import order

ANSWER = SwitchLedger(cluster="c1", outcome=Outcome.OK, ledger_id=7, op=1, result=LedgerOutcome.COPIED)


class Wire:
    """What was sent, in a time of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.answers = Answers(lambda key, value: self.sent.append((key, json.loads(value))), lambda: self.now)

    def repeats_at(self, now: float) -> int:
        """How many are given again."""
        before, self.now = len(self.sent), now
        self.answers.repeat()
        return len(self.sent) - before


def test_an_answer_nobody_heard_is_given_again_as_it_was_and_not_for_ever() -> None:
    wire = Wire()
    wire.answers.give(ANSWER)
    ((key, event),) = wire.sent
    assert (key, event["data"]["op"], event["type"]) == ("c1", 1, "headgate.switch-ledger.v1")
    assert [wire.repeats_at(now) for now in (14, 15, 29, 30)] == [0, 1, 0, 1]
    assert wire.sent == [(key, event)] * 3
    assert [wire.repeats_at(now) for now in (599, 600, 700)] == [1, 0, 0]


def test_an_answer_that_a_decision_rests_on_is_heard() -> None:
    wire = Wire()
    wire.answers.give(ANSWER)
    wire.answers.give(ANSWER)
    heard, unheard = (event["id"] for _, event in wire.sent)
    wire.answers.heard(order(SwitchVerdict.LEDGER, evidence=(heard,)))
    assert wire.repeats_at(20) == 1
    assert wire.sent[-1][1]["id"] == unheard


def test_who_lost_the_lease_answers_no_more() -> None:
    wire = Wire()
    wire.answers.give(ANSWER)
    wire.answers.forget()
    assert wire.repeats_at(20) == 0
