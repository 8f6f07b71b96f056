"""What the loop's topics should be."""

import shlex
from datetime import timedelta

import pytest
from pydantic import ValidationError

from connectors.kafka.topics import (
    TopicDifference,
    TopicPlan,
    TopicSettings,
    acl_commands,
    differences,
    is_shared,
    plan,
    rights,
    rights_of,
)
from policies import registry
from policies.registry import COMMANDS
from policies.units import UserError
from policies.wire import DECIDER_TOPIC, MAX_RECORD_BYTES, SHARES_TOPIC
from tests.cases import for_each

PLANNED = TopicPlan("headgate.x", 1, 3, {"cleanup.policy": "compact", "segment.ms": "3600000"})


def by_name(settings: TopicSettings) -> dict[str, TopicPlan]:
    return {topic.topic: topic for topic in plan(settings)}


def test_every_topic_of_the_registry_is_planned_under_the_prefix() -> None:
    internal = {"audit", "applied.quotas", "applied.reports", "dead-letters", "timers", "ticks", "shares", "decider"}
    expected = {*registry.observed_topics(), *registry.decided_topics(), *internal}
    assert set(by_name(TopicSettings(prefix="x.y"))) == {f"x.y.{name}" for name in expected}


def test_defaults_are_pinned() -> None:
    planned = by_name(TopicSettings())
    assert {topic.replication_factor for topic in planned.values()} == {-1}
    assert {name: topic.partitions for name, topic in planned.items() if topic.partitions != 1} == {
        "headgate.shares": 12
    }
    assert dict(planned["headgate.observed.log-dirs"].config) == {
        "message.timestamp.type": "LogAppendTime", "compression.type": "uncompressed", "cleanup.policy": "delete",
        "retention.ms": "86400000", "max.message.bytes": str(MAX_RECORD_BYTES + 1024 * 1024),
    }  # fmt: skip
    assert dict(planned["headgate.decided.throttle"].config) == {
        "message.timestamp.type": "LogAppendTime", "compression.type": "uncompressed", "cleanup.policy": "compact",
        "segment.ms": "3600000", "max.compaction.lag.ms": "7200000", "min.cleanable.dirty.ratio": "0.1",
        "delete.retention.ms": "86400000", "max.message.bytes": "1065536",
    }  # fmt: skip
    for name, days in (("audit", 30), ("dead-letters", 14)):
        config = planned[f"headgate.{name}"].config
        assert config["retention.ms"] == str(days * 86_400_000)
        assert config["max.message.bytes"] == str(8 * 1024 * 1024)
    timers, ticks = (planned[f"headgate.{name}"].config for name in ("timers", "ticks"))
    assert (timers["cleanup.policy"], ticks["cleanup.policy"]) == ("compact", "delete")
    assert (ticks["retention.ms"], ticks["segment.ms"]) == ("3600000", "3600000"), "the active segment is never deleted"
    assert {timers["max.message.bytes"], ticks["max.message.bytes"]} == {"65536"}


def test_settings_reach_the_plan() -> None:
    settings = TopicSettings(partitions=4, replication_factor=3, observed_retention=timedelta(hours=2))
    planned = by_name(settings)["headgate.observed.log-dirs"]
    assert (planned.partitions, planned.replication_factor) == (4, 3)
    assert planned.config["retention.ms"] == "7200000"


@pytest.mark.parametrize("prefix", ["", "a b", "ä", "x" * 101])
def test_a_prefix_is_a_legal_part_of_a_topic_name(prefix: str) -> None:
    with pytest.raises(ValidationError):
        TopicSettings(prefix=prefix)


def test_a_topic_as_planned_does_not_differ_nor_what_is_left_to_the_brokers() -> None:
    assert list(differences(PLANNED, 1, 3, {**PLANNED.config, "flush.ms": "1"})) == []
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


# --- What each part is given on the loop's Kafka: nobody may write what is another's word

TOPICS = [each.topic.removeprefix("headgate.") for each in plan(TopicSettings()) if not is_shared(each.topic)]


def writers(topic: str) -> set[str]:
    """The parts that may write a topic."""
    return {
        part
        for part, grants in rights().items()
        for grant in grants
        if "Write" in grant.operations and (topic.startswith(grant.name) if grant.is_prefix else topic == grant.name)
    }


@for_each("topic", TOPICS)
def test_decisions_and_commands_have_one_writer_each_and_no_collector_writes_anothers_topic(topic: str) -> None:
    found = writers(topic)
    assert found, "somebody writes it"
    if topic.startswith("decided."):
        assert found == {"decide"}
    if topic == COMMANDS:
        assert found == {"command", "decide"}, "the query publishes pauses again after a lost checkpoint"
    assert len({part for part in found if part.startswith("collect-")}) <= 1


@pytest.mark.parametrize("topic", [SHARES_TOPIC, DECIDER_TOPIC])
def test_what_processes_share_by_is_written_by_nobody(topic: str) -> None:
    assert writers(topic) == set()


def test_the_commands_name_principal_topic_and_pattern() -> None:
    assert list(acl_commands("collect-throttle", "User:c", "loop")) == [
        "--add --allow-principal User:c --operation Describe --operation DescribeConfigs --topic loop. "
        "--resource-pattern-type prefixed",
        "--add --allow-principal User:c --operation Read --topic loop.observed.log-dirs",
        "--add --allow-principal User:c --operation Write --topic loop.observed.log-dirs",
        "--add --allow-principal User:c --operation Read --topic loop.shares",
        "--add --allow-principal User:c --operation Read --group loop.collect. --resource-pattern-type prefixed",
    ]


def test_a_principal_is_one_word_to_the_shell_whatever_is_in_it() -> None:
    principal = "User:CN=Ann O'Hara; rm -rf,O=$(id)"
    for line in acl_commands("decide", principal, "loop"):
        words = shlex.split(line)
        assert words[words.index("--allow-principal") + 1] == principal


@pytest.mark.parametrize("principal", ["headgate", "", ":", "User:", "User: "])
def test_what_kafka_takes_for_no_principal_is_refused(principal: str) -> None:
    with pytest.raises(UserError, match=r"is no principal: write it as Kafka names it, such as User:\w+"):
        list(acl_commands("decide", principal, "loop"))


def test_a_part_that_is_none_is_named() -> None:
    with pytest.raises(UserError, match="'eat' is no component: write one of collect-throttle"):
        rights_of("eat")
