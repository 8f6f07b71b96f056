"""The loop's topics: their settings and those of dividing work on them, planned configuration, and rights."""

import re
import shlex
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from policies.bookie_disks.readings import PublishState
from policies.policy import TICKS, TIMERS
from policies.registry import (
    APPLIED_QUOTAS,
    AUDIT,
    COMMANDS,
    DEAD_LETTERS,
    REPORTS,
    decided_topics,
    observed_topic,
    observed_topics,
)
from policies.throttle.quotas import QuotaState
from policies.units import PositiveDuration, UserError, millis_of, parse_duration
from policies.wire import DECIDER_TOPIC, MAX_DECISION_BYTES, MAX_RECORD_BYTES, SHARE_COUNT, SHARES_TOPIC

TIMESTAMPS = "message.timestamp.type"
"""The only indispensable setting of a topic: without it ages are unknown, and nothing is decided."""

CLEANUP = "cleanup.policy"
"""A decided topic that deletes by age loses decisions in force; a topic that compacts where it should delete
grows forever."""

PARTITIONS = "partitions"
"""The key of a difference in the number of partitions."""

_MEBIBYTE = 1024 * 1024
_LARGE_BYTES = 8 * _MEBIBYTE
"""Maximum size of an audit entry or a dead letter, as of any record that the query and the publishers send."""
_BROKER_DEFAULT = -1
_NAME = r"^[A-Za-z0-9._-]{1,100}$"
_OVERHEAD_BYTES = 64 * 1024
"""Key, headers and batch, which Kafka counts, too."""

_SEGMENT = timedelta(hours=1)
"""Kafka never compacts or deletes the active segment, so topics that are almost idle need short segments."""

_COMMON = {
    # The age of an observation counts from its append time, because a collector's clock may be wrong.
    TIMESTAMPS: "LogAppendTime",
    # `max.message.bytes` would count compressed bytes, and a few kilobytes of spaces expand to a gigabyte.
    "compression.type": "uncompressed",
}
_COMPACTED = {
    **_COMMON,
    CLEANUP: "compact",
    # With a limit for the age of replaced decisions, because a new subscriber reads them all.
    "segment.ms": str(millis_of(_SEGMENT)),
    "max.compaction.lag.ms": str(2 * millis_of(_SEGMENT)),
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": str(millis_of(timedelta(days=1))),
    "max.message.bytes": str(MAX_DECISION_BYTES + _OVERHEAD_BYTES),
}

_SHARED_BY = {SHARES_TOPIC: SHARE_COUNT, DECIDER_TOPIC: 1}
"""Topics without records, with their numbers of partitions: processes divide these as work partitions."""


class TopicSettings(BaseModel):
    """Names, partitions and retention of the loop's topics."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    prefix: str = Field(
        default="headgate",
        pattern=_NAME,
        description="Stands before each topic's name, with a dot.",
    )
    partitions: int = Field(
        default=1,
        ge=1,
        le=1000,
        description="Partitions of each topic. One is enough for thousands of brokers; more cost more batches.",
    )
    replication_factor: int | None = Field(
        default=None, ge=1, le=32767, description="Copies of each record. Default: the brokers' default."
    )
    observed_retention: PositiveDuration = Field(
        default=parse_duration("1d"), description="How far back observations can be replayed."
    )
    audit_retention: PositiveDuration = Field(
        default=parse_duration("30d"), description="How far back decisions can be explained."
    )
    dead_letter_retention: PositiveDuration = Field(
        default=parse_duration("14d"), description="How long bad records are kept for inspection."
    )

    def topic(self, name: str) -> str:
        """Return a topic's full name, given one such as ``observed.log-dirs``."""
        return f"{self.prefix}.{name}"


class PartitionSettings(BaseModel):
    """How identical processes (`collect`, `act`, `decide`, `run`) divide their work."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    session_timeout: PositiveDuration = Field(
        default=parse_duration("6s"),
        description="When Kafka has not heard from a process for this time, another process takes over its work. "
        "Not less than the brokers' `group.min.session.timeout.ms`.",
    )
    instance: str | None = Field(
        default=None,
        pattern=_NAME,
        description="A lasting name of this process, such as its pod's in a StatefulSet. A process that restarts "
        "within `session_timeout` keeps its work, and no other process is disturbed. Each process needs its own name.",
    )
    name: str | None = Field(
        default=None,
        pattern=_NAME,
        description="Actuators with the same name divide the clusters among them; actuators with other `clusters` "
        "in their settings need another name.",
    )


class TopicPlan(NamedTuple):
    """The planned configuration of one topic."""

    topic: str
    partitions: int
    replication_factor: int
    """-1 for the brokers' default."""
    config: Mapping[str, str]


