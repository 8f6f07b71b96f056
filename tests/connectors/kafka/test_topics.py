"""What the loop's topics should be."""

from datetime import timedelta

import pytest
from pydantic import ValidationError

from connectors.kafka.topics import TopicDifference, TopicPlan, TopicSettings, differences, plan
from policies import registry
from policies.wire import MAX_RECORD_BYTES

PLANNED = TopicPlan("headgate.x", 1, 3, {"cleanup.policy": "compact", "segment.ms": "3600000"})


def by_name(settings: TopicSettings) -> dict[str, TopicPlan]:
    return {topic.topic: topic for topic in plan(settings)}


def test_every_topic_of_the_registry_is_planned_under_the_prefix() -> None:
    internal = {
        "audit",
        "applied.quotas",
        "applied.reports",
        "dead-letters",
        "timers",
        "ticks",
        "shares",
        "decider",
    }
    expected = {*registry.observed_topics(), *registry.decided_topics(), *internal}
    assert set(by_name(TopicSettings(prefix="x.y"))) == {f"x.y.{name}" for name in expected}


def test_defaults_are_pinned() -> None:
    planned = by_name(TopicSettings())
    assert {topic.replication_factor for topic in planned.values()} == {-1}
    assert {name: topic.partitions for name, topic in planned.items() if topic.partitions != 1} == {
        "headgate.shares": 12
    }
    assert dict(planned["headgate.observed.log-dirs"].config) == {
        "message.timestamp.type": "LogAppendTime",
        "compression.type": "uncompressed",
        "cleanup.policy": "delete",
        "retention.ms": "86400000",
        "max.message.bytes": str(MAX_RECORD_BYTES + 1024 * 1024),
    }
    assert dict(planned["headgate.decided.throttle"].config) == {
        "message.timestamp.type": "LogAppendTime",
        "compression.type": "uncompressed",
        "cleanup.policy": "compact",
        "segment.ms": "3600000",
        "max.compaction.lag.ms": "7200000",
        "min.cleanable.dirty.ratio": "0.1",
        "delete.retention.ms": "86400000",
        "max.message.bytes": "1065536",
    }
    for name, days in (("audit", 30), ("dead-letters", 14)):
        config = planned[f"headgate.{name}"].config
        assert config["retention.ms"] == str(days * 86_400_000)
        assert config["max.message.bytes"] == str(8 * 1024 * 1024)
    timers, ticks = (planned[f"headgate.{name}"].config for name in ("timers", "ticks"))
    assert (timers["cleanup.policy"], ticks["cleanup.policy"]) == ("compact", "delete")
    assert (ticks["retention.ms"], ticks["segment.ms"]) == ("3600000", "3600000"), "the active segment is never deleted"
    assert {timers["max.message.bytes"], ticks["max.message.bytes"]} == {"65536"}


def test_every_topic_takes_the_brokers_time() -> None:
    assert {topic.config["message.timestamp.type"] for topic in plan(TopicSettings())} == {"LogAppendTime"}


def test_of_no_topic_the_limit_counts_compressed_bytes() -> None:
    for topic in plan(TopicSettings()):
        assert topic.config["compression.type"] == "uncompressed"


def test_settings_reach_the_plan() -> None:
    settings = TopicSettings(partitions=4, replication_factor=3, observed_retention=timedelta(hours=2))
    planned = by_name(settings)["headgate.observed.log-dirs"]
    assert (planned.partitions, planned.replication_factor) == (4, 3)
    assert planned.config["retention.ms"] == "7200000"


@pytest.mark.parametrize("prefix", ["", "a b", "ä", "x" * 101])
def test_a_prefix_is_a_legal_part_of_a_topic_name(prefix: str) -> None:
    with pytest.raises(ValidationError):
        TopicSettings(prefix=prefix)


def test_a_topic_as_planned_does_not_differ() -> None:
    assert list(differences(PLANNED, 1, 3, {**PLANNED.config, "flush.ms": "1"})) == []


def test_what_is_left_to_the_brokers_does_not_differ() -> None:
    assert list(differences(TopicPlan("x", 1, -1, {}), 1, 2, {})) == []


def test_each_difference_names_key_expected_found_and_remedy() -> None:
    found = list(differences(PLANNED, 2, 1, {"cleanup.policy": "delete"}))
    assert [(d.key, d.expected, d.found) for d in found] == [
        ("partitions", "1", "2"),
        ("replication factor", "3", "1"),
        ("cleanup.policy", "compact", "delete"),
        ("segment.ms", "3600000", "unknown"),
    ]
    assert found[0].remedy == "set topics.partitions to 2, or add partitions with kafka-topics.sh --alter"
    assert found[2].remedy == (
        "kafka-configs.sh --alter --entity-type topics --entity-name headgate.x --add-config cleanup.policy=compact"
    )
    assert str(TopicDifference("t", "k", "1", "2", "do it")) == "t: k is 2, expected 1: do it"
