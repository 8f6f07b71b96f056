"""Formats the answer of `headgate placement` as tables and sentences."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.table import Table
from rich.text import Text

from policies.bookie_readings import BrokerIsolation
from policies.isolation.decisions import PlacementVerdict, Tier
from policies.isolation.judge.placements import PlacementJudgement
from policies.isolation.membership import BookieMembership
from policies.isolation.messages import explain_placement
from policies.isolation.placement import Exclusion, classify
from policies.isolation.settings import IsolationSettings
from policies.units import counted

_COLOURS: Mapping[PlacementVerdict, str] = {
    PlacementVerdict.ISOLATED: "green",
    PlacementVerdict.UNCONSTRAINED: "dim",
    PlacementVerdict.ASKED_FOR: "yellow",
    PlacementVerdict.SPILLS_TO_SECONDARY: "yellow",
    PlacementVerdict.LEAKS: "bold red",
    PlacementVerdict.INFEASIBLE: "bold red",
}
_AFTER_HEADROOM: Mapping[Tier, str] = {
    Tier.PRIMARY: "the primary groups do not suffice",
    Tier.SECONDARY: "the secondary groups do not suffice",
    Tier.UNASSIGNED: "it cannot place its data",
    Tier.NONE: "",
}
_POLICIES_UNREAD = Text("brokers: Pulsar's namespace isolation policies could not be read", "dim")


def overview(cluster: str, judged: Sequence[PlacementJudgement]) -> Table:
    """Make a table with one row for each namespace, the worst first."""
    table = Table(title=f"Placement of {cluster}", title_justify="left")
    for name in ("namespace", "verdict", "primary", "secondary", "ensemble", "candidates", "headroom", "leak"):
        table.add_column(name, justify="right" if name in ("ensemble", "candidates", "headroom") else "left")
    order = list(_COLOURS)
    rows = sorted(
        ((j, n) for j in judged for n in j.namespaces), key=lambda row: (-order.index(row[0].verdict), row[1])
    )
    for j, namespace in rows:
        table.add_row(
            namespace,
            Text(j.verdict.value, _COLOURS[j.verdict]),
            ", ".join(sorted(j.affinity.primary)),
            ", ".join(sorted(j.affinity.secondary)),
            str(j.ensemble_size),
            str(j.placed.count),
            str(j.placed.headroom),
            ", ".join(j.leak),
        )
    return table


def bookie_table(judged: PlacementJudgement, membership: BookieMembership, settings: IsolationSettings) -> Table:
    """Make a table with one row for each bookie: whether it is a candidate, and why."""
    title = f"{judged.namespaces[0]} by the rules `{judged.rules}`, ensemble of {judged.ensemble_size}"
    table = Table("bookie", "group", "in", "why", title=title, title_justify="left")
    affinity = judged.affinity or None
    tiers = classify(judged.rules, membership, affinity, judged.ensemble_size, settings.unaffine)
    order: list[Tier | Exclusion] = [*Tier, *Exclusion]
    for bookie, why in sorted(tiers.items(), key=lambda row: (order.index(row[1]), row[0])):
        groups = ", ".join(sorted(g for g, members in (membership.groups or {}).items() if bookie in members)) or "-"
        if isinstance(why, Exclusion):
            table.add_row(bookie, groups, Text("out", "dim"), Text(why.value, "dim"))
        elif bookie in judged.leak:
            table.add_row(
                bookie, groups, Text("LEAK", "bold red"), f"{why.value}; the promise ({judged.promise}) forbids it"
            )
        else:
            table.add_row(bookie, groups, Text("in", "green"), why.value)
    return table


def summary(judged: Sequence[PlacementJudgement], membership: BookieMembership) -> Iterable[Text]:
    """Summarize the judgements in a line or two."""
    if len(judged) != 1 or len(judged[0].namespaces) != 1:
        namespaces = sum(len(j.namespaces) for j in judged)
        loose = sorted(membership.writable - membership.grouped())
        bookies = counted(len(membership.writable), "writable bookie")
        yield Text(f"{counted(namespaces, 'namespace')} with affinity, {bookies}")
        if loose:
            yield Text(f"in no group: {', '.join(loose)}", "yellow")
        return
    j = judged[0]
    yield Text(f"{j.verdict.value}: {j.namespaces[0]} {explain_placement(j)}.", _COLOURS[j.verdict])
    if j.placed.headroom:
        losses = "one more loss" if j.placed.headroom == 1 else f"{j.placed.headroom} more losses"
        yield Text(f"headroom: after {losses} {_AFTER_HEADROOM[j.placed.tier]}")


def policies_for(namespace: str, policies: Sequence[BrokerIsolation]) -> list[BrokerIsolation]:
    """Return the namespace isolation policies that brokers follow: the first match in each of Pulsar's clusters."""
    found: dict[str, BrokerIsolation] = {}
    for policy in policies:
        if any(_matches(pattern, namespace) for pattern in policy.namespaces):
            found.setdefault(policy.pulsar_cluster, policy)
    return list(found.values())


def _matches(pattern: str, namespace: str) -> bool:
    try:
        return re.fullmatch(pattern, namespace) is not None
    except re.error:  # Python does not understand every regular expression of Java
        return pattern == namespace


def broker_lines(namespace: str, policies: Sequence[BrokerIsolation] | None) -> Iterator[Text]:
    """Describe the brokers that serve one namespace."""
    if policies is None:
        yield _POLICIES_UNREAD
        return
    own = policies_for(namespace, policies)
    if not own:
        yield Text("brokers: any, no namespace isolation policy names it", "dim")
    for policy in own:
        spare = f", then {', '.join(policy.secondary)}" if policy.secondary else ""
        few = f" when fewer than {policy.min_available} of them are there" if policy.min_available is not None else ""
        yield Text(
            f"brokers: {', '.join(policy.primary) or 'none'}{spare}{few if spare else ''} "
            f"(policy {policy.name} of {policy.pulsar_cluster})"
        )


def policy_lines(namespaces: Sequence[str], policies: Sequence[BrokerIsolation] | None) -> Iterator[Text]:
    """Describe the brokers of many namespaces, with one line a policy."""
    if policies is None:
        yield _POLICIES_UNREAD
    for policy in policies or ():
        names = [name for name in namespaces if any(own is policy for own in policies_for(name, policies or ()))]
        if names:
            brokers = ", ".join((*policy.primary, *policy.secondary))
            yield Text(f"brokers {brokers} (policy {policy.name} of {policy.pulsar_cluster}): {', '.join(names)}")