class TopicDifference(NamedTuple):
    """A difference between a topic and its plan."""

    topic: str
    key: str
    expected: str
    found: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.key} is {self.found}, expected {self.expected}: {self.remedy}"


def plan(settings: TopicSettings) -> tuple[TopicPlan, ...]:
    """Return all topics of the loop by name: of events, and of its own timers, ticks and work partitions."""
    # More than the largest record that is read, so that a larger one arrives and becomes a dead letter.
    observed = _retain(settings.observed_retention, MAX_RECORD_BYTES + _MEBIBYTE)
    shared = {**_COMMON, CLEANUP: "delete"}
    configs = {
        **dict.fromkeys(observed_topics(), observed),
        **dict.fromkeys((*decided_topics(), APPLIED_QUOTAS, REPORTS), _COMPACTED),
        AUDIT: _retain(settings.audit_retention, _LARGE_BYTES),
        DEAD_LETTERS: _retain(settings.dead_letter_retention, _LARGE_BYTES),
        TIMERS: {**_COMPACTED, "max.message.bytes": str(_OVERHEAD_BYTES)},
        # A tick is of no use after it was read.
        TICKS: {**_retain(_SEGMENT, _OVERHEAD_BYTES), "segment.ms": str(millis_of(_SEGMENT))},
        **dict.fromkeys(_SHARED_BY, shared),
    }
    replication = settings.replication_factor or _BROKER_DEFAULT
    return tuple(
        TopicPlan(settings.topic(name), _SHARED_BY.get(name, settings.partitions), replication, config)
        for name, config in sorted(configs.items())
    )


def differences(
    planned: TopicPlan, partitions: int, copies: int, config: Mapping[str, str]
) -> Iterator[TopicDifference]:
    """Yield the differences between an existing topic and its plan; a brokers' default is none."""
    name = planned.topic
    if partitions != planned.partitions:
        add = "add partitions with kafka-topics.sh --alter"
        remedy = add if is_shared(name) else f"set topics.partitions to {partitions}, or {add}"
        yield TopicDifference(name, PARTITIONS, str(planned.partitions), str(partitions), remedy)
    if planned.replication_factor not in (_BROKER_DEFAULT, copies):
        remedy = f"set topics.replication_factor to {copies}, or reassign with kafka-reassign-partitions.sh"
        yield TopicDifference(name, "replication factor", str(planned.replication_factor), str(copies), remedy)
    for key, expected in planned.config.items():
        found = config.get(key, "unknown")
        if found != expected:
            alter = "kafka-configs.sh --alter --entity-type topics"
            yield TopicDifference(
                name, key, expected, found, f"{alter} --entity-name {name} --add-config {key}={expected}"
            )


def is_shared(topic: str) -> bool:
    """Whether a topic's partitions are work partitions."""
    return topic.rpartition(".")[2] in _SHARED_BY


def _retain(retention: timedelta, record_bytes: int) -> dict[str, str]:
    return {
        **_COMMON,
        CLEANUP: "delete",
        "retention.ms": str(millis_of(retention)),
        "max.message.bytes": str(record_bytes),
    }


# The least privileges of each component on the loop's own Kafka, with a principal for each component.
#
# A writer of an observed topic determines Headgate's knowledge of the clusters in it. So each policy's collectors get
# a principal of their own, which can write that policy's topics and no others.

_ALL = ""
_PRINCIPAL = re.compile(r"[A-Za-z]+:\S.*")
_OBSERVED = "observed."
_DECIDED = "decided."
_WRITTEN_BY_ACT = (observed_topic(QuotaState), observed_topic(PublishState))


RUN_PARTS = ("collect", "decide", "export", "act")
"""The parts of `headgate run`, and the workloads of the Helm chart."""


TOPIC, GROUP = "topic", "group"
"""The kinds of resources, by the names of `kafka-acls.sh`."""


class Grant(NamedTuple):
    """A right on a topic or a consumer group, or on all with a prefix."""

    name: str
    """Without the loop's prefix."""
    operations: tuple[str, ...]
    """As `kafka-acls.sh` names them."""
    resource: str = TOPIC

    @property
    def is_prefix(self) -> bool:
        """Whether the right is on all that begin with the name."""
        return self.resource == GROUP or not self.name or self.name.endswith(".")


_LOOK = Grant(_ALL, ("Describe", "DescribeConfigs"))
"""Every component checks the topics' configuration when it starts."""


