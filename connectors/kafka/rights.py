"""The least privileges of each part on the loop's own Kafka, with one principal per part.

Who may write an observed topic determines what Headgate believes about the clusters in it. So each policy's collectors
get a principal of their own, which can write that policy's topic and nothing else.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from policies.batches import BATCHES
from policies.errors import UserError
from policies.registry import APPLIED_QUOTAS, AUDIT, COMMANDS, DEAD_LETTERS, decided_topics, observed_topics, topic_of
from policies.shares import DECIDER_TOPIC, SHARES_TOPIC
from policies.throttle import LogDirs
from policies.timers import TICKS, TIMERS

_ALL = ""
_PRINCIPAL = re.compile(r"[A-Za-z]+:\S.*")
_OBSERVED = "observed."
_DECIDED = "decided."


class Resource(StrEnum):
    """What there are rights on; values as `kafka-acls.sh` names them."""

    TOPIC = "topic"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class Grant:
    """What a principal may do to a topic or a consumer group, or to all whose names begin so."""

    name: str
    """Without the loop's prefix."""
    is_prefix: bool
    operations: tuple[str, ...]
    """As `kafka-acls.sh` names them."""
    resource: Resource = Resource.TOPIC


_LOOK = Grant(_ALL, is_prefix=True, operations=("Describe", "DescribeConfigs"))
"""Every part looks at the start whether the topics are as planned."""


def _read(*topics: str) -> Iterator[Grant]:
    return (Grant(topic, topic.endswith("."), ("Read",)) for topic in topics)


def _write(*topics: str) -> Iterator[Grant]:
    return (Grant(topic, topic.endswith("."), ("Write",)) for topic in topics)


def _share(topic: str, group: str) -> tuple[Grant, ...]:
    """What it takes to share work with processes alike: nothing is read or written there."""
    return (
        Grant(topic, is_prefix=False, operations=("Read",)),
        Grant(group, is_prefix=True, operations=("Read",), resource=Resource.GROUP),
    )


def _collectors() -> Mapping[str, tuple[Grant, ...]]:
    topics: dict[str, list[str]] = {}
    for topic, policy in observed_topics().items():
        if topic != COMMANDS:
            topics.setdefault(policy, []).append(topic)
    # What it published before is read when it begins, so that nobody's trouble is forgotten.
    share = _share(SHARES_TOPIC, "collect.")
    return {f"collect-{policy}": (_LOOK, *_read(*names), *_write(*names), *share) for policy, names in topics.items()}


def rights() -> Mapping[str, tuple[Grant, ...]]:
    """By part: `collect-<policy>`, `decide`, `export`, `canary` (of `export`), `act`, `command`."""
    observed = [topic for topic in observed_topics() if topic != COMMANDS]
    return {
        **_collectors(),
        "decide": (
            _LOOK,
            *_read(_OBSERVED, _DECIDED, COMMANDS, TICKS, TIMERS, DEAD_LETTERS),
            *_write(_DECIDED, AUDIT, DEAD_LETTERS, TICKS, TIMERS, BATCHES),
            *_share(DECIDER_TOPIC, "decide."),
        ),
        "export": (Grant(_ALL, is_prefix=True, operations=("Describe", "DescribeConfigs", "Read")),),
        # Apart from `export`, which reads alone: who has this may tell of any cluster's log dirs.
        "canary": (_LOOK, *_write(topic_of(LogDirs))),
        "act": (
            _LOOK,
            *_read(_OBSERVED, _DECIDED, AUDIT, APPLIED_QUOTAS),
            *_write(AUDIT, APPLIED_QUOTAS, *(topic for topic in observed if observed_topics()[topic] == "switching")),
            *_share(SHARES_TOPIC, "act"),
        ),
        "command": (_LOOK, *_read(_OBSERVED, *decided_topics()), *_write(COMMANDS)),
    }


def rights_of(part: str) -> tuple[Grant, ...]:
    """Those of one part.

    Raises:
        UserError: there is no such part.
    """
    known = rights()
    if part not in known:
        raise UserError(f"'{part}' is no part: write one of {', '.join(known)}")
    return known[part]


def acl_commands(part: str, principal: str, prefix: str) -> Iterator[str]:
    """Arguments of `kafka-acls.sh` that give a principal a part's rights, one line each.

    Raises:
        UserError: there is no such part, or that is no principal.
    """
    if not _PRINCIPAL.fullmatch(principal):
        name = principal.rpartition(":")[2].strip() or f"headgate-{part}"
        raise UserError(f"'{principal}' is no principal: write it as Kafka names it, such as User:{name}")
    for grant in rights_of(part):
        yield acl_command(grant, principal, prefix)


def in_quotes(principal: str) -> str:
    """As a shell takes it for one word, whatever is in it: distinguished names have spaces and quotes."""
    return "'" + principal.replace("'", "'\\''") + "'"


def acl_command(grant: Grant, principal: str, prefix: str) -> str:
    """Arguments of `kafka-acls.sh` that give a principal one right."""
    pattern = " --resource-pattern-type prefixed" if grant.is_prefix else ""
    operations = "".join(f" --operation {operation}" for operation in grant.operations)
    return (
        f"--add --allow-principal {in_quotes(principal)}{operations} --{grant.resource} {prefix}.{grant.name}{pattern}"
    )


def lacking(
    part: str, prefix: str, topics: Mapping[str, frozenset[str]], groups: Mapping[Grant, frozenset[str]]
) -> Iterator[Grant]:
    """The rights of a part that a client has not.

    Args:
        part: as in `rights`.
        prefix: of the loop's topics.
        topics: by topic that exists, the operations that the client may do.
        groups: by right on consumer groups, the operations that it may do with such a group; left out: all.

    Raises:
        UserError: there is no such part.
    """
    for grant in rights_of(part):
        name = f"{prefix}.{grant.name}"
        if grant.resource is Resource.GROUP:
            of = [groups.get(grant, frozenset(grant.operations))]
        else:
            of = [may for each, may in topics.items() if (each.startswith(name) if grant.is_prefix else each == name)]
        missing = tuple(each for each in grant.operations if not all(each in may for may in of))
        if missing:
            yield replace(grant, operations=missing)
