"""What a policy of an installed package is inside the rooms; `test_bring_your_own_policy.py` runs this where it is."""

# ruff: noqa: N802, N803 - Spark names the hooks of a StatefulProcessor

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from connectors.exporter.loop_view import LoopView
from connectors.kafka.tail import Record
from policies.observations import Outcome, Reading
from policies.registry import POLICIES
from policies.units import to_millis
from policies.wire import observation_event
from streaming.host import PolicyHost
from streaming.operator import PolicyOperator

KIND = POLICIES["replication"]
START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
SETTINGS = KIND.settings.model_validate({"hold": "2m"})
OBSERVED, DECIDED = "headgate.observed.replication", "headgate.decided.replication"


class _Unwrapped(PolicyOperator):
    """The tester puts each key into a tuple of one; Spark gives a key of two columns as it is."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        return super().handleInputRows(key[0], rows, timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        return super().handleExpiredTimer(key[0], timerValues, expiredTimerInfo)


class Loop:
    """The operator and the exporter's picture, in virtual time."""

    def __init__(self) -> None:
        self._tester = TwsTester(
            _Unwrapped(PolicyHost({"replication": SETTINGS}), "headgate"), timeMode="ProcessingTime"
        )
        self._tester.handle.setGroupingKey(("replication", "payments"))
        self._view = LoopView("headgate", {"replication": SETTINGS})

    def step(self, seconds: float, under_replicated: int | None = None) -> list[Row]:
        """A batch with a reading, or with what is due by then alone; gives what is written."""
        at = START + timedelta(seconds=seconds)
        self._tester._currentProcessingTimeMs = now_ms = to_millis(at)
        out: list[Row] = []
        if under_replicated is not None:
            reading: Reading = KIND.readings[0](
                cluster="payments", outcome=Outcome.OK, under_replicated=under_replicated, partitions=9
            )
            event = observation_event(reading, id=f"reading@{seconds}", source="test", time=at)
            self._view.fold([Record(OBSERVED, b"payments", event, now_ms)], live=True)
            row = Row(value=event, topic=OBSERVED, partition=0, offset=0, appended_ms=now_ms)
            out = self._tester.test(("replication", "payments"), [row])
        out += self._tester._handleExpiredTimers()
        records = [Record(row.topic, row.key.encode(), row.value, now_ms) for row in out if ".decided." in row.topic]
        self._view.fold(records, live=True)
        return out

    def verdicts(self, seconds: float, under_replicated: int | None = None) -> list[tuple[str, str]]:
        """(verdict, reason) of each decision of a batch."""
        data = (json.loads(row.value)["data"] for row in self.step(seconds, under_replicated) if row.topic == DECIDED)
        return [(each["verdict"], each["reason"]) for each in data]

    def series(self, seconds: float, name: str) -> dict[tuple[str, ...], float]:
        """The samples of a metric by their labels' values."""
        now_ms = to_millis(START + timedelta(seconds=seconds))
        return {
            tuple(sample.labels.values()): sample.value
            for metric in self._view.metrics(now_ms)
            for sample in metric.samples
            if sample.name == name
        }


def test_the_operator_steps_it_with_its_hold_and_its_timer() -> None:
    loop = Loop()
    assert loop.verdicts(0, 0) == [("ok", "replicated")]
    assert loop.verdicts(10, 3) == [("degraded", "under_replicated")]
    assert loop.verdicts(20, 0) == [("degraded", "hold")]
    assert loop.verdicts(139) == [("degraded", "hold")], "the heartbeat"
    assert loop.verdicts(140) == [("ok", "replicated")], "no reading: its timer"


def test_decision_and_alert_go_to_their_topics_and_to_the_audit() -> None:
    own = ("headgate.decided.standing", "headgate.timers")
    out = [row for row in Loop().step(0, 3) if row.topic not in own]
    assert [row.topic for row in out] == [DECIDED, "headgate.decided.alerts", "headgate.audit", "headgate.audit"]
    assert out[1].key == "replication/partitions-under-replicated/payments"


def test_the_exporter_shows_its_gauge_its_alert_and_when_it_is_stale() -> None:
    loop = Loop()
    loop.step(0, 3)
    assert loop.series(0, "headgate_under_replicated_partitions") == {("payments",): 3}
    assert loop.series(0, "headgate_alerts") == {("partitions-under-replicated", "warning", "payments"): 1}
    assert loop.series(179, "headgate_decision_stale") == {("replication", "payments"): 0}
    assert loop.series(180, "headgate_decision_stale") == {("replication", "payments"): 1}
