"""A second loop on the same topics, and topics that are missing or wrong: when an alert names them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from connectors.kafka.topic_admin import TopicReport
from connectors.kafka.topics import TopicSettings, differences, plan
from connectors.partitions.membership import Decider
from deploy.query.components import LoopWatch

NOON = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)
AS_PLANNED = TopicReport()
ONE = [Decider("alpha", "aa"), Decider("beta", "aa")]
TWO = [Decider("alpha", "aa"), Decider("beta", "bb")]


class Looked:
    """A watch, and the alerts it has published."""

    def __init__(self) -> None:
        self.alerts: list[dict[str, Any]] = []
        self.watch = LoopWatch("headgate", list, TopicReport, self._publish)

    def _publish(self, topic: str, key: str, value: bytes) -> None:
        if topic == "headgate.decided.alerts":
            self.alerts.append(msgspec.json.decode(value)["data"])
            assert key == "loop/{alert}/{subject}".format_map(self.alerts[-1])

    def look(self, seconds: float, deciders: list[Decider], topics: TopicReport = AS_PLANNED) -> list[str]:
        before = len(self.alerts)
        self.watch.look(deciders, topics, NOON + timedelta(seconds=seconds))
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


def test_a_topic_that_is_gone_or_deletes_decisions_is_named_with_the_command_while_the_loop_runs() -> None:
    (planned,) = [each for each in plan(TopicSettings()) if each.topic == "headgate.decided.throttle"]
    wrong = {**planned.config, "cleanup.policy": "delete", "segment.ms": "7"}
    report = TopicReport(missing=("headgate.audit",), differences=tuple(differences(planned, 1, 1, wrong)))
    looked = Looked()
    assert [looked.look(at, ONE, report) for at in (0, 15, 30)] == [[], ["firing", "firing"], []]
    assert sorted(each["summary"] for each in looked.alerts) == [
        "headgate.audit is missing: create it with `headgate topics create`",
        "headgate.decided.throttle: cleanup.policy is delete, expected compact: kafka-configs.sh --alter --entity-type "
        "topics --entity-name headgate.decided.throttle --add-config cleanup.policy=compact",
    ]
    assert looked.look(45, ONE) == ["resolved", "resolved"]
