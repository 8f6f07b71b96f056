"""What is in force, as the topics tell it: by the fence that every consumer asks."""

from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from connectors.decided import DecisionsInForce, is_stale
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Record
from deploy.inspection import commands
from policies.decisions import Alert, Severity
from policies.units import to_millis
from policies.wire import decision_event
from tests.connectors.alertmanager.test_notifier import NOON, alert, resolved
from tests.connectors.exporter.loop import ALERTS, DECIDED, PREFIX, START, Loop, log_dirs, members, standing


@pytest.fixture
def in_force() -> DecisionsInForce:
    return DecisionsInForce()


def record(of: Alert, **changed: Any) -> Record:
    stated = of.model_copy(update={"sequence": to_millis(of.decided_at), **changed})
    return Record(ALERTS, stated.record_key().encode(), decision_event(stated), to_millis(stated.decided_at))


def played(loop: Loop) -> list[Record]:
    loop.step(members(1, cluster=loop.cluster), log_dirs(300, cluster=loop.cluster))
    return [each for each in loop.records if each.topic == DECIDED]


def test_decisions_stand_in_order_of_cluster_policy_and_subject(in_force: DecisionsInForce) -> None:
    for cluster in ("payments", "audit"):
        in_force.fold_records(played(Loop(cluster=cluster)))
    assert [decision.subject for decision in in_force.decisions()] == ["audit", "payments"]


def test_alerts_that_fire_come_the_gravest_and_newest_first(in_force: DecisionsInForce) -> None:
    later = NOON + timedelta(minutes=1)
    old, new = (alert(subject=name, severity=Severity.WARNING) for name in ("old", "new"))
    grave, ended = alert(subject="grave", severity=Severity.CRITICAL), alert(subject="ended")
    in_force.fold_records([record(old), record(new, started_at=later), record(grave), record(ended)])
    in_force.fold_records([record(resolved(later, subject="ended"))])
    assert [each.subject for each in in_force.alerts()] == ["grave", "new", "old"]
    assert {each.subject for each in in_force.alerts(resolved=True)} == {"grave", "new", "old", "ended"}


@pytest.mark.parametrize(("after_seconds", "stale"), [(0, False), (179.9, False), (180, True)])
def test_a_decision_without_a_successor_is_stale_when_its_validity_is_over(
    in_force: DecisionsInForce, after_seconds: float, stale: bool
) -> None:
    in_force.fold_records(played(Loop()))
    (decision,) = in_force.decisions()
    assert is_stale(decision, decision.decided_at + timedelta(seconds=after_seconds)) is stale


def test_who_watches_is_no_decision_and_what_nobody_watches_any_more_is_stale(in_force: DecisionsInForce) -> None:
    in_force.fold_records([*played(Loop()), standing("throttle", START - timedelta(hours=1))])
    (decision,) = in_force.decisions()
    assert in_force.unwatched(START) == {("throttle", "payments")}
    assert is_stale(decision, START, in_force.unwatched(START))
    in_force.fold_records([standing("throttle", START)])
    assert in_force.decisions() == [decision]
    assert not is_stale(decision, START, in_force.unwatched(START))


class Outage:
    """A tail that has read all there is, and then loses Kafka."""

    caught_up = True

    def __init__(self, *_: object) -> None:
        self.problem: str | None = None

    def poll(self, _seconds: float) -> list[Record]:
        return []

    def close(self) -> None:
        """Close nothing."""


def test_what_is_watched_names_an_outage_and_its_ages_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "Tail", Outage)
    monkeypatch.setattr(commands, "reach", lambda *_: None)
    monkeypatch.setattr(commands, "_FRAME_SECONDS", 0.0)
    reader = commands.InForceReader(KafkaConnection(bootstrap_servers="k:1"), PREFIX)
    shown = commands.frames(reader, lambda _in_force, now: f"as of {now:%H:%M:%S.%f}")
    first, second = next(shown), next(shown)
    assert first != second
    reader._tail.problem = "kafka.bootstrap_servers: no answer"  # type: ignore[misc]
    console = Console(file=StringIO(), width=80)
    console.print(next(shown))
    assert "Not up to date: kafka.bootstrap_servers: no answer" in console.file.getvalue()  # type: ignore[attr-defined]
