"""What each part is given on the loop's Kafka: nobody may write what is another's word."""

import shlex

import pytest

from connectors.kafka.topics import TopicSettings, acl_commands, is_shared, plan, rights, rights_of
from policies.registry import COMMANDS
from policies.units import UserError
from policies.wire import DECIDER_TOPIC, SHARES_TOPIC
from tests.cases import for_each

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
        "--add --allow-principal 'User:c' --operation Describe --operation DescribeConfigs --topic loop. "
        "--resource-pattern-type prefixed",
        "--add --allow-principal 'User:c' --operation Read --topic loop.observed.log-dirs",
        "--add --allow-principal 'User:c' --operation Write --topic loop.observed.log-dirs",
        "--add --allow-principal 'User:c' --operation Read --topic loop.shares",
        "--add --allow-principal 'User:c' --operation Read --group loop.collect. --resource-pattern-type prefixed",
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
