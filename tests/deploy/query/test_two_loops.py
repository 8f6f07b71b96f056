"""A second loop on the same topics: when an alert names it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from connectors.partitions.deciders import Decider
from deploy.query.two_loops import TwoLoopsWatch

NOON = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)
ONE = [Decider("alpha", "aa"), Decider("beta", "aa")]
TWO = [Decider("alpha", "aa"), Decider("beta", "bb")]


class Looked:
    """A watch, and the alerts it has published."""

    def __init__(self) -> None:
        self.alerts: list[dict[str, Any]] = []
        self.watch = TwoLoopsWatch("headgate", list, self._publish)

    def _publish(self, topic: str, key: str, value: bytes) -> None:
        if topic == "headgate.decided.alerts":
            assert key == "loop/two-loops-decide/headgate"
            self.alerts.append(msgspec.json.decode(value)["data"])

    def look(self, seconds: float, deciders: list[Decider]) -> list[str]:
        before = len(self.alerts)
        self.watch.look(deciders, NOON + timedelta(seconds=seconds))
        return [each["status"] for each in self.alerts[before:]]


def test_two_loops_on_one_prefix_are_a_critical_alert_that_names_both_hosts_until_one_has_ended() -> None:
    looked = Looked()
    assert [looked.look(at, TWO) for at in (0, 15, 30)] == [[], ["firing"], []]
    assert [looked.look(at, ONE) for at in (45, 60)] == [["resolved"], []]
    fired, ended = looked.alerts
    assert (fired["severity"], fired["labels"]["hosts"]) == ("critical", "alpha,beta")
    assert "alpha (checkpoint aa); beta (checkpoint bb)" in fired["summary"]
    assert fired["alert_id"] == ended["alert_id"]


def test_a_loop_with_its_stand_by_and_one_that_has_just_been_killed_are_none() -> None:
    looked = Looked()
    assert [looked.look(at, who) for at, who in ((0, ONE), (15, TWO), (30, ONE), (45, []))] == [[], [], [], []]
