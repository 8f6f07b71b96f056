"""Collectors that contradict each other, or themselves, make neither decisions nor alerts come and go."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from policies.decisions import Decision
from policies.observations import Observation, Outcome
from tests.examples import combined
from tests.policies.isolation.scenario import LONG, ON, Run, affinity, bookies, everything, racks

MEMBERS = " ".join(f"bk{n}" for n in range(1, 11))
OTHERS = " ".join(f"bk{n}" for n in range(51, 61))
WITHOUT_BK1 = MEMBERS.removeprefix("bk1 ")
GROUPS = {"default": MEMBERS}
NAMESPACES = {"acme/a": "default", "acme/b": "default"}

ODD: Mapping[str, Callable[[float], Observation]] = {
    "a bookie is missing": lambda s: bookies(s, WITHOUT_BK1),
    "all bookies are missing": lambda s: bookies(s, ""),
    "the bookies' node is absent": lambda s: bookies(s, "", outcome=Outcome.ABSENT),
    "bookies of another cluster": lambda s: bookies(s, OTHERS),
    "a stranger": lambda s: bookies(s, f"{MEMBERS} bk11"),
    "many strangers": lambda s: bookies(s, f"{MEMBERS} {OTHERS} bk61"),
    "a bookie is read-only": lambda s: bookies(s, WITHOUT_BK1, read_only="bk1"),
    "all bookies are read-only": lambda s: bookies(s, "", read_only=MEMBERS),
    "a cookie": lambda s: bookies(s, MEMBERS, known=f"{MEMBERS} bk99"),
    "no timely answer": lambda s: bookies(s, "", outcome=Outcome.TIMEOUT),
    "no groups": lambda s: racks(s, {}),
    "the groups' node is absent": lambda s: racks(s, None, Outcome.ABSENT),
    "a member is missing": lambda s: racks(s, {"default": WITHOUT_BK1}),
    "a member is in another group": lambda s: racks(s, {"default": WITHOUT_BK1, "other": "bk1"}),
    "a group has another name": lambda s: racks(s, {"other": MEMBERS}),
    "a group is empty": lambda s: racks(s, {"default": ""}),
    "groups of another cluster": lambda s: racks(s, {"default": OTHERS}),
    "no namespaces": lambda s: affinity(s, {}),
    "the namespaces' node is absent": lambda s: affinity(s, {}, Outcome.ABSENT),
    "a namespace has another affinity": lambda s: affinity(s, {**NAMESPACES, "acme/a": "nowhere"}),
    "a namespace has any group": lambda s: affinity(s, {**NAMESPACES, "acme/a": "*"}),
    "a namespace is missing": lambda s: affinity(s, {"acme/a": "default"}),
    "one more namespace": lambda s: affinity(s, {**NAMESPACES, "acme/c": "default"}),
    "groups of brokers": lambda s: affinity(s, NAMESPACES, broker_groups="default"),
}
COLLECTORS = {"one": (1, True), "unnamed": (2, False), "two": (2, True), "three": (3, True)}
"""How many there are, and whether their readings name them."""
VALIDITY_SECONDS = 300
MOST_RECORDS = 8
"""Of one subject within one validity."""


@pytest.mark.parametrize(("odd", "watched_by"), combined(ODD, COLLECTORS, one_of=4))
def test_contradicting_readings_are_few_records_within_one_validity(odd: str, watched_by: str) -> None:
    """One collector contradicts itself from reading to reading; of two or three, the last contradicts the others."""
    collectors, is_named = COLLECTORS[watched_by]
    rng = random.Random(f"{odd} {collectors} {is_named}")
    run = settled(grace=rng.choice(["0s", "10s"]), ensemble_size=rng.choice([2, 10]))
    before, interval = len(run.published), rng.choice([3.0, 4.0, 5.0])
    for number in range(int(VALIDITY_SECONDS / interval)):
        order = rng.sample(range(collectors), collectors)
        for place, collector in enumerate(order):
            second = round(40 + interval * (number + place / collectors), 3)
            is_odd = number % 2 == 1 if collectors == 1 else collector == collectors - 1
            run.together(*look(second, ODD[odd] if is_odd else None, f"zk-{collector}" if is_named else "", rng))
    records = Counter(map(identify, run.published[before:]))
    assert max(records.values(), default=0) <= MOST_RECORDS, records
    assert not {d.verdict for d in run.quarantines()} & {"quarantine"} or odd in ("a stranger", "many strangers")


def settled(**settings: object) -> Run:
    run = Run(ON, settings)
    for second in range(0, 40, 10):
        run.see(*everything(second, MEMBERS, GROUPS, NAMESPACES))
    return run


def look(
    second: float, odd: Callable[[float], Observation] | None, source: str, rng: random.Random
) -> list[Observation]:
    """One collector's three readings, in any order, one of them perhaps odd."""
    seen = {type(each.reading): each for each in everything(second, MEMBERS, GROUPS, NAMESPACES)}
    if odd is not None:
        other = odd(second)
        seen[type(other.reading)] = other
    found = [replace(each, id=f"{each.id} {source}", source=source) for each in seen.values()]
    return rng.sample(found, len(found))


def identify(decision: Decision) -> tuple[str, str]:
    return str(getattr(decision, "alert", "")), decision.subject


def flip(run: Run, start: int, end: int) -> Run:
    """A collector without a name sees bk1 in every other reading."""
    for second in range(start, end, 3):
        run.see(bookies(second, MEMBERS if second % 2 else WITHOUT_BK1))
    return run


def test_what_comes_and_goes_is_named_and_one_alert_lasts_until_two_readings_in_a_row_agree() -> None:
    run = flip(settled(), 40, 110)
    assert run.latest("bookies-unconfirmed").summary == (
        "since 2026-11-21T08:00:40Z readings of c1 contradict what was confirmed about 1 registered bookie (bk1): that "
        "counts until two readings in a row, 10s apart, agree"
    )
    assert run.placement("acme/a").candidate_count == 10
    for second in range(120, 140, 10):
        run.see(*everything(second, MEMBERS, GROUPS, NAMESPACES))
    assert [status for _, _, status, _ in run.said("bookies-unconfirmed")] == ["firing", "resolved"]


def test_a_bookie_that_comes_and_goes_holds_up_no_other_and_is_believed_when_it_is_confirmed() -> None:
    run = flip(settled(), 40, 100)
    others = WITHOUT_BK1.removeprefix("bk2 ")
    run.see(bookies(101, others)).see(bookies(112, others))
    assert run.placement("acme/a").candidates == tuple(sorted(others.split()))


def test_while_collectors_contradict_each_other_no_bookie_is_newly_withheld() -> None:
    run = Run(LONG, ON, max_quarantined=0, grace="30s").see(*everything(0, f"{MEMBERS} bk11", GROUPS, NAMESPACES))
    for second in range(10, 60, 5):
        for later, members in enumerate((MEMBERS, WITHOUT_BK1)):
            run.see(replace(bookies(second + later, f"{members} bk11"), source=f"zk-{later}"))
    assert run.quarantines() == []
