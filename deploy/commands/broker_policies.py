"""Finds which brokers serve a namespace, from Pulsar's namespace isolation policies; shown beside its bookies."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from policies.isolation.readings import BrokerIsolation


def policies_of(namespace: str, policies: Sequence[BrokerIsolation]) -> list[BrokerIsolation]:
    """Those that brokers follow for a namespace: of each of Pulsar's clusters the first that fits."""
    found: dict[str, BrokerIsolation] = {}
    for policy in policies:
        if any(_fits(pattern, namespace) for pattern in policy.namespaces):
            found.setdefault(policy.pulsar_cluster, policy)
    return list(found.values())


def _fits(pattern: str, namespace: str) -> bool:
    try:
        return re.fullmatch(pattern, namespace) is not None
    except re.error:  # Java's expressions are not all Python's
        return pattern == namespace


def plain(policy: BrokerIsolation) -> dict[str, Any]:
    """For JSON."""
    return policy.model_dump(mode="json")


def lines(namespace: str, policies: Sequence[BrokerIsolation] | None) -> Iterator[Text]:
    """What a person must know of the brokers of one namespace."""
    if policies is None:
        yield Text("brokers: Pulsar's namespace isolation policies could not be read", "dim")
        return
    own = policies_of(namespace, policies)
    if not own:
        yield Text("brokers: any, no namespace isolation policy names it", "dim")
    for policy in own:
        spare = f", then {', '.join(policy.secondary)}" if policy.secondary else ""
        few = f" when fewer than {policy.min_available} of them are there" if policy.min_available is not None else ""
        yield Text(
            f"brokers: {', '.join(policy.primary) or 'none'}{spare}{few if spare else ''} "
            f"(policy {policy.name} of {policy.pulsar_cluster})"
        )


def counted_lines(namespaces: Sequence[str], policies: Sequence[BrokerIsolation] | None) -> Iterator[Text]:
    """The same of many namespaces, one line a policy."""
    if policies is None:
        yield from lines("", None)
    for policy in policies or ():
        names = [n for n in namespaces if any(own is policy for own in policies_of(n, policies or ()))]
        if names:
            brokers = ", ".join((*policy.primary, *policy.secondary))
            yield Text(f"brokers {brokers} (policy {policy.name} of {policy.pulsar_cluster}): {', '.join(names)}")