def _grant(operation: str, *topics: str) -> Iterator[Grant]:
    return (Grant(topic, (operation,)) for topic in topics)


_read, _write = partial(_grant, "Read"), partial(_grant, "Write")


def _member(topic: str, group: str) -> tuple[Grant, ...]:
    """Return the rights to divide work with identical processes; the topic has no records."""
    return (Grant(topic, ("Read",)), Grant(group, ("Read",), GROUP))


def rights() -> Mapping[str, tuple[Grant, ...]]:
    """Return the rights of all components: collect, collect-<policy>, decide, export, act, command, topics."""
    observed = {topic: policy for topic, policy in observed_topics().items() if topic != COMMANDS}
    collected: dict[str, list[str]] = {}
    for topic, policy in observed.items():
        if topic not in _WRITTEN_BY_ACT:
            collected.setdefault(policy, []).append(topic)
    # A collector reads its own topics at its start, so that it knows its last readings.
    member = _member(SHARES_TOPIC, "collect.")
    collectors = {f"collect-{name}": (_LOOK, *_read(*of), *_write(*of), *member) for name, of in collected.items()}
    return {
        **collectors,
        # One process with all collectors, as `headgate collect` starts them.
        "collect": tuple(dict.fromkeys(grant for grants in collectors.values() for grant in grants)),
        "decide": (
            _LOOK,
            *_read(_OBSERVED, _DECIDED, COMMANDS, TICKS, TIMERS, DEAD_LETTERS, REPORTS),
            # After the loss of its checkpoint the query publishes the pauses in force again.
            *_write(_DECIDED, AUDIT, DEAD_LETTERS, TICKS, TIMERS, COMMANDS, REPORTS),
            *_member(DECIDER_TOPIC, "decide."),
        ),
        "export": (Grant(_ALL, ("Describe", "DescribeConfigs", "Read")),),
        "act": (
            _LOOK,
            *_read(_OBSERVED, _DECIDED, AUDIT),
            *_write(
                AUDIT,
                APPLIED_QUOTAS,
                REPORTS,
                *_WRITTEN_BY_ACT,
                *(topic for topic, policy in observed.items() if policy == "switching"),
            ),
            *_member(SHARES_TOPIC, "act"),
        ),
        "command": (_LOOK, *_read(_OBSERVED, REPORTS, *decided_topics()), *_write(COMMANDS)),
        # `headgate topics create`.
        "topics": (Grant(_ALL, ("Create", "Describe", "DescribeConfigs")),),
    }


def rights_of(component: str) -> tuple[Grant, ...]:
    """Return the rights of one component. Raises UserError if the component does not exist."""
    known = rights()
    if component not in known:
        raise UserError(f"'{component}' is no component: write one of {', '.join(known)}")
    return known[component]


def acl_commands(component: str, principal: str, prefix: str) -> Iterator[str]:
    """Yield arguments of `kafka-acls.sh` that grant a principal a component's rights, one line each.

    Raises UserError if the component does not exist, or the principal is malformed.
    """
    if not _PRINCIPAL.fullmatch(principal):
        name = principal.rpartition(":")[2].strip() or f"headgate-{component}"
        raise UserError(f"'{principal}' is no principal: write it as Kafka names it, such as User:{name}")
    for grant in rights_of(component):
        yield acl_command(grant, principal, prefix)


def acl_command(grant: Grant, principal: str, prefix: str) -> str:
    """Return the arguments of `kafka-acls.sh` that grant a principal one right."""
    pattern = " --resource-pattern-type prefixed" if grant.is_prefix else ""
    operations = "".join(f" --operation {operation}" for operation in grant.operations)
    who = shlex.quote(principal)
    return f"--add --allow-principal {who}{operations} --{grant.resource} {prefix}.{grant.name}{pattern}"


def missing_rights(
    component: str, prefix: str, topics: Mapping[str, frozenset[str]], groups: Mapping[Grant, frozenset[str]]
) -> Iterator[Grant]:
    """Yield the rights of a component that a client lacks.

    `topics` has the client's operations on each existing topic. `groups` has them for each right on consumer groups; a
    right that is missing there counts as granted. Raises UserError if the component does not exist.
    """
    for grant in rights_of(component):
        name = f"{prefix}.{grant.name}"
        if grant.resource == GROUP:
            allowed = [groups.get(grant, frozenset(grant.operations))]
        else:
            allowed = [m for each, m in topics.items() if each == name or (grant.is_prefix and each.startswith(name))]
        missing = tuple(each for each in grant.operations if not all(each in may for may in allowed))
        if missing:
            yield grant._replace(operations=missing)
