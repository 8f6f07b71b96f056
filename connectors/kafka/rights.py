"""The least privileges of each component on the loop's own Kafka, with a principal for each component.

A writer of an observed topic determines Headgate's knowledge of the clusters in it. So each policy's collectors get a
principal of their own, which can write that policy's topics and no others.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from policies.batches import BATCHES
from policies.bookie_disks.publish_state import PublishState
from policies.errors import UserError
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
from policies.shares import DECIDER_TOPIC, SHARES_TOPIC
from policies.throttle import LogDirs
from policies.throttle.quota_state import QuotaState
from policies.timers import TICKS, TIMERS

_ALL = ""
_PRINCIPAL = re.compile(r"[A-Za-z]+:\S.*")
_OBSERVED = "observed."
_DECIDED = "decided."
_WRITTEN_BY_ACT = (observed_topic(QuotaState), observed_topic(PublishState))


class Resource(StrEnum):
    """The kinds of resources, by the names of `kafka-acls.sh`."""

    TOPIC = "topic"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class Grant:
    """A right on a topic or a consumer group, or on all with a prefix."""

    name: str
    """Without the loop's prefix."""
    is_prefix: bool
    operations: tuple[str, ...]
    """As `kafka-acls.sh` names them."""
    resource: Resource = Resource.TOPIC


_LOOK = Grant(_ALL, is_prefix=True, operations=("Describe", "DescribeConfigs"))
"""Every component checks the topics' configuration when it starts."""


def _grant(operation: str, *topics: str) -> Iterator[Grant]:
    return (Grant(topic, topic.endswith("."), (operation,)) for topic in topics)


_read, _write = partial(_grant, "Read"), partial(_grant, "Write")


def _member(topic: str, group: str) -> tuple[Grant, ...]:
    """Return the rights to divide work with identical processes; the topic has no records."""
    return (
        Grant(topic, is_prefix=False, operations=("Read",)),
        Grant(group, is_prefix=True, operations=("Read",), resource=Resource.GROUP),
    )


def _collectors() -> Mapping[str, tuple[Grant, ...]]:
    topics: dict[str, list[str]] = {}
    for topic, policy in observed_topics().items():
        if topic not in (COMMANDS, *_WRITTEN_BY_ACT):
            topics.setdefault(policy, []).append(topic)
    # A collector reads its own topics at its start, so that it knows its last readings.
    member = _member(SHARES_TOPIC, "collect.")
    return {f"collect-{policy}": (_LOOK, *_read(*names), *_write(*names), *member) for policy, names in topics.items()}


def rights() -> Mapping[str, tuple[Grant, ...]]:
    """Return the rights of all components: collect-<policy>, decide, export, canary (of export), act, command."""
    observed = [topic for topic in observed_topics() if topic != COMMANDS]
    return {
        **_collectors(),
        "decide": (
            _LOOK,
            *_read(_OBSERVED, _DECIDED, COMMANDS, TICKS, TIMERS, DEAD_LETTERS, REPORTS),
            # After the loss of its checkpoint the query publishes the pauses in force again.
            *_write(_DECIDED, AUDIT, DEAD_LETTERS, TICKS, TIMERS, BATCHES, COMMANDS, REPORTS),
            *_member(DECIDER_TOPIC, "decide."),
        ),
        "export": (Grant(_ALL, is_prefix=True, operations=("Describe", "DescribeConfigs", "Read")),),
        # Separate from `export`, which only reads: this right allows to publish log dirs of any cluster.
        "canary": (_LOOK, *_write(observed_topic(LogDirs))),
        "act": (
            _LOOK,
            *_read(_OBSERVED, _DECIDED, AUDIT, APPLIED_QUOTAS),
            *_write(
                AUDIT,
                APPLIED_QUOTAS,
                REPORTS,
                *_WRITTEN_BY_ACT,
                *(topic for topic in observed if observed_topics()[topic] == "switching"),
            ),
            *_member(SHARES_TOPIC, "act"),
        ),
        "command": (_LOOK, *_read(_OBSERVED, REPORTS, *decided_topics()), *_write(COMMANDS)),
    }


def rights_of(component: str) -> tuple[Grant, ...]:
    """Return the rights of one component. Raises UserError if the component does not exist."""
    known = rights()
    if component not in known:
        raise UserError(f"'{component}' is no component: write one of {', '.join(known)}")
    return known[component]


def acl_commands(component: str, principal: str, prefix: str) -> Iterator[str]:
    """Yield arguments of `kafka-acls.sh` that grant a principal a component's rights, one line each.

    Raises:
        UserError: the component does not exist, or the principal is malformed.
    """
    if not _PRINCIPAL.fullmatch(principal):
        name = principal.rpartition(":")[2].strip() or f"headgate-{component}"
        raise UserError(f"'{principal}' is no principal: write it as Kafka names it, such as User:{name}")
    for grant in rights_of(component):
        yield acl_command(grant, principal, prefix)


def quote_principal(principal: str) -> str:
    """Quote a principal for the shell, always: distinguished names have spaces and quotes."""
    return "'" + principal.replace("'", "'\\''") + "'"


def acl_command(grant: Grant, principal: str, prefix: str) -> str:
    """Return the arguments of `kafka-acls.sh` that grant a principal one right."""
    pattern = " --resource-pattern-type prefixed" if grant.is_prefix else ""
    operations = "".join(f" --operation {operation}" for operation in grant.operations)
    who = quote_principal(principal)
    return f"--add --allow-principal {who}{operations} --{grant.resource} {prefix}.{grant.name}{pattern}"


def missing_rights(
    component: str, prefix: str, topics: Mapping[str, frozenset[str]], groups: Mapping[Grant, frozenset[str]]
) -> Iterator[Grant]:
    """Yield the rights of a component that a client lacks.

    `topics` has the client's operations on each existing topic. `groups` has them for each right on consumer groups; a
    right that is missing there counts as granted.

    Raises:
        UserError: the component does not exist.
    """
    for grant in rights_of(component):
        name = f"{prefix}.{grant.name}"
        if grant.resource is Resource.GROUP:
            allowed = [groups.get(grant, frozenset(grant.operations))]
        else:
            allowed = [
                may for each, may in topics.items() if each == name or (grant.is_prefix and each.startswith(name))
            ]
        missing = tuple(each for each in grant.operations if not all(each in may for may in allowed))
        if missing:
            yield replace(grant, operations=missing)
