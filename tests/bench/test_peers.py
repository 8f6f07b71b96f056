"""How what a kill cost is counted."""

import json

from bench.loop import Appended
from bench.peers import after_a_kill

KILLED_MS = 1000.0


def observed(*ids: str) -> list[Appended]:
    return [Appended(json.dumps({"id": each, "data": {"cluster": each[0]}}).encode(), 0) for each in ids]


def decided(rests_on: str, id_: str, at_ms: int = 0, before: float | None = 0.5) -> Appended:
    data = {"cluster": rests_on[0], "evidence": [rests_on], "previous_factor": before}
    return Appended(json.dumps({"id": id_, "data": data}).encode(), at_ms)


def cost(what: str, seen: list[Appended], said: list[Appended]) -> float:
    return after_a_kill(seen, said, KILLED_MS)[f"killed: {what}"]


def test_a_later_decision_of_the_same_cluster_covers_an_observation() -> None:
    seen = observed("a1", "b1", "a2", "b2")
    assert cost("observations never decided on", seen, [decided("a2", "x"), decided("b2", "y")]) == 0
    assert cost("observations never decided on", seen, [decided("a2", "x"), decided("b1", "y")]) == 1
    assert cost("observations never decided on", seen, [decided("a1", "x")]) == 3


def test_what_was_never_decided_on_is_found_where_only_an_older_decision_was_repeated() -> None:
    said = [decided("a2", "x"), decided("a1", "y")]
    assert cost("observations never decided on", observed("a1", "a2", "a3"), said) == 1


def test_a_repetition_with_its_id_is_told_from_a_second_decision() -> None:
    seen = observed("a1", "a2")
    again, other = [decided("a1", "x"), decided("a1", "x")], [decided("a1", "x"), decided("a1", "y")]
    assert cost("decisions said again, same id", seen, again) == 1
    assert cost("decisions said again, other id", seen, again) == 0
    assert cost("decisions said again, same id", seen, other) == 0
    assert cost("decisions said again, other id", seen, other) == 1


def test_who_begins_anew_after_the_kill_had_forgotten() -> None:
    said = [decided("a1", "x", before=None), decided("a2", "y", 1500, None), decided("b1", "z", 2500)]
    assert cost("clusters whose history was lost", observed("a1", "a2", "b1"), said) == 1
    assert cost("to the next decision, s", observed("a1", "a2", "b1"), said) == 0.5
